/**
 * Every cell of a sweep: a row for each combination, a column for each case. Cells are painted once into a picture of
 * a pixel each, which is then drawn as large as it is looked at; where there are more cases than pixels, neighbours are
 * averaged. What stands for it where nobody sees is a grid of the one cell that is chosen.
 */
import { differing, shortNames } from "../lib/combinations.js";
import { combination, figure, labelsOf } from "../lib/format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { isEmbedded } from "../lib/router.js";
import { css, isDark, packed, rampOf, rgb, stepOf } from "../lib/score_colours.js";
import { colour, isPrinting, theme } from "../lib/theme.js";
import { words } from "../lib/words.js";
import { PrintedHeatMap } from "./printed_heat_map.js";

export { differing };

const ROW = 18;
const MOST_HEIGHT = 32 * ROW;
const LABELS = 230;
const LABEL = 64; // pixels that the name of a case has at least
const WIDEST = 64;
const MARK = "heat-map";
const NUMBERS_FROM = 34; // pixels of a cell in which its score fits
const MOST_GLYPHS = 2_000; // of 7 kB each

/** @typedef {import("../lib/columns.js").Columns} Columns */
/** A cell as it stands: its row from the top. @typedef {{row: number, column: number}} Place */

/**
 * @param {object} props
 * @param {Columns} props.columns
 * @param {number[]} props.order the numbers of the combinations, from top to bottom
 * @param {string | null} props.group the node by whose variants rows stand together
 * @param {[number, number]} props.scale the scores at which colours end, the worse one first
 * @param {{row: number, column: number} | null} props.mark the cell, by number of its combination, that another is to be compared with
 * @param {(row: number, column: number) => void} props.onMark
 * @param {(row: number, column: number) => void} props.onOpen
 */
export function HeatMap({ columns, order, group, scale, mark, onMark, onOpen }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const marked = useRef(/** @type {OffscreenCanvas | null} */ (null));
  const width = useWidth(() => canvas.current?.parentElement, 600);
  const [view, setView] = useState({ left: 0, zoom: 1, top: 0 });
  const [cursor, setCursor] = useState(/** @type {Place | null} */ (null)); // of the keyboard, which the pointer leaves where it is
  const [pointed, setPointed] = useState(/** @type {Place | null} */ (null));
  const [isFocused, setFocused] = useState(false);
  const cases = columns.cases.length;
  const height = Math.min(order.length * ROW, MOST_HEIGHT);
  const fit = Math.min(WIDEST, width / Math.max(1, cases));
  const cell = Math.min(WIDEST, fit * view.zoom);
  const furthest = { left: Math.max(0, cases * cell - width), top: Math.max(0, order.length * ROW - height) };
  const across = Math.min(view.left, furthest.left);
  const top = Math.min(view.top, furthest.top);
  const at = { row: clamp(cursor?.row ?? 0, order.length), column: clamp(cursor?.column ?? 0, cases) };
  const chosenCell = pointed && isCell(pointed) ? pointed : isFocused && order.length && cases ? at : null;

  // Averages of as many cases as share a pixel where all are seen; single cases once they have one each.
  const bin = Math.max(1, Math.floor(1 / cell));
  const colours = theme.value;
  const picture = useMemo(() => paint(columns, order, scale, bin), [columns, order, ...scale, bin, colours]);

  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      if (!canvas.current) return;
      draw(canvas.current, picture, { columns, order, group, scale, cell, bin, across, top, width, height, chosenCell, mark });
      if (marked.current !== picture) note(columns.score);
      marked.current = picture;
    });
    return () => cancelAnimationFrame(frame);
  });

  /** @param {number} factor @param {number} at pixel that stays where it is */
  function zoom(factor, at = width / 2) {
    const after = Math.max(1, Math.min(WIDEST / fit, view.zoom * factor));
    const place = (across + at) / cell;
    setView({ ...view, zoom: after, left: Math.max(0, place * Math.min(WIDEST, fit * after) - at) });
  }

  /** @param {Place} place */
  function isCell({ row, column }) {
    return row >= 0 && row < order.length && column >= 0 && column < cases;
  }

  /** Move the cursor of the keyboard, and what is seen with it. @param {number} row @param {number} column */
  function choose(row, column) {
    const next = { row: clamp(row, order.length), column: clamp(column, cases) };
    setCursor(next);
    setPointed(null);
    const x = next.column * cell;
    const y = next.row * ROW;
    setView({
      ...view,
      left: x < across ? x : x + cell > across + width ? x + cell - width : across,
      top: y < top ? y : y + ROW > top + height ? y + ROW - height : top,
    });
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -bin], ArrowRight: [0, bin], Home: [0, -cases], End: [0, cases] });
    if (moves[event.key]) choose(at.row + moves[event.key][0], at.column + moves[event.key][1]);
    else if (event.key === "Enter" && isCell(at)) onOpen(order[at.row], at.column);
    else if (event.key === " " && isCell(at)) onMark(order[at.row], at.column);
    else if (event.key === "+") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else if (event.key === "0") setView({ left: 0, zoom: 1, top: 0 });
    else return;
    event.preventDefault();
  }

  /** @param {MouseEvent} event */
  function cellAt(event) {
    const box = /** @type {HTMLElement} */ (canvas.current).getBoundingClientRect();
    return { row: Math.floor((event.clientY - box.top + top) / ROW), column: Math.floor((event.clientX - box.left + across) / cell) };
  }

  /** @param {PointerEvent} event */
  function onMove(event) {
    if (event.buttons === 1) {
      setView({ ...view, left: Math.max(0, across - event.movementX), top: Math.max(0, top - event.movementY) });
      return;
    }
    setPointed(cellAt(event));
  }

  /** @param {MouseEvent} event */
  function onClick(event) {
    const place = cellAt(event);
    if (!isCell(place)) return;
    setCursor(place);
    (event.shiftKey ? onMark : onOpen)(order[place.row], place.column);
  }

  /** @param {WheelEvent} event */
  function onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), event.offsetX);
    } else if (furthest.top && event.deltaY) {
      const next = Math.max(0, Math.min(furthest.top, top + event.deltaY));
      if (next !== top) event.preventDefault();
      setView({ ...view, top: next });
    }
  }

  const first = Math.floor(top / ROW);
  const rows = order.slice(first, first + Math.ceil(height / ROW) + 1);
  const named = useMemo(() => {
    const [key, ...further] = differing(columns.combinations, group);
    return further.length ? shortNames(columns.combinations, group) : columns.combinations.map((/** @type {Record<string, string>} */ variants) => labelsOf(variants)[key] ?? "");
  }, [columns.combinations, group]);
  if (isPrinting.value) return html`<${PrintedHeatMap} columns=${columns} order=${order} names=${named} scale=${scale} />`;
  return html`<div class="heat" style=${{ display: "grid", gridTemplateColumns: `minmax(4.5rem, min(${LABELS}px, 30%)) minmax(0, 1fr)` }}>
    <div style=${{ height: `${height}px`, overflow: "hidden", position: "relative" }} aria-hidden="true">
      ${rows.map(
        (number, index) => html`<div class="mono" key=${number} title=${combination(columns.combinations[number])}
          style=${{ position: "absolute", top: `${(first + index) * ROW - top}px`, height: `${ROW}px`, lineHeight: `${ROW}px`, fontSize: "11px", whiteSpace: "nowrap", overflow: "hidden", textOverflow: "ellipsis", width: "100%", paddingRight: "6px" }}>
          ${named[number]}</div>`,
      )}
    </div>
    <div class="canvas" style=${{ maxWidth: `${Math.max(1, cases) * WIDEST + 2}px` }} role="grid" tabindex="0" aria-label=${words.matrix.label} aria-rowcount=${order.length} aria-colcount=${cases}
      onKeyDown=${onKey} onPointerMove=${onMove} onPointerLeave=${() => setPointed(null)} onClick=${onClick} onWheel=${onWheel}
      onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}>
      <canvas ref=${canvas} style=${{ height: `${height}px` }} aria-hidden="true"></canvas>
      ${chosenCell ? html`<${Told} columns=${columns} chosenCell=${chosenCell} order=${order} x=${chosenCell.column * cell - across} y=${chosenCell.row * ROW - top} width=${width} height=${height} bin=${bin} mark=${mark} />` : null}
    </div>
    <span></span>
    <div class="axis quiet" aria-hidden="true" style=${{ maxWidth: `${Math.max(1, cases) * WIDEST + 2}px` }}>${labels(cases, cell, across, width).map(
      ({ column, x, room }) => html`<span key=${column} title=${columns.cases[column]} style=${{ left: `${x}px`, width: `${room}px` }}>${columns.cases[column]}</span>`,
    )}</div>
    <span></span>
    <${Legend} columns=${columns} scale=${scale} />
    <span></span>
    <small class="quiet">${isEmbedded ? words.matrix.hintOfFile : words.matrix.hint}${bin > 1 ? ` ${words.matrix.bins(bin)}.` : ""}</small>
  </div>`;
}

/** The pixels that an element has from side to side; those of `usual` until that is known. @param {() => HTMLElement | null | undefined} element none on paper @param {number} usual */
export function useWidth(element, usual) {
  const [width, setWidth] = useState(usual);
  useLayoutEffect(() => {
    const box = element();
    if (!box) return;
    const watch = new ResizeObserver(() => setWidth(box.clientWidth || usual));
    watch.observe(box);
    return () => watch.disconnect();
  }, [isPrinting.value]);
  return width;
}

/** Which cases are named below the picture: as many as have room. @param {number} cases @param {number} cell @param {number} across @param {number} width */
function labels(cases, cell, across, width) {
  const step = Math.max(1, Math.ceil(LABEL / cell));
  const names = [];
  for (let column = Math.ceil(across / cell / step) * step; column < cases && column * cell - across < width; column += step) {
    names.push({ column, x: column * cell - across, room: step * cell - 4 });
  }
  return names;
}

/** What colours mean. @param {{columns: Columns, scale: [number, number]}} props */
function Legend({ columns, scale }) {
  const colours = theme.value; // which are others by day and by night
  const present = useMemo(() => statusesOf(columns), [columns]);
  const stops = useMemo(() => rampOf(colour("paper")).filter((_, step) => step % 16 === 0).map(css), [colours]);
  return html`<div class="legend"><span>${columns.metric ?? words.matrix.score} ${figure(scale[0])}<i style=${{ background: `linear-gradient(90deg, ${stops.join(", ")})` }}></i>${figure(scale[1])}</span>
    ${present.map((status) => html`<span><i class="one" style=${{ background: colour(`c-${status}`) || colour(`s-${status}`) || colour("s-pending") }}></i>${words.status[/** @type {"failed"} */ (status)] ?? status}</span>`)}</div>`;
}

/** The statuses of cells that have no score, which are painted by them. @param {Columns} columns */
function statusesOf(columns) {
  const seen = new Set();
  columns.status.forEach((status, index) => status !== 255 && Number.isNaN(columns.score[index]) && seen.add(status));
  return columns.statuses.filter((_, number) => seen.has(number));
}

/** Tell who measures that cells were drawn, and how many have a score: the last time only, since a page may be open for hours. @param {Float32Array} scores */
function note(scores) {
  performance.clearMarks(MARK);
  performance.mark(MARK, { detail: scores.reduce((count, score) => count + Number(score === score), 0) });
}

/** The chosen cell, beside it and for readers. @param {any} props */
function Told({ columns, chosenCell, order, x, y, width, height, bin, mark }) {
  const number = order[chosenCell.row];
  const { status, score } = resultOf(columns, number, chosenCell.column);
  const name = words.status[/** @type {"running"} */ (status)] ?? status;
  const isMarked = mark?.row === number && mark.column === chosenCell.column;
  const scoreText = Number.isFinite(score) ? `${columns.metric ?? words.matrix.score} ${figure(score)}` : words.matrix.noScore;
  const place = { left: x > width / 2 ? undefined : `${Math.max(0, x) + 14}px`, right: x > width / 2 ? `${width - x + 8}px` : undefined, top: y > height / 2 ? undefined : `${y + ROW}px`, bottom: y > height / 2 ? `${height - y + 2}px` : undefined, maxWidth: `min(26rem, ${Math.max(120, x > width / 2 ? x - 8 : width - x - 14)}px)` };
  return html`<div role="row" aria-rowindex=${chosenCell.row + 1}>
    <div class="tip" role="gridcell" aria-colindex=${chosenCell.column + 1} aria-live="polite" aria-selected=${isMarked} style=${place}>
      <b>${columns.cases[chosenCell.column]}</b>${bin > 1 ? " …" : ""} · ${combination(columns.combinations[number])}<br />${name}, ${scoreText}${isMarked ? html`<br />${words.matrix.marked}` : null}
    </div>
  </div>`;
}

/** @param {number} index @param {number} size */
const clamp = (index, size) => Math.max(0, Math.min(size - 1, index));

/** What a cell came to, its repeats together. @param {Columns} columns @param {number} row @param {number} column */
function resultOf(columns, row, column) {
  const start = (row * columns.cases.length + column) * columns.repeats;
  let sum = 0;
  let scored = 0;
  let worst = 255;
  for (let index = start; index < start + columns.repeats; index++) {
    if (!Number.isNaN(columns.score[index])) [sum, scored] = [sum + columns.score[index], scored + 1];
    if (columns.status[index] !== 255 && (worst === 255 || columns.status[index] > worst)) worst = columns.status[index];
  }
  return { status: columns.statuses[worst] ?? words.none, score: scored ? sum / scored : NaN };
}

/** A pixel for each cell, or for each few cases of a row. @param {Columns} columns @param {number[]} order @param {[number, number]} scale @param {number} bin */
function paint(columns, order, scale, bin) {
  const width = Math.max(1, Math.ceil(columns.cases.length / bin));
  const image = new ImageData(width, Math.max(1, order.length));
  const pixels = new Uint32Array(image.data.buffer);
  const ramp = rampOf(colour("paper"));
  const byStatus = columns.statuses.map((status) => packed(rgb(colour(`c-${status}`) || colour(`s-${status}`) || colour("s-pending"))));
  const each = bin * columns.repeats;
  const perRow = columns.cases.length * columns.repeats;
  const factor = (ramp.length - 1) / (scale[1] - scale[0] || 1);
  for (let y = 0; y < order.length; y++) {
    for (let x = 0; x < width; x++) {
      const start = order[y] * perRow + x * each;
      const end = Math.min(start + each, (order[y] + 1) * perRow);
      let sum = 0;
      let scored = 0;
      let status = 255;
      for (let index = start; index < end; index++) {
        const score = columns.score[index];
        if (score === score) [sum, scored] = [sum + score, scored + 1];
        else if (columns.status[index] !== 255) status = columns.status[index];
      }
      const place = y * width + x;
      if (scored) pixels[place] = ramp[Math.max(0, Math.min(ramp.length - 1, Math.round((sum / scored - scale[0]) * factor)))];
      else if (status !== 255) pixels[place] = byStatus[status];
    }
  }
  const picture = new OffscreenCanvas(width, image.height);
  /** @type {OffscreenCanvasRenderingContext2D} */ (picture.getContext("2d")).putImageData(image, 0, 0);
  return picture;
}

/** @param {HTMLCanvasElement} canvas @param {OffscreenCanvas} picture @param {any} how */
function draw(canvas, picture, { columns, order, group, scale, cell, bin, across, top, width, height, chosenCell, mark }) {
  const ratio = devicePixelRatio;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  const seen = Math.min(width, columns.cases.length * cell - across);
  context.drawImage(picture, across / cell / bin, top / ROW, seen / cell / bin, height / ROW, 0, 0, seen, height);
  if (cell >= 6) lines(context, { cell, across, top, seen, height });
  if (group) between(context, { columns, order, group, top, seen });
  if (cell >= NUMBERS_FROM) numbers(context, { columns, order, scale, cell, across, top, width, height });
  if (mark) frame(context, "accent", mark.column * cell - across, order.indexOf(mark.row) * ROW - top, cell);
  if (chosenCell) frame(context, "ink", chosenCell.column * cell - across, chosenCell.row * ROW - top, cell);
}

/** @param {CanvasRenderingContext2D} context @param {string} name of its colour @param {number} x @param {number} y @param {number} cell */
function frame(context, name, x, y, cell) {
  context.strokeStyle = colour(name);
  context.lineWidth = name === "ink" ? 2 : 4;
  context.strokeRect(x, y + 1, Math.max(3, cell), ROW - 2);
}

/** @param {CanvasRenderingContext2D} context @param {any} how */
function lines(context, { cell, across, top, seen, height }) {
  context.fillStyle = colour("paper");
  for (let x = -(across % cell); x <= seen; x += cell) context.fillRect(x - 0.5, 0, 1, height);
  for (let y = -(top % ROW); y <= height; y += ROW) context.fillRect(0, y - 0.5, seen, 1);
}

/** A line above each row with which another variant begins. @param {CanvasRenderingContext2D} context @param {any} how */
function between(context, { columns, order, group, top, seen }) {
  context.fillStyle = colour("ink");
  for (let row = 1; row < order.length; row++) {
    if (labelsOf(columns.combinations[order[row]])[group] !== labelsOf(columns.combinations[order[row - 1]])[group]) context.fillRect(0, row * ROW - top - 1, seen, 2);
  }
}

const glyphs = /** @type {Map<string, OffscreenCanvas>} */ (new Map());

/** Scores as pictures that are made once each: text is what a canvas draws slowest. @param {CanvasRenderingContext2D} context @param {any} how */
function numbers(context, { columns, order, scale, cell, across, top, width, height }) {
  const onDark = rampOf(colour("paper")).map(isDark);
  for (let row = Math.floor(top / ROW); row < order.length && row * ROW < top + height; row++) {
    for (let column = Math.floor(across / cell); column < columns.cases.length && column * cell < across + width; column++) {
      const { score } = resultOf(columns, order[row], column);
      if (Number.isFinite(score)) context.drawImage(glyph(score.toFixed(2), onDark[stepOf(score, scale, onDark.length)]), column * cell - across + cell / 2 - 16, row * ROW - top + 2, 32, 14);
    }
  }
}

/** @param {string} text @param {boolean} onDark what it stands on */
function glyph(text, onDark) {
  const key = `${text} ${onDark}`;
  let glyph = glyphs.get(key);
  if (!glyph) {
    glyph = new OffscreenCanvas(64, 28);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (glyph.getContext("2d"));
    context.font = "20px ui-monospace, monospace";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = onDark ? "#ffffff" : "#10161d";
    context.fillText(text, 32, 14);
    if (glyphs.size === MOST_GLYPHS) glyphs.clear();
    glyphs.set(key, glyph);
  }
  return glyph;
}

/** The scores at which colours end, the worse first. @param {any} measure @param {any} columns */
export function scoreEnds(measure, columns) {
  let [low, high] = [measure?.low ?? Infinity, measure?.high ?? -Infinity];
  if (low > high) {
    for (const score of columns.score) {
      if (score < low) low = score;
      if (score > high) high = score;
    }
  }
  if (low > high) [low, high] = [0, 1];
  return /** @type {[number, number]} */ (measure?.better === "lower" ? [high, low] : [low, high]);
}
