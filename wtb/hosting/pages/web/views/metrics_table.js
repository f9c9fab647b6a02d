/** All metrics of the rows at a glance: each mean with its difference from the baseline, shaded within its column. */
import { count, duration, figure, labelsOf, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { factorsOf, isBaseline, standing } from "../lib/matrix_view.js";
import { reportWords as texts } from "../lib/report_words.js";
import { words } from "../lib/words.js";
import { Difference } from "./intervals.js";

const MONEY = /** @type {const} */ (["cost_usd", "cost_failed_usd", "cost_per_success_usd", "cost_innocent_usd"]);

/** @param {{matrix: any, order: number[]}} props */
export function MetricsTable({ matrix, order }) {
  const metrics = Object.entries(matrix.metrics);
  const factors = factorsOf(matrix);
  const rows = order.map((number) => matrix.rows[number]);
  const columns = words.sweep.columns;
  const hasLost = rows.some((row) => row.cost_failed_usd);
  const money = MONEY.filter((key) => (key === "cost_per_success_usd" ? hasLost : rows.some((row) => row[key]) && (key !== "cost_usd" || !("cost" in matrix.metrics))));
  const costliest = new Map(money.map((key) => [key, Math.max(...rows.map((row) => row[key] ?? 0))]));
  const shades = new Map(metrics.map(([name, { better }]) => [name, shading(rows.map((row) => row.metrics[name]?.mean), better)]));
  const hasFailures = rows.some((row) => row.failed);
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${texts.allMetrics}><table class="metrics">
    <thead><tr><th class="num">#</th>${factors.map((factor) => html`<th>${factor}</th>`)}<th></th>${metrics.map(([name, { better }]) => html`<th class="num">${name} ${better === "lower" ? "↓" : "↑"}</th>`)}
      ${hasFailures ? html`<th class="num">${columns.failed}</th>` : null}${money.map((key) => html`<th class="num">${texts.money[key]}</th>`)}<th class="num">${columns.p50}</th><th class="num">${texts.cells}</th></tr></thead>
    <tbody>${rows.map((row, place) => {
      const labels = labelsOf(row.combination);
      return html`<tr key=${order[place]}><td class="num quiet">${order[place]}</td>${factors.map((factor) => html`<td class="name">${labels[factor]}</td>`)}<td>${isBaseline(matrix, row) ? html`<span class="tag">${words.sweep.baseline}</span>` : null}</td>
        ${metrics.map(([name, { better }]) => {
          const estimate = row.metrics[name];
          const stands = standing(row, matrix.best[name]);
          const mark = stands === "best" ? "★ " : stands === "leads" || stands === "couldBeBest" ? "☆ " : "";
          return html`<td class="num shaded" style=${{ "--share": shades.get(name)?.(estimate?.mean) ?? 0 }}>${mark}${figure(estimate?.mean)}${estimate && !isBaseline(matrix, row) && estimate.delta !== null ? html` <small><${Difference} estimate=${estimate} better=${better} /></small>` : null}</td>`;
        })}
        ${hasFailures ? html`<td class="num">${row.failed ? html`<span class="bad">${count(row.failed)}</span>` : ""}</td>` : null}${money.map((key) => html`<td class="num">${usd(row[key], costliest.get(key))}</td>`)}
        <td class="num" title=${texts.p95(duration(row.latency_s.p95))}>${duration(row.latency_s.p50)}</td><td class="num">${count(row.n)}</td></tr>`;
    })}</tbody></table></div>
    <p class="quiet">${metrics.length ? texts.allMetricsLegend : ""} ${money.map((key) => texts.moneyLegend[key]).join(" ")}</p>`;
}

/** How good a mean is among others, from 0 to 100. @param {(number | null | undefined)[]} means @param {string} better @returns {(mean: number | null | undefined) => number} */
function shading(means, better) {
  const measured = /** @type {number[]} */ (means.filter(Number.isFinite));
  const [low, high] = [Math.min(...measured), Math.max(...measured)];
  return (mean) => (!Number.isFinite(mean) || low === high ? 0 : Math.round((100 * (better === "lower" ? high - Number(mean) : Number(mean) - low)) / (high - low)));
}
