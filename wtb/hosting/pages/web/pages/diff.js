/** Two executions: the first step at which they part, and in what their states and files differ. */
import { get, segment } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Value } from "../views/value.js";

/** @param {{parts: string[]}} props */
export function DiffPage({ parts: [a, b] }) {
  const resource = useResource((signal) => get(`/executions/${segment(a)}/diff/${segment(b)}`, {}, signal), [a, b]);
  const found = resource.data;
  if (!found) return html`<h1>${words.diff.title}</h1><${Waiting} resource=${resource} />`;
  const { divergence, files } = found;
  return html`<div class="head"><h1>${words.diff.title}</h1></div>
    <p class="answer">${divergence ? words.diff.parts(divergence.step, words.diff.why[/** @type {"path"} */ (divergence.why)] ?? divergence.why) : words.diff.same}</p>
    <p class="quiet">${words.diff.shared(found.shared_steps)}</p>
    <h2>${words.execution.state}</h2><${States} state=${found.state} a=${a} b=${b} />
    ${files?.length
      ? html`<h2>${words.diff.files}</h2><div class="scroll"><table><tbody>${files.map((/** @type {any} */ one) => html`<tr><td class="name mono">${one.path}</td><td>${one.kind}</td><td class="num">${count(one.a)}</td><td class="num">${count(one.b)}</td></tr>`)}</tbody></table></div>`
      : null}`;
}

/** @param {{state: any, a: string, b: string}} props */
function States({ state, a, b }) {
  const rows = [
    ...Object.entries(state.changed).map(([key, /** @type {any} */ one]) => [key, html`<${Value} value=${one.a} />`, html`<${Value} value=${one.b} />`]),
    ...Object.entries(state.only_a).map(([key, value]) => [key, html`<${Value} value=${value} />`, words.none]),
    ...Object.entries(state.only_b).map(([key, value]) => [key, words.none, html`<${Value} value=${value} />`]),
  ];
  if (!rows.length) return html`<p class="quiet">${words.diff.sameState}</p>`;
  return html`<div class="scroll"><table>
      <thead><tr><th>${words.diff.key}</th>${[a, b].map((id) => html`<th><${Link} class="mono" to=${`/executions/${segment(id)}`}>${id}<//></th>`)}</tr></thead>
      <tbody>${rows.map(([key, before, after]) => html`<tr><td class="name mono">${key}</td><td>${before}</td><td>${after}</td></tr>`)}</tbody></table></div>
    ${state.same.length ? html`<p class="quiet">${words.diff.unchanged(state.same.join(", "))}</p>` : null}`;
}
