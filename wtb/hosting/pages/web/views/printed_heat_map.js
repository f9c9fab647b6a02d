/** The heat map on paper: all rows, as shapes that are sharp at every size. */
import { html } from "../lib/html.js";
import { css, rampOf, stepOf } from "../lib/score_colours.js";
import { words } from "../lib/words.js";

const ROW = 14;
const [LABELS, CELLS] = [200, 560]; // units across, of names and of cells
const WIDEST = 40;
const ROWS = 50; // of one picture, since a browser does not break a picture between pages
const LETTERS = 32; // of a name that fit
const [NUMBERS_FROM, LINES_FROM, LABEL] = [30, 5, 60]; // units of a cell, or of the name of a case

/**
 * @param {object} props
 * @param {import("../lib/columns.js").Columns} props.columns
 * @param {number[]} props.order the numbers of the combinations, from top to bottom
 * @param {string[]} props.names of the combinations, by number
 * @param {[number, number]} props.scale the scores at which colours end, the worse one first
 */
export function PrintedHeatMap({ columns, order, names, scale }) {
  const parts = Array.from({ length: Math.ceil(order.length / ROWS) }, (_, part) => order.slice(part * ROWS, (part + 1) * ROWS));
  const bin = Math.max(1, Math.ceil(columns.cases.length / CELLS));
  const cell = Math.min(WIDEST, CELLS / Math.max(1, Math.ceil(columns.cases.length / bin)));
  const ramp = rampOf("#ffffff").map(css);
  return html`${parts.map((rows) => html`<svg class="printed" viewBox=${`0 0 ${LABELS + CELLS} ${rows.length * ROW + ROW}`} role="img" aria-label=${words.matrix.label}>
    ${rows.map((number, line) => html`<text x="0" y=${line * ROW + 10}>${cut(names[number], LETTERS)}</text>${runsOf(columns, number, bin, scale, ramp).map((run) => html`<rect x=${LABELS + run.from * cell} y=${line * ROW} width=${(run.to - run.from) * cell - (cell >= LINES_FROM ? 0.5 : 0)} height=${ROW - 0.5} style=${{ fill: run.fill }} />
      ${cell >= NUMBERS_FROM && run.score !== null ? html`<text x=${LABELS + (run.from + 0.5) * cell} y=${line * ROW + 10} text-anchor="middle">${run.score.toFixed(2)}</text>` : null}`)}`)}
    ${labelled(columns.cases, cell / bin).map(({ column, room }) => html`<text class="tick" x=${LABELS + (column * cell) / bin} y=${rows.length * ROW + 10}>${cut(columns.cases[column], room)}</text>`)}
  </svg>`)}<p class="quiet">${columns.metric ?? words.matrix.score}: ${scale[0].toPrecision(3)} <span style=${{ background: `linear-gradient(90deg, ${ramp.filter((_, step) => step % 16 === 0).join(", ")})` }} class="printed-scale"></span> ${scale[1].toPrecision(3)}${bin > 1 ? `, ${words.matrix.bins(bin)}` : ""}</p>`;
}

/** @typedef {{from: number, to: number, fill: string, score: number | null}} Run */

/** A row as runs of cells of the same colour; each cell by itself where there is room for lines. @param {import("../lib/columns.js").Columns} columns @param {number} row @param {number} bin @param {[number, number]} scale @param {string[]} ramp @returns {Run[]} */
function runsOf({ cases, repeats, score, status, statuses }, row, bin, scale, ramp) {
  const runs = /** @type {Run[]} */ ([]);
  const isMerged = CELLS / Math.ceil(cases.length / bin) < LINES_FROM;
  for (let place = 0; place * bin < cases.length; place++) {
    const [start, end] = [place * bin, Math.min(cases.length, (place + 1) * bin)].map((column) => (row * cases.length + column) * repeats);
    const scores = Array.from(score.subarray(start, end)).filter((score) => !Number.isNaN(score));
    const mean = scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
    const state = status.subarray(start, end).findLast((code) => code !== 255);
    if (mean === null && state === undefined) continue;
    const name = statuses[state ?? 0];
    const fill = mean === null ? `var(--c-${name}, var(--s-${name}, var(--s-pending)))` : ramp[stepOf(mean, scale, ramp.length)];
    const last = runs.at(-1);
    if (isMerged && last?.to === place && last.fill === fill) last.to++;
    else runs.push({ from: place, to: place + 1, fill, score: mean });
  }
  return runs;
}

/** Which cases are named, and how many letters of them fit. @param {string[]} cases @param {number} width of a case */
function labelled(cases, width) {
  const step = Math.max(1, Math.ceil(LABEL / width));
  return cases.flatMap((_, column) => (column % step ? [] : [{ column, room: Math.floor((step * width) / 6) }]));
}

/** @param {string} text @param {number} limit */
const cut = (text, limit) => (text.length <= limit ? text : `${text.slice(0, Math.max(1, limit - 1))}…`);
