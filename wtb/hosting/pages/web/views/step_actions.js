/** What can be tried from the checkpoint before a step: go back there, or go on from there otherwise, for one case or all. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, getWritten, may, post, Problem, segment } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { parametersOf } from "../lib/parameters.js";
import { useResource, Waiting } from "../lib/resource.js";
import { navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { changesOf, ParameterFields, StateFields, VariantFields, variantsOf } from "./changes.js";

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
  const changed = Object.entries(state.changed).map(([key, /** @type {any} */ change]) => [key, change.a]);
  return { ...Object.fromEntries([...same, ...changed]), ...state.only_a };
}

/** What may be chosen. description: of the workflow as workers publish it; null where none does. definedVariants: what the sweep made of registered variants, by node and name. @typedef {{variants: Record<string, string[]>, description: any, definedVariants: Record<string, Record<string, {of: string | null, params: Record<string, unknown>}>>}} Known */

/** Variants by node: those that workers publish of its workflow, else the variants that the sweep has. @param {Origin} origin @param {AbortSignal} signal @returns {Promise<Known>} */
async function knownOf(origin, signal) {
  const { definition } = await getWritten(`/sweeps/${segment(origin.sweep.id)}`, signal);
  const definedVariants = definition.variants ?? {};
  try {
    const { description } = await getWritten(`/workflows/${segment(definition.workflow)}`, signal);
    const several = description.graph.nodes.filter((/** @type {any} */ node) => node.variants.length > 1);
    return { variants: Object.fromEntries(several.map((/** @type {any} */ node) => [node.name, node.variants.map((/** @type {any} */ variant) => variant.name)])), description, definedVariants };
  } catch (error) {
    if (error instanceof Problem) return { variants: definition.vary, description: null, definedVariants };
    throw error;
  }
}

/**
 * The parameters of each node under a variant of it.
 * @param {Known} known @param {Record<string, string>} variantByNode variants by node; of others it is the default
 * @returns {Record<string, import("../lib/parameters.js").Parameter[]>}
 */
function parametersUnder({ description, definedVariants }, variantByNode) {
  return Object.fromEntries((description?.graph.nodes ?? []).map((/** @type {any} */ node) => {
    const variant = variantByNode[node.name] || node.default;
    const own = definedVariants[node.name]?.[variant];
    const isKnown = (/** @type {string | null | undefined} */ name) => node.variants.some((/** @type {any} */ variant) => variant.name === name);
    const base = isKnown(own?.of) ? own.of : isKnown(variant) ? variant : node.default;
    return [node.name, parametersOf(description, node.name, base, own?.params)];
  }));
}

/** @param {{before: string, step: any, origin: Origin}} props */
function Fork({ before, step, origin }) {
  const resource = useResource((signal) => Promise.all([stateAt(before, origin, signal), knownOf(origin, signal)]), [before]);
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ ({}));
  const [variants, setVariants] = useState(/** @type {Record<string, string>} */ ({}));
  const [parameters, setParameters] = useState(/** @type {Record<string, Record<string, string>>} */ ({}));
  const { perform, problem, isBusy } = useAction();
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  const [state, published] = resource.data;
  const last = new Map(origin.path.map((visit) => [visit.node, visit.step])); // what ran before only cannot be changed from here on
  /** @template T @param {Record<string, T>} of @returns {Record<string, T>} */
  const following = (of) => Object.fromEntries(Object.entries(of).filter(([node]) => (last.get(node) ?? Infinity) >= step.step));
  const ran = Object.fromEntries(origin.path.map((visit) => [visit.node, visit.variant]));
  const picked = Object.fromEntries(Object.entries(variants).filter(([, name]) => name));
  const offered = parametersUnder(published, { ...ran, ...picked });
  const { [step.node]: own, ...otherParameters } = following(offered);
  const changedVariants = () => variantsOf(variants, parameters, offered);
  const hasChanges = () => Object.keys(picked).length > 0 || Object.values(parameters).some((of_node) => Object.keys(of_node).length);
  const canAdd = origin.sweep.kind === "sweep" && may("submit");
  const path = `/executions/${segment(origin.id)}`;
  const fork = () => perform(async () => navigate(`/executions/${segment((await post(`${path}/fork`, { at: before, variants: changedVariants(), ...changesOf(typed, state) })).execution)}`));
  const forAll = () => perform(async () => navigate(`/sweeps/${segment((await post(`${path}/row`, { at: before, variants: changedVariants() })).sweep)}`));
  return html`<form class="fields" onSubmit=${instead(fork)}>
    <p class="quiet">${words.steering.forkLegend}</p>
    <${ParameterFields} parameters=${own ? { [step.node]: own, ...otherParameters } : otherParameters} typed=${parameters} onChange=${setParameters} />
    <${VariantFields} vary=${following(published.variants)} picked=${variants} onChange=${setVariants} />
    <details><summary>${words.changes.state}</summary><div class="fields"><${StateFields} state=${state} typed=${typed} onChange=${setTyped} /></div></details>
    <${Refused} problem=${problem} />
    <div class="bar"><button class="main" disabled=${isBusy}>${words.steering.forkNow}</button>
      ${canAdd ? html`<button type="button" disabled=${isBusy || !hasChanges()} onClick=${forAll}>${words.steering.forkAll}</button>` : null}</div>
  </form>`;
}
