/** Two executions: the first step at which they part, and in what their states and files differ. */
import { get, segment } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Difference } from "../views/state_difference.js";

/** @param {{parts: string[]}} props */
export function DiffPage({ parts: [a, b] }) {
  const resource = useResource((signal) => get(`/executions/${segment(a)}/diff/${segment(b)}`, {}, signal), [a, b]);
  const found = resource.data;
  if (!found) return html`<h1>${words.diff.title}</h1><${Waiting} resource=${resource} />`;
  const { divergence } = found;
  return html`<div class="head"><h1>${words.diff.title}</h1></div>
    <p class="answer">${divergence ? words.diff.parts(divergence.step, words.diff.why[/** @type {"path"} */ (divergence.why)] ?? divergence.why) : words.diff.same}</p>
    <p class="quiet">${words.diff.shared(found.shared_steps)}</p>
    <h2>${words.execution.state}</h2>
    <${Difference} found=${found} names=${[a, b].map((id) => html`<${Link} class="mono" to=${`/executions/${segment(id)}`}>${id}<//>`)} />`;
}
