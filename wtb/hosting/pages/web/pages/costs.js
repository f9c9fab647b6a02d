/** What was spent, for what, and what may still be. */
import { get, segment } from "../lib/api.js";
import { count, duration, largestOf, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";

const BY = ["model", "node", "sweep", "workflow", "project", "session", "tool"];

export function CostsPage() {
  const { by = "model" } = address.value.query;
  const costs = useResource((signal) => get("/costs", { by }, signal), [by]);
  const budgets = useResource((signal) => get("/budgets", {}, signal), [], 10_000);
  const rows = costs.data?.rows ?? [];
  const isByTool = by === "tool";
  const columns = isByTool ? words.costs.toolColumns : words.costs.columns;
  const dearest = largestOf(rows.map((/** @type {any} */ row) => row.usd));
  return html`<div class="head"><h1>${words.costs.title}</h1></div>
    <h2>${words.costs.budgets}</h2>
    <${Waiting} resource=${budgets} />
    ${budgets.data && !budgets.data.budgets.length ? html`<${Empty} text=${words.costs.noBudgets} help="costs"><${Link} class="button" to="/sessions">${words.costs.setBudget}<//><//>` : null}
    ${budgets.data?.budgets.length
      ? html`<div class="scroll" tabindex="0"><table><tbody>${budgets.data.budgets.map(
          (/** @type {any} */ budget) => html`<tr><td>${budget.scope} <b>${budget.name}</b> ${budget.kind}</td><td class="num">${budget.kind === "usd" ? usd(budget.spent, budget.most) : count(budget.spent)} / ${budget.kind === "usd" ? usd(budget.most) : count(budget.most)}</td>
            <td><div class="progress" role="img" aria-label=${`${Math.round((100 * budget.spent) / budget.most)}%`}><i class=${budget.spent >= budget.most ? "failed" : "succeeded"} style=${{ width: `${Math.min(100, (100 * budget.spent) / budget.most)}%` }}></i></div></td></tr>`,
        )}</tbody></table></div>`
      : null}
    <h2>${words.costs.spent}</h2>
    <div class="bar"><label>${words.costs.by}<select value=${by} onChange=${(/** @type {any} */ event) => look({ by: event.target.value })}>${BY.map((kind) => html`<option value=${kind}>${words.costs.kinds[/** @type {"model"} */ (kind)]}</option>`)}</select></label></div>
    ${budgets.error ? null : html`<${Waiting} resource=${costs} />`}
    ${costs.data && !rows.length ? html`<${Empty} text=${isByTool ? words.costs.noTools : words.costs.nothing} help="costs"><${Link} class="button" to="/">${words.costs.toSweeps}<//><//>` : null}
    ${rows.length
      ? html`<div class="scroll" tabindex="0"><table><thead><tr><th>${words.costs.kinds[/** @type {"model"} */ (by)]}</th>${Object.values(columns).map((name) => html`<th class="num">${name}</th>`)}</tr></thead>
          <tbody>${rows.map((/** @type {any} */ row) => html`<tr><td class="name">${by === "sweep" ? html`<${Link} to=${`/sweeps/${segment(row.sweep)}`}>${row.sweep_name}<//>` : row[by] ?? words.none}</td>${(isByTool ? ofTool(row, dearest) : ofOther(row, dearest)).map((figure) => html`<td class="num">${figure}</td>`)}</tr>`)}</tbody></table></div>`
      : null}`;
}

/** @param {any} row @param {number} dearest */
const ofOther = (row, dearest) => [usd(row.usd, dearest), count(row.tokens_in), count(row.tokens_out), count(row.calls), count(row.attempts)];

/** @param {any} row @param {number} dearest */
function ofTool(row, dearest) {
  return [count(row.calls), count(row.failed_calls), count(row.reversed_calls), duration(row.duration_s), usd(row.usd, dearest)];
}
