/** The means of rows by one metric and their differences from the baseline, each drawn on its 95% interval. */
import { shortNames } from "../lib/combinations.js";
import { difference, figure, probability } from "../lib/format.js";
import { html } from "../lib/html.js";
import { isBaseline, standing } from "../lib/matrix_view.js";
import { reportWords as texts } from "../lib/report_words.js";
import { words } from "../lib/words.js";
import { Interval, scaleOf } from "./intervals.js";

const OPEN = 24; // rows that are open to see; the others fold

/** @param {{matrix: any, metric: string, order: number[]}} props */
export function IntervalsTable({ matrix, metric, order }) {
  const names = shortNames(matrix.rows.map((/** @type {any} */ row) => row.combination));
  const scored = order.filter((number) => Number.isFinite(matrix.rows[number].metrics[metric]?.mean));
  if (!scored.length) return html`<p class="quiet">${texts.notScored(metric)}</p>`;
  const estimateOf = (/** @type {number} */ number) => matrix.rows[number].metrics[metric];
  const isBase = (/** @type {number} */ number) => isBaseline(matrix, matrix.rows[number]);
  const base = scored.find(isBase);
  const deltas = new Map(scored.map((number) => [number, { mean: isBase(number) ? null : estimateOf(number).delta, ci: estimateOf(number).delta_ci }]));
  const hasDeltas = [...deltas.values()].some((delta) => Number.isFinite(delta.mean));
  const [means, changes] = [scaleOf(scored.map(estimateOf)), scaleOf([...deltas.values(), { mean: 0 }])];
  const table = (/** @type {number[]} */ rows) => html`<div class="scroll" tabindex="0"><table class="drawn"><thead><tr><th>${words.price.combination}</th><th>${words.sweep.columns.mean}</th><th class="num">${words.sweep.columns.ci}</th>${hasDeltas ? html`<th>${texts.difference}</th><th class="num">${words.sweep.columns.ci}</th><th class="num">${words.sweep.columns.p}</th>` : null}</tr></thead>
    <tbody>${rows.map((number) => {
      const estimate = estimateOf(number);
      const delta = deltas.get(number);
      const stands = standing(matrix.rows[number], matrix.best[metric]);
      return html`<tr key=${number}><td class="name">${stands === "best" ? "★ " : stands === "leads" || stands === "couldBeBest" ? "☆ " : ""}${names[number]}${isBase(number) ? html` <span class="tag">${words.sweep.baseline}</span>` : null}</td>
        <td><${Interval} estimate=${estimate} scale=${means} baseline=${base === undefined ? undefined : estimateOf(base).mean} /></td><td class="num">${figure(estimate.mean)} <small class="quiet">${span(estimate.ci, figure)}</small></td>
        ${hasDeltas ? html`<td>${Number.isFinite(delta?.mean) ? html`<${Interval} estimate=${delta} scale=${changes} baseline=${0} />` : null}</td><td class="num">${Number.isFinite(delta?.mean) ? html`${difference(delta?.mean)} <small class="quiet">${span(delta?.ci, difference)}</small>` : ""}</td><td class="num">${isBase(number) ? "" : probability(estimate.p_adjusted)}</td>` : null}</tr>`;
    })}</tbody></table></div>`;
  return html`${table(scored.slice(0, OPEN))}
    ${scored.length > OPEN ? html`<details><summary>${texts.moreCombinations(scored.length - OPEN)}</summary>${table(scored.slice(OPEN))}</details>` : null}
    ${order.length > scored.length ? html`<p class="quiet">${texts.noScore(order.length - scored.length)}</p>` : null}`;
}

/** @param {number[] | null} ci @param {(amount: number) => string} show */
const span = (ci, show) => (ci ? words.people.interval(show(ci[0]), show(ci[1])) : "");
