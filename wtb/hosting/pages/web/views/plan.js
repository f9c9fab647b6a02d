/** What a sweep would run, what that may cost, and what other repeats would. */
import { get } from "../lib/api.js";
import { count, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource } from "../lib/resource.js";
import { words } from "../lib/words.js";

const REPEATS = [1, 2, 3, 5, 10];

/** The least and the most; null where there is no bound. @typedef {[number, number | null]} Bounds */

/** @param {{plan: any, workflow: string, onRepeats: (repeats: number) => void}} props */
export function PlanView({ plan, workflow, onRepeats }) {
  const spent = useResource((signal) => get("/costs", { by: ["workflow", "node"] }, signal), [workflow]);
  const { executed, unshared } = plan.node_runs;
  const cost = priceOf(plan, (spent.data?.rows ?? []).filter((/** @type {any} */ row) => row.workflow === workflow));
  const choices = [...new Set([...REPEATS, plan.repeats])].sort((a, b) => a - b);
  const times = (/** @type {Bounds} */ [least, largest], /** @type {number} */ repeats) => /** @type {Bounds} */ ([(least / plan.repeats) * repeats, largest === null ? null : (largest / plan.repeats) * repeats]);
  return html`<section class="notice" role="status"><p>${words.submit.size(count(plan.combinations), count(plan.cases), count(plan.repeats), count(plan.cells))}</p>
    <p>${words.submit.nodeRuns(range(executed, count), range(unshared, count))}</p>
    <p>${cost ? words.submit.price(range(cost.usd, usd), count(cost.attempts)) : words.submit.noHistory}</p>
    <p>${plan.limits.usd ? words.submit.most(usd(plan.limits.usd)) : words.submit.noPrice}</p>
    ${(plan.notes ?? []).map((/** @type {string} */ note) => html`<p>${note}</p>`)}
    <table><caption>${words.submit.whatIf}</caption>
      <thead><tr><th>${words.submit.repeatsColumn}</th><th class="num">${words.sweeps.columns.progress}</th><th class="num">${words.tree.nodeRuns}</th>${cost ? html`<th class="num">${words.submit.about}</th>` : null}<th></th></tr></thead>
      <tbody>${choices.map(
        (repeats) => html`<tr class=${repeats === plan.repeats ? "chosen" : ""}><td>${repeats}</td><td class="num">${count((plan.cells / plan.repeats) * repeats)}</td><td class="num">${range(times(executed, repeats), count)}</td>
          ${cost ? html`<td class="num">${range(times(cost.usd, repeats), usd)}</td>` : null}<td>${repeats === plan.repeats ? words.submit.planned : html`<button type="button" class="plain" onClick=${() => onRepeats(repeats)}>${words.submit.take(repeats)}</button>`}</td></tr>`,
      )}</tbody></table></section>`;
}

/** By what attempts of each node cost so far; null where one of them never ran. @param {any} plan @param {any[]} rows of costs @returns {{usd: Bounds, attempts: number} | null} */
function priceOf(plan, rows) {
  const nodes = Object.entries(plan.node_runs.by_node);
  const byNode = new Map(rows.filter((row) => row.attempts).map((row) => [row.node, row]));
  if (!nodes.length || nodes.some(([name]) => !byNode.has(name))) return null;
  const usdOf = (/** @type {0 | 1} */ end) => nodes.reduce((/** @type {number | null} */ sum, [name, /** @type {any} */ node]) => (sum === null || node.executed[end] === null ? null : sum + (node.executed[end] * byNode.get(name).usd) / byNode.get(name).attempts), 0);
  return { usd: [usdOf(0) ?? 0, usdOf(1)], attempts: nodes.reduce((sum, [name]) => sum + byNode.get(name).attempts, 0) };
}

/** @param {Bounds} bounds @param {(amount: number) => string} show */
function range([least, largest], show) {
  if (largest === null) return words.submit.atLeast(show(least));
  return least === largest ? show(largest) : `${show(least)} – ${show(largest)}`;
}
