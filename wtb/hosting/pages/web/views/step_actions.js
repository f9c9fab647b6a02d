/** What can be tried from the checkpoint before a step: go back there, or go on from there otherwise, for one case or all. */
import { Refused, useAction } from "../lib/action.js";
import { get, may, post, Problem, segment } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { changesOf, StateFields, VariantFields } from "./changes.js";

/** An execution, with its steps and the state at its head. @typedef {{id: string, sweep: {id: string, kind: string}, path: any[], state: Record<string, unknown>, reload: () => void}} Origin */

/** @param {{before: string, step: any, origin: Origin}} props */
export function StepActions({ before, step, origin }) {
  const { perform, problem, isBusy } = useAction(origin.reload);
  const [isForking, setForking] = useState(false);
  const rollBack = () => confirm(words.steering.confirmRollback(step.node)) && perform(() => post(`/executions/${segment(origin.id)}/rollback`, { to: before }));
  return html`<div class="bar">
      <button disabled=${isBusy} onClick=${rollBack}>${words.steering.rollBack}</button>
      <button aria-expanded=${isForking} onClick=${() => setForking(!isForking)}>${words.steering.fork}</button>
    </div>
    <${Refused} problem=${problem} />
    ${isForking ? html`<${Fork} before=${before} step=${step} origin=${origin} />` : null}`;
}

/** @param {string} checkpoint on the line of an execution @param {Origin} origin @param {AbortSignal} signal */
async function stateAt(checkpoint, origin, signal) {
  const { state } = await get(`/executions/${segment(checkpoint)}/diff/${segment(origin.id)}`, {}, signal);
  const same = state.same.map((/** @type {string} */ key) => [key, origin.state[key]]);
  const changed = Object.entries(state.changed).map(([key, /** @type {any} */ one]) => [key, one.a]);
  return { ...Object.fromEntries([...same, ...changed]), ...state.only_a };
}

/**
 * Variants by node: those that workers publish of its workflow, else those that the sweep has.
 * @param {Origin} origin @param {AbortSignal} signal @returns {Promise<Record<string, string[]>>}
 */
async function variantsOf(origin, signal) {
  const { definition } = await get(`/sweeps/${segment(origin.sweep.id)}`, {}, signal);
  try {
    const { description } = await get(`/workflows/${segment(definition.workflow)}`, {}, signal);
    const nodes = description.graph.nodes.filter((/** @type {any} */ node) => node.variants.length > 1);
    return Object.fromEntries(nodes.map((/** @type {any} */ node) => [node.name, node.variants.map((/** @type {any} */ one) => one.name)]));
  } catch (error) {
    if (error instanceof Problem) return definition.vary;
    throw error;
  }
}

/** @param {{before: string, step: any, origin: Origin}} props */
function Fork({ before, step, origin }) {
  const found = useResource((signal) => Promise.all([stateAt(before, origin, signal), variantsOf(origin, signal)]), [before]);
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ ({}));
  const [variants, setVariants] = useState(/** @type {Record<string, string>} */ ({}));
  const { perform, problem, isBusy } = useAction();
  if (!found.data) return html`<${Waiting} resource=${found} />`;
  const [state, known] = found.data;
  const last = new Map(origin.path.map((one) => [one.node, one.step])); // what ran before only cannot be changed from here on
  const vary = Object.fromEntries(Object.entries(known).filter(([node]) => (last.get(node) ?? Infinity) >= step.step));
  const chosen = Object.fromEntries(Object.entries(variants).filter(([, name]) => name));
  const path = `/executions/${segment(origin.id)}`;
  const fork = () => perform(async () => navigate(`/executions/${segment((await post(`${path}/fork`, { at: before, variants: chosen, ...changesOf(typed, state) })).execution)}`));
  const forAll = () => perform(async () => navigate(`/sweeps/${segment((await post(`${path}/row`, { at: before, variants: chosen })).sweep)}`));
  return html`<form class="fields" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); fork(); }}>
    <p class="quiet">${words.steering.forkLegend}</p>
    <${VariantFields} vary=${vary} chosen=${variants} onChange=${setVariants} />
    <${StateFields} state=${state} typed=${typed} onChange=${setTyped} />
    <${Refused} problem=${problem} />
    <div class="bar"><button class="main" disabled=${isBusy}>${words.steering.forkNow}</button>
      ${origin.sweep.kind === "sweep" && may("submit") ? html`<button type="button" disabled=${isBusy || !Object.keys(chosen).length} onClick=${forAll}>${words.steering.forkAll}</button>` : null}</div>
  </form>`;
}
