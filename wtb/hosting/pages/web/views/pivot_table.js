/** A figure by two factors: lines and columns are levels, cells are coloured means that lead to their rows. */
import { duration, figure, largestOf, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { pivotOf, whereText } from "../lib/matrix_view.js";
import { matrixWords as texts } from "../lib/matrix_words.js";
import { addressWith, Link } from "../lib/router.js";
import { words } from "../lib/words.js";

/** @param {{matrix: any, metric: string, rows: number[], view: import("../lib/matrix_view.js").View}} props */
export function PivotTable({ matrix, metric, rows, view }) {
  if (!rows.length) return null;
  const pivot = pivotOf(matrix, rows, view.pivot, metric);
  const cells = pivot.cells.flat();
  const means = /** @type {number[]} */ (cells.map((cell) => cell.mean).filter((mean) => mean !== null));
  const counts = [...new Set(cells.filter((cell) => cell.rows.length).map((cell) => cell.rows.length))];
  const leftOut = cells.reduce((sum, cell) => sum + cell.left_out.length, 0);
  const show = showing(matrix, metric, means);
  const isHighBest = matrix.metrics[metric]?.better === "higher";
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const share = (/** @type {number} */ mean) => Math.round((100 * (isHighBest ? mean - low : high - mean)) / (high - low || 1));
  const name = metric in matrix.metrics ? `${metric} ${isHighBest ? "↑" : "↓"}` : texts[/** @type {"cost"} */ (metric)];
  const [ofLines, ofColumns] = pivot.factors;
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${texts.caption(name, pivot.factors, counts)}><table class="pivot">
    <thead>${ofColumns ? html`<tr><td></td><th scope="colgroup" colspan=${pivot.columns.length}>${ofColumns}</th></tr>` : null}
      <tr><th>${ofLines}</th>${pivot.columns.map((level) => html`<th scope="col" class="level">${ofColumns ? named(level) : name}</th>`)}</tr></thead>
    <tbody>${pivot.lines.map((line, place) => html`<tr><th scope="row" class="level">${named(line)}</th>
      ${pivot.cells[place].map((cell, column) => html`<${Cell} cell=${cell} show=${show} isCounted=${counts.length > 1} share=${cell.mean === null ? null : share(cell.mean)} levels=${levelsAt(pivot, place, column)} view=${view} />`)}</tr>`)}</tbody>
  </table></div>
  <p class="quiet">${texts.caption(name, pivot.factors, counts)} ${cells.some((cell) => cell.ci) ? texts.intervals : ""} ${texts.colours}</p>
  ${pivot.balanced ? null : html`<p class="notice">${texts.unbalanced}</p>`}
  ${leftOut ? html`<p class="quiet">${texts.leftOut(leftOut)}</p>` : null}`;
}

/** @param {string | null} level */
const named = (level) => level ?? texts.without;

/** The levels of a cell by factor. @param {import("../lib/matrix_view.js").Pivot} pivot @param {number} line @param {number} column @returns {[string, string | null][]} */
const levelsAt = (pivot, line, column) => pivot.factors.map((factor, place) => [factor, place ? pivot.columns[column] : pivot.lines[line]]);

/** How a figure is written. @param {any} matrix @param {string} metric @param {number[]} means @returns {(amount: number | null) => string} */
function showing(matrix, metric, means) {
  if (metric in matrix.metrics) return figure;
  return metric === "cost" ? (amount) => usd(amount, largestOf(means)) : duration;
}

/** @param {{cell: import("../lib/matrix_view.js").PivotCell, show: (amount: number | null) => string, isCounted: boolean, share: number | null, levels: [string, string | null][], view: import("../lib/matrix_view.js").View}} props */
function Cell({ cell, show, isCounted, share, levels, view }) {
  if (cell.mean === null) return html`<td class="quiet">${cell.left_out.length ? texts.cellLeftOut : words.unknown}</td>`;
  const filtered = levels.filter(([, level]) => level !== null);
  const where = new Map([...view.where, .../** @type {[string, string[]][]} */ (filtered.map(([factor, level]) => [factor, [level]]))]);
  const label = texts.showRows(show(cell.mean), levels.map(([factor, level]) => `${factor}=${named(level)}`).join(", "));
  return html`<td style=${{ "--share": String(share) }}>
    <${Link} to=${addressWith({ pivot: null, where: whereText(where, view.together) })} aria-label=${label}>${show(cell.mean)}<//>
    ${cell.ci ? html`<small>${texts.range(show(cell.ci[0]), show(cell.ci[1]))}</small>` : null}
    ${isCounted ? html`<small>${texts.combinations(cell.rows.length)}</small>` : null}</td>`;
}
