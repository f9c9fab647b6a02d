/** Two texts side by side: what differs with a few lines around it, word by word where lines stand for each other. */
import { visible } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { compareLines, compareWords } from "../lib/text_diff.js";
import { words } from "../lib/words.js";

const AROUND = 3; // lines
const LONGEST = 20_000; // letters of a line that are shown
const SHOWN = 400; // rows that are shown before somebody asks for more

/** A line of each side by its number; null where a side has none. @typedef {{a: number | null, b: number | null, isSame: boolean}} Row */

/** Rows in order, with how many lines were left out in place of those. @param {import("../lib/text_diff.js").Hunk[]} hunks @param {number} sizeA @param {number} sizeB @returns {(Row | number)[]} */
function rowsOf(hunks, sizeA, sizeB) {
  const rows = /** @type {(Row | number)[]} */ ([]);
  let [a, b] = [0, 0];
  for (const [fromA, toA, fromB, toB] of [...hunks, [sizeA, sizeA, sizeB, sizeB]]) {
    const isFirst = rows.length === 0;
    const isLast = fromA === sizeA && fromB === sizeB && fromA === toA && fromB === toB;
    rows.push(...sameRows(a, b, fromA - a, isFirst ? 0 : AROUND, isLast ? 0 : AROUND));
    for (let place = 0; place < Math.max(toA - fromA, toB - fromB); place++) {
      rows.push({ a: fromA + place < toA ? fromA + place : null, b: fromB + place < toB ? fromB + place : null, isSame: false });
    }
    [a, b] = [toA, toB];
  }
  return rows;
}

/** @param {number} a @param {number} b @param {number} count @param {number} head lines that are kept @param {number} tail @returns {(Row | number)[]} */
function sameRows(a, b, count, head, tail) {
  const line = (/** @type {number} */ place) => ({ a: a + place, b: b + place, isSame: true });
  const all = (/** @type {number} */ from, /** @type {number} */ to) => Array.from({ length: to - from }, (_, place) => line(from + place));
  if (count <= head + tail + 1) return all(0, count);
  return [...all(0, head), count - head - tail, ...all(count - tail, count)];
}

/** @param {{before: string, after: string, names: unknown[]}} props */
export function TextDifference({ before, after, names }) {
  const { a, b, hunks } = useMemo(() => compareLines(before, after), [before, after]);
  const rows = useMemo(() => rowsOf(hunks, a.length, b.length), [hunks]);
  const [limit, setLimit] = useState(SHOWN);
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${words.diff.text}><table class="text-diff">
      <thead class="seen-only-by-readers"><tr><th>${words.diff.line}</th><th>${names[0]}</th><th>${words.diff.line}</th><th>${names[1]}</th></tr></thead>
      <tbody>${rows.slice(0, limit).map((row) =>
        typeof row === "number" ? html`<tr><td colspan="4" class="quiet left-out">${words.diff.leftOut(row)}</td></tr>` : html`<${Lines} a=${a} b=${b} row=${row} />`,
      )}</tbody></table></div>
    ${rows.length > limit ? html`<button class="plain" onClick=${() => setLimit(limit + SHOWN)}>${words.execution.more(rows.length - limit)}</button>` : null}`;
}

/** @param {{a: string[], b: string[], row: Row}} props */
function Lines({ a, b, row }) {
  const [left, right] = [row.a === null ? null : a[row.a], row.b === null ? null : b[row.b]];
  const isPair = !row.isSame && left !== null && right !== null;
  const parts = isPair ? marked(left, right) : [cut(left), cut(right)];
  return html`<tr>
    <td class="num quiet">${row.a === null ? "" : row.a + 1}</td><td class=${row.isSame || left === null ? "" : "removed"}>${row.isSame || left === null ? null : html`<span class="seen-only-by-readers">${words.diff.removed} </span>`}${parts[0]}</td>
    <td class="num quiet">${row.b === null ? "" : row.b + 1}</td><td class=${row.isSame || right === null ? "" : "added"}>${row.isSame || right === null ? null : html`<span class="seen-only-by-readers">${words.diff.added} </span>`}${parts[1]}</td></tr>`;
}

/** A line, or its beginning where it is so long that a browser would take minutes to break it. @param {string | null} text */
function cut(text) {
  if (text === null) return null;
  return text.length <= LONGEST ? visible(text) : `${visible(text.slice(0, LONGEST))} … ${words.diff.cut(text.length - LONGEST)}`;
}

/** Two lines with the words marked that differ. @param {string} before @param {string} after */
function marked(before, after) {
  const { a, b, hunks } = compareWords(before, after);
  return [parted(a, hunks.map(([from, to]) => [from, to])), parted(b, hunks.map(([, , from, to]) => [from, to]))];
}

/** @param {string[]} parts @param {number[][]} ranges */
function parted(parts, ranges) {
  let at = 0;
  const marks = ranges.flatMap(([from, to]) => {
    const before = visible(parts.slice(at, from).join(""));
    at = to;
    return [before, from < to ? html`<mark>${cut(parts.slice(from, to).join(""))}</mark>` : null];
  });
  return [...marks, visible(parts.slice(at).join(""))];
}
