/**
 * What combinations share, as an icicle: each prefix stands once, as wide as the combinations that share it. What is wide
 * enough to be read is an element, and what is chosen, however narrow; the rest is painted, of which there are thousands.
 */
import { combination, count } from "../lib/format.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { address, look } from "../lib/router.js";
import { colour, isPrinting, theme } from "../lib/theme.js";
import { words } from "../lib/words.js";
import { differing, useWidth } from "./heat_map.js";

const SHOWN = 30; // combinations of a prefix
const MOST = 5_000; // prefixes that are drawn at a time: narrower ones are folded with their neighbours until one zooms in
const NARROW = 1; // pixels of a prefix that is drawn by itself
const READ_FROM = 24; // pixels of a prefix of which something can be read
const MARK = "tree";
const [PAPER, LEVEL, LETTER] = [760, 36, 6]; // units of a printed tree: its width, the height of a level, and the width of a letter
const HUES = ["#7da3e8", "#76c2ad", "#e0b36a", "#c99be0", "#e08f8f", "#8fc7e0", "#b9c46f", "#d3a58a"];

/** A prefix, or neighbours that are too narrow to be drawn: from where to where in the order of combinations. @typedef {{from: number, to: number, prefix: any, folded: number}} Box */
/** One of those that are seen. @typedef {{depth: number, place: number}} Place */

/** @param {{tree: any, matrix: any}} props */
export function SharingTree({ tree, matrix }) {
  const [selection, setSelection] = useState(/** @type {{depth: number, box: Box} | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(() => list.current, 800);
  const takesFocus = useRef(false); // what is chosen, once it is drawn
  const size = matrix.rows.length;
  const [from, to] = rangeOf(address.value.query.part, size);
  const total = useMemo(() => totalOf(tree.nodes), [tree]);
  const laidOut = useMemo(() => layOut(tree.levels ?? [], size, total), [tree, size]);
  const least = Math.max(NARROW / width, laidOut.length / MOST);
  const drawnBoxes = useMemo(() => laidOut.map(({ boxes }) => folded(boxes, from, to, least)), [laidOut, from, to, least]);
  const nodes = useMemo(() => html`<${Nodes} nodes=${tree.nodes} />`, [tree]);
  const varied = useMemo(() => differing(matrix.rows.map((/** @type {any} */ row) => row.combination)), [matrix]);
  const current = useRef(/** @type {Place} */ ({ depth: 0, place: 0 })); // where keys are, which come before what they do is drawn
  current.current = useMemo(() => placeOf(selection, drawnBoxes), [selection, drawnBoxes]);
  useLayoutEffect(() => {
    performance.clearMarks(MARK);
    performance.mark(MARK, { detail: drawnBoxes.reduce((sum, boxes) => sum + boxes.length, 0) });
  }, [drawnBoxes]);
  useLayoutEffect(() => {
    if (takesFocus.current) /** @type {HTMLElement | null | undefined} */ (list.current?.querySelector("[role=treeitem][tabindex='0']"))?.focus();
    takesFocus.current = false;
  }, [selection, drawnBoxes]);
  if (!tree.levels) return html`<p class="quiet">${tree.because}</p>${nodes}`;
  const foldedTexts = tree.folded.map((/** @type {any} */ level) => html`<p class="quiet">${level.node}: ${count(level.prefixes)} ${words.tree.folded}</p>`);
  if (isPrinting.value) return html`<${PrintedTree} levels=${laidOut} size=${size} />${foldedTexts}${nodes}`;
  const zoom = (/** @type {Box | null} */ box) => look({ part: box ? `${box.from}-${box.to}` : null });
  const at = (/** @type {Place} */ { depth, place }) => drawnBoxes[depth]?.[place];

  /** @param {Place} place @param {boolean} [isFocused] whether it has the focus already */
  function choose(place, isFocused = false) {
    const { depth, place: before } = current.current;
    if (selection && depth === place.depth && before === place.place) return;
    current.current = place;
    takesFocus.current = !isFocused;
    setSelection({ depth: place.depth, box: at(place) });
  }
  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (["0", "Enter", "+"].includes(event.key)) {
      takesFocus.current = true;
      zoom(event.key === "0" ? null : at(current.current) ?? null);
      return;
    }
    const next = moved(event.key, current.current, drawnBoxes);
    if (!next) return;
    event.preventDefault();
    choose(next);
  }
  return html`<p class="quiet">${words.tree.label}. ${words.tree.hint}</p>
    ${to - from < size ? html`<p class="bar"><span class="quiet">${words.tree.part(count(to - from), count(size))}</span><button onClick=${() => zoom(null)}>${words.tree.whole}</button></p>` : null}
    <div role="tree" class="icicle" aria-label=${words.tree.label} ref=${list} onKeyDown=${onKey} onDblClick=${() => zoom(at(current.current) ?? null)}>${laidOut.map(
      (level, depth) => html`<${Level} ...${level} depth=${depth} boxes=${drawnBoxes[depth]} from=${from} to=${to} width=${width}
        current=${current.current.depth === depth ? current.current.place : -1} isChosen=${selection !== null} onChoose=${choose} />`,
    )}</div>
    ${selection ? html`<${Chosen} node=${laidOut[selection.depth].node} box=${selection.box} rows=${matrix.rows} varied=${varied} total=${total} onZoom=${() => zoom(selection.box)} />` : null}
    ${foldedTexts}${nodes}`;
}

/**
 * What is seen of one level.
 * @param {object} props
 * @param {string} props.node
 * @param {Map<string, string>} props.hues
 * @param {(prefix: any) => string} props.describe
 * @param {number} props.depth
 * @param {Box[]} props.boxes
 * @param {number} props.from
 * @param {number} props.to
 * @param {number} props.width in pixels
 * @param {number} props.current the place of the one that is reached by Tab, or -1
 * @param {boolean} props.isChosen whether that one is chosen
 * @param {(place: Place, isFocused?: boolean) => void} props.onChoose
 */
function Level({ node, hues, describe, depth, boxes, from, to, width, current, isChosen, onChoose }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const perCombination = width / (to - from);
  const colours = theme.value;
  useLayoutEffect(() => {
    if (canvas.current) paint(canvas.current, boxes, { hues, from, to, width });
  }, [boxes, hues, from, to, width, colours]);
  const latest = useRef(onChoose);
  latest.current = onChoose;
  const label = (/** @type {Box} */ box) => (box.folded ? words.tree.narrow(count(box.folded)) : describe(box.prefix));
  const drawnBoxes = useMemo(
    () => boxes.map((box, place) => {
      const { left: offset, wide } = extent(box, from, to, perCombination);
      if (wide < READ_FROM && place !== current) return null;
      const style = { left: `${offset}px`, width: `${Math.max(1, wide - gap(wide))}px`, background: box.folded ? undefined : hues.get(box.prefix.variant) };
      return html`<div role="treeitem" key=${place} aria-level=${depth + 1} aria-posinset=${place + 1} aria-setsize=${boxes.length} tabindex=${place === current ? 0 : -1} aria-selected=${isChosen && place === current ? "true" : undefined}
        aria-label=${label(box)} title=${label(box)} class=${box.folded ? "folded" : ""} style=${style} onFocus=${() => latest.current({ depth, place }, true)}>${box.folded ? "…" : box.prefix.variant ?? node}</div>`;
    }),
    [boxes, from, to, perCombination, current, isChosen],
  );
  /** @param {MouseEvent} event @returns {number} the place of what is under the pointer */
  function under({ clientX }) {
    const where = from + (clientX - /** @type {HTMLElement} */ (canvas.current).getBoundingClientRect().left) / perCombination;
    return boxes.findIndex((box) => box.to > where);
  }
  /** @param {MouseEvent} event */
  function onClick(event) {
    const place = under(event);
    if (place >= 0) onChoose({ depth, place });
  }
  /** @param {MouseEvent} event */
  function onPointerMove(event) {
    const box = event.target === canvas.current ? boxes[under(event)] : null;
    if (canvas.current) canvas.current.title = box ? label(box) : "";
  }
  return html`<small role="none" class="quiet" aria-hidden="true">${node}</small>
    <div role="none" class="level" onClick=${onClick} onPointerMove=${onPointerMove}><canvas ref=${canvas} aria-hidden="true"></canvas>${drawnBoxes}</div>`;
}

/** Pixels between a box and the next one. @param {number} wide of the box */
const gap = (wide) => Math.min(2, wide / 4);

/** Where a box is, in pixels, as far as it is seen. @param {Box} box @param {number} from @param {number} to @param {number} perCombination */
function extent(box, from, to, perCombination) {
  const offset = (Math.max(box.from, from) - from) * perCombination;
  return { left: offset, wide: (Math.min(box.to, to) - from) * perCombination - offset };
}

/** Paint what is too narrow to be an element. @param {HTMLCanvasElement} canvas @param {Box[]} boxes @param {{hues: Map<string, string>, from: number, to: number, width: number}} how */
function paint(canvas, boxes, { hues, from, to, width }) {
  const height = canvas.clientHeight;
  const [across, down] = [width, height].map((length) => Math.round(length * devicePixelRatio));
  if (canvas.width !== across) canvas.width = across; // which takes long
  if (canvas.height !== down) canvas.height = down;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, width, height);
  const several = colour("line");
  for (const box of boxes) {
    const { left: offset, wide } = extent(box, from, to, width / (to - from));
    if (wide >= READ_FROM) continue;
    context.fillStyle = box.folded ? several : hues.get(box.prefix.variant) ?? several;
    context.fillRect(offset, 0, wide - gap(wide), height);
  }
}

/** Where what is chosen is seen; where it is not, the first of all. @param {{depth: number, box: Box} | null} selection @param {Box[][]} drawnBoxes @returns {Place} */
function placeOf(selection, drawnBoxes) {
  const place = selection ? drawnBoxes[selection.depth]?.findIndex((box) => box.from === selection.box.from && box.to === selection.box.to) ?? -1 : -1;
  return selection && place >= 0 ? { depth: selection.depth, place } : { depth: 0, place: 0 };
}

/** Where a key goes: arrows to neighbours, and to what is above or below. @param {string} key @param {Place} from @param {Box[][]} drawnBoxes @returns {Place | null} */
function moved(key, { depth, place }, drawnBoxes) {
  const last = (/** @type {number} */ level) => (drawnBoxes[level]?.length ? { depth: level, place: drawnBoxes[level].length - 1 } : null);
  const beside = (/** @type {number} */ level) => {
    const middle = drawnBoxes[depth][place].from;
    const neighbour = drawnBoxes[level]?.findIndex((box) => box.to > middle) ?? -1;
    return neighbour < 0 ? null : { depth: level, place: neighbour };
  };
  if (key === "ArrowLeft") return place ? { depth, place: place - 1 } : last(depth - 1);
  if (key === "ArrowRight") return place + 1 < drawnBoxes[depth].length ? { depth, place: place + 1 } : drawnBoxes[depth + 1]?.length ? { depth: depth + 1, place: 0 } : null;
  if (key === "ArrowUp") return beside(depth - 1);
  if (key === "ArrowDown") return beside(depth + 1);
  if (key === "Home") return { depth: 0, place: 0 };
  return key === "End" ? last(drawnBoxes.length - 1) : null;
}

/** The boxes of each level from left to right; those that share most stand together. @param {any[]} levels @param {number} size @param {{seconds: number, usd: number}} total */
function layOut(levels, size, total) {
  const texts = new Map();
  const places = new Int32Array(size);
  let next = 0; // the server has prefixes of the same parent side by side
  for (const prefix of levels.at(-1)?.prefixes ?? []) for (const number of prefix.combinations) places[number] = next++;
  return levels.map(({ node, prefixes }) => {
    const boxes = prefixes.map((/** @type {any} */ prefix) => {
      const from = prefix.combinations.reduce((/** @type {number} */ least, /** @type {number} */ number) => Math.min(least, places[number]), size);
      return { from, to: from + prefix.combinations.length, prefix, folded: 0 };
    });
    const variants = [...new Set(prefixes.map((/** @type {any} */ prefix) => prefix.variant))];
    const describe = (/** @type {any} */ prefix) => texts.get(prefix) ?? texts.set(prefix, toldOf(node, prefix, total)).get(prefix);
    return { node, describe, hues: new Map(variants.map((variant, index) => [variant, HUES[index % HUES.length]])), boxes: /** @type {Box[]} */ (boxes.sort((/** @type {Box} */ a, /** @type {Box} */ b) => a.from - b.from)) };
  });
}

/** What is seen of a level; neighbours narrower than a share of that are one box. @param {Box[]} boxes @param {number} from @param {number} to @param {number} least @returns {Box[]} */
function folded(boxes, from, to, least) {
  const seen = /** @type {Box[]} */ ([]);
  const narrow = least * (to - from);
  let open = /** @type {Box | null} */ (null); // to which neighbours may be added
  for (const box of boxes) {
    if (box.to <= from || box.from >= to) continue;
    if (box.to - box.from >= narrow) {
      seen.push(box);
      open = null;
    } else if (open && open.to - open.from < 2 * narrow) {
      open.to = box.to;
      open.prefix = null;
      open.folded++;
    } else seen.push((open = { ...box, folded: 1 }));
  }
  for (const box of seen) if (box.folded === 1) box.folded = 0;
  return seen;
}

/** The part that an address names; all of it where there is no such part. @param {string | undefined} text @param {number} size */
function rangeOf(text, size) {
  const [from, to] = (text ?? "").split("-").map(Number);
  return from >= 0 && to <= size && from < to ? [from, to] : [0, size];
}

/** Time and money of all nodes. @param {any[]} nodes */
const totalOf = (nodes) => nodes.reduce((sum, node) => ({ seconds: sum.seconds + node.seconds, usd: sum.usd + node.usd }), { seconds: 0, usd: 0 });

/** A share in per cent, or null of nothing. @param {number} part @param {number} whole */
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}%` : null);

/** @param {string} node @param {any} prefix @param {{seconds: number, usd: number}} total */
function toldOf(node, { variant, executed, unshared, combinations, failed, seconds, usd }, total) {
  const ran = words.tree.ran(variant === null ? node : `${node}=${variant}`, count(executed), words.tree.combinations(combinations.length), count(unshared));
  const shares = words.tree.shares(failed, share(seconds, total.seconds), share(usd, total.usd));
  return shares ? `${ran}; ${shares}` : ran;
}

/** For whom a prefix ran once. @param {{node: string, box: Box, rows: any[], varied: string[], total: any, onZoom: () => void}} props */
function Chosen({ node, box, rows, varied, total, onZoom }) {
  const zoom = html`<button onClick=${onZoom}>${words.tree.zoom}</button>`;
  if (box.folded) return html`<section class="notice" role="status"><p>${words.tree.narrow(count(box.folded))} ${zoom}</p></section>`;
  const { combinations } = box.prefix;
  const whom = combinations.slice(0, SHOWN).map((/** @type {number} */ number) => rows[number]).filter(Boolean);
  return html`<section class="notice" role="status"><p>${toldOf(node, box.prefix, total)} ${zoom}</p>
    <ul class="whom">${whom.map((/** @type {any} */ row) => html`<li class="mono">${combination(row.combination, varied)}</li>`)}</ul>
    ${combinations.length > SHOWN ? html`<p class="quiet">${words.execution.more(combinations.length - SHOWN)}</p>` : null}</section>`;
}

/** All of the tree on paper, where nothing is zoomed. @param {{levels: {node: string, hues: Map<string, string>, boxes: Box[]}[], size: number}} props */
function PrintedTree({ levels, size }) {
  return html`<svg class="printed" viewBox=${`0 0 ${PAPER} ${levels.length * LEVEL}`} role="img" aria-label=${words.tree.label}>${levels.map(({ node, hues, boxes }, depth) => html`<text class="tick" x="0" y=${depth * LEVEL + 10}>${node}</text>
    ${folded(boxes, 0, size, NARROW / PAPER).map((box) => {
      const { left: offset, wide } = extent(box, 0, size, PAPER / size);
      const name = box.folded ? "…" : box.prefix.variant ?? node;
      const room = Math.floor((wide - 8) / LETTER);
      return html`<rect x=${offset} y=${depth * LEVEL + 14} width=${wide - gap(wide)} height=${LEVEL - 18} rx=${Math.min(3, wide / 4)} fill=${box.folded ? "var(--line)" : hues.get(box.prefix.variant)} />
        ${room < 2 ? null : html`<text x=${offset + 4} y=${depth * LEVEL + 26}>${name.length > room ? `${name.slice(0, room - 1)}…` : name}</text>`}`;
    })}`)}</svg>`;
}

/** @param {{nodes: any[]}} props */
function Nodes({ nodes }) {
  const total = totalOf(nodes);
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th>${words.tree.node}</th><th class="num">${words.tree.nodeRuns}</th><th class="num">${words.tree.unshared}</th><th class="num">${words.tree.saved}</th><th class="num">${words.tree.failed}</th><th class="num">${words.tree.time}</th><th class="num">${words.tree.cost}</th></tr></thead>
    <tbody>${nodes.map((node) => html`<tr><td>${node.node}</td><td class="num">${count(node.executed)}</td><td class="num">${count(node.unshared)}</td><td class="num">${node.unshared ? `${Math.round(100 * (1 - node.executed / node.unshared))}%` : ""}</td><td class="num">${count(node.failed)}</td><td class="num">${share(node.seconds, total.seconds) ?? words.unknown}</td><td class="num">${share(node.usd, total.usd) ?? words.unknown}</td></tr>`)}</tbody>
  </table></div>`;
}
