/** Outputs as a table of which only what is seen is drawn: cases are rows, combinations are columns. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { Turns } from "../lib/turns.js";
import { CaseCell, CaseGlimpse, OutputCell, OutputGlimpse } from "./output_cell.js";

const HEAD = 44; // pixels
const AHEAD = 1; // rows and columns that are drawn before they are seen

/** Sizes in pixels, by the room that there is. @param {number} width @param {number} columns */
function sizes(width, columns) {
  if (width < 620) return { left: Math.round(width * 0.42), column: Math.round(width * 0.56), row: 230 };
  const caseWidth = Math.min(340, Math.round(width * 0.28));
  return { left: caseWidth, column: Math.max(260, Math.min(640, Math.floor((width - caseWidth - 16) / Math.max(1, Math.min(columns, 3))))), row: 210 };
}

/** How many letters of plain text a cell has room for, at most. @param {number} width @param {number} height */
function lettersOf(width, height) {
  return Math.ceil((width * height) / 120); // pixels of a letter
}

/**
 * @param {object} props
 * @param {{current: HTMLElement | null}} props.view gets the element
 * @param {import("../lib/output_pages.js").OutputPages} props.pages
 * @param {number} props.version changes with what is loaded
 * @param {string[]} props.names of the columns
 * @param {string[]} props.titles of the columns in full
 * @param {any} props.about the document of the first page
 * @param {string | null} props.metric
 * @param {string} props.against what words are compared with: empty, "expected" or the number of a combination
 * @param {[number, number]} props.at the cell under the cursor
 * @param {(index: number, column: number) => void} props.onMove
 * @param {() => void} props.onOpen
 * @param {(key: string) => boolean} props.onKey whether a key has been dealt with
 */
export function OutputsTable({ view, pages, version, names, titles, about, metric, against, at, onMove, onOpen, onKey }) {
  const [room, setRoom] = useState({ width: 1000, height: 600 });
  const [seen, setSeen] = useState({ top: 0, left: 0 });
  const drawn = useMemo(() => /** @type {Map<string, {of: any, drawing: any}>} */ (new Map()), [pages, against, metric]); // vnodes, so that what is scrolled is not made anew
  const turns = useMemo(() => new Turns(), []);
  const total = pages.total ?? 0;
  const size = sizes(room.width, names.length);
  const first = Math.max(0, Math.floor(seen.top / size.row) - AHEAD);
  const last = Math.min(total - 1, Math.floor((seen.top + room.height) / size.row) + AHEAD);
  const from = Math.max(0, Math.floor(seen.left / size.column) - AHEAD);
  const to = Math.min(names.length - 1, Math.floor((seen.left + room.width - size.left) / size.column) + AHEAD);

  useLayoutEffect(() => {
    const frame = /** @type {HTMLElement} */ (view.current);
    const watching = new ResizeObserver(() => setRoom({ width: frame.clientWidth, height: frame.clientHeight }));
    watching.observe(frame);
    return () => watching.disconnect();
  }, []);
  const reference = against && against !== "expected" ? pages.rows.indexOf(Number(against)) : -1;
  useEffect(() => pages.see([first, last], [from, to], reference), [pages, first, last, from, to, total, reference]);
  useEffect(() => {
    const frame = /** @type {HTMLElement} */ (view.current);
    const [top, across] = [at[0] * size.row, at[1] * size.column];
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + size.row > frame.scrollTop + frame.clientHeight - HEAD) frame.scrollTop = top + size.row - frame.clientHeight + HEAD;
    if (across < frame.scrollLeft) frame.scrollLeft = across;
    else if (across + size.column > frame.scrollLeft + frame.clientWidth - size.left) frame.scrollLeft = across + size.column - frame.clientWidth + size.left;
  }, [at[0], at[1], size.row, size.column]);
  useLayoutEffect(() => {
    if (version && pages.at(0, 0) && !performance.getEntriesByName("outputs").length) performance.mark("outputs");
  }, [version]);

  const waiting = useRef(0);
  function scrolled() {
    waiting.current ||= requestAnimationFrame(() => {
      waiting.current = 0;
      const frame = view.current;
      if (!frame) return;
      turns.move(frame.scrollTop, frame.scrollLeft);
      const now = { top: Math.floor(frame.scrollTop / size.row) * size.row, left: Math.floor(frame.scrollLeft / size.column) * size.column };
      setSeen((before) => (before.top === now.top && before.left === now.left ? before : now));
    });
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const [row, column] = at;
    const moves = /** @type {Record<string, [number, number]>} */ ({ j: [1, 0], ArrowDown: [1, 0], k: [-1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [3, 0], PageUp: [-3, 0], Home: [-row, -column], End: [total - 1 - row, 0] });
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      onMove(Math.max(0, Math.min(total - 1, row + down)), Math.max(0, Math.min(names.length - 1, column + right)));
    } else if (event.key === "Enter" || event.key === "o") onOpen();
    else if (!onKey(event.key)) return;
    event.preventDefault();
  }

  /** What has been made of something before, else what is made of it now; a glimpse of it while there is no time for that. @param {string} name @param {any} of @param {() => any} glimpse @param {() => any} make */
  function once(name, of, glimpse, make) {
    const cached = drawn.get(name);
    if (cached && cached.of === of) return cached.drawing;
    const drawing = html`<${Later} key=${name} turns=${turns} glimpse=${glimpse} make=${make} />`;
    drawn.set(name, { of, drawing });
    return drawing;
  }
  /** @param {number} index @param {number} column */
  function cell(index, column) {
    const loaded = pages.at(index, column);
    const other = loaded && comparedWith(pages, against, index, column, about);
    if (!other) return null; // it comes with another page
    return once(`${index}.${column}`, loaded.cell, () => html`<${OutputGlimpse} cell=${loaded.cell} keys=${about.keys} metric=${metric} limit=${lettersOf(size.column, size.row)} />`, () => html`<${OutputCell} cell=${loaded.cell} keys=${about.keys} metrics=${about.metrics} metric=${metric} against=${other.values} />`);
  }
  const rows = [];
  for (let index = first; index <= last; index++) {
    const loaded = pages.at(index, from) ?? pages.at(index, to);
    const columns = [];
    for (let column = from; column <= to; column++) {
      const isHere = index === at[0] && column === at[1];
      columns.push(html`<div key=${column} role="gridcell" id=${`cell-${index}-${column}`} aria-colindex=${column + 2} aria-selected=${isHere} aria-label=${`${loaded?.caseRow.case ?? ""} · ${titles[column]}`} class=${`cell ${isHere ? "here" : ""} ${String(pages.rows[column]) === against ? "reference" : ""}`}
        style=${`left:${size.left + column * size.column}px;width:${size.column}px`} onClick=${() => onMove(index, column)} onDblClick=${onOpen}>${cell(index, column) ?? html`<span class="quiet">${words.loading}</span>`}</div>`);
    }
    rows.push(html`<div key=${index} role="row" aria-rowindex=${index + 2} class="line" style=${`top:${HEAD + index * size.row}px;height:${size.row}px;width:${size.left + names.length * size.column}px`}>
      <div role="rowheader" class="case" style=${`width:${size.left}px`}>${loaded ? once(`${index}`, loaded.caseRow.case, () => html`<${CaseGlimpse} caseRow=${loaded.caseRow} limit=${lettersOf(size.left, size.row)} />`, () => html`<${CaseCell} caseRow=${loaded.caseRow} repeats=${about.repeats} />`) : html`<span class="quiet">${words.loading}</span>`}</div>${columns}</div>`);
  }
  const heads = [];
  for (let column = from; column <= to; column++) heads.push(html`<div key=${column} role="columnheader" aria-colindex=${column + 2} class=${`head-cell ${String(pages.rows[column]) === against ? "reference" : ""}`} title=${titles[column]} style=${`left:${size.left + column * size.column}px;width:${size.column}px`}>${names[column]}</div>`);
  return html`<div class="outputs" ref=${view} role="grid" tabindex="0" aria-label=${words.label} aria-rowcount=${total + 1} aria-colcount=${names.length + 1} aria-activedescendant=${`cell-${at[0]}-${at[1]}`} aria-describedby="outputs-hint" onScroll=${scrolled} onKeyDown=${key}>
    <div class="room" style=${`height:${HEAD + total * size.row}px;width:${size.left + names.length * size.column}px`} role="presentation">
      <div class="heads" role="row" aria-rowindex="1" style=${`width:${size.left + names.length * size.column}px;height:${HEAD}px`}><div role="columnheader" class="corner" style=${`width:${size.left}px`}>${words.input}</div>${heads}</div>
      ${rows}
    </div></div>`;
}

/** Something that is drawn as soon as there is time between two frames, and a glimpse of it until then. @param {{turns: Turns, glimpse: () => any, make: () => any}} props */
function Later({ turns, glimpse, make }) {
  const [, setTurn] = useState(0);
  const drawn = useRef(/** @type {{by: () => any, drawing: any} | null} */ (null));
  if (drawn.current?.by !== make && turns.hasTime) drawn.current = { by: make, drawing: make() };
  const isLate = drawn.current?.by !== make;
  useLayoutEffect(() => (isLate ? turns.wait(() => setTurn((before) => before + 1)) : undefined));
  return drawn.current?.drawing ?? glimpse();
}

/**
 * What the outputs of a cell are compared with, by key; null while it is not loaded.
 * @param {import("../lib/output_pages.js").OutputPages} pages @param {string} against @param {number} index @param {number} column @param {any} about
 * @returns {{values: any} | null}
 */
export function comparedWith(pages, against, index, column, about) {
  if (!against || String(pages.rows[column]) === against) return { values: undefined };
  if (against === "expected") {
    const expected = pages.at(index, column)?.caseRow.expected;
    return { values: expected ? { [about.keys[0]]: expected } : undefined };
  }
  const place = pages.rows.indexOf(Number(against));
  if (place < 0) return { values: undefined };
  const other = pages.at(index, place);
  return other ? { values: other.cell?.outputs ?? {} } : null;
}
