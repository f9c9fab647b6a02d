/** What can be done with a sweep or an execution as it stands: pause, resume, retry, cancel, and where it is to pause. */
import { Refused, useAction } from "../lib/action.js";
import { get, identity, may, post } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

/** By kind and status, as the commands have it. A sweep that neither workers nor this server run is continued where its code is. */
const VERBS = /** @type {Record<string, Record<string, string[]>>} */ ({
  sweep: { pending: ["cancel"], running: ["pause", "cancel"], paused: ["cancel"], failed: ["retry"], completed: ["retry"] },
  queued: { pending: ["pause", "cancel"], running: ["pause", "cancel"], paused: ["resume", "cancel"], failed: ["resume", "retry"], completed: ["retry"] },
  execution: { pending: ["pause", "cancel"], running: ["pause", "cancel"], waiting: ["pause", "cancel"], paused: ["resume", "cancel"], failed: ["retry"], cancelled: ["retry"] },
});

/** Whether who asks may run cells again here. @param {"sweep" | "queued" | "execution"} kind @param {number} failed how many could be */
export function mayRetry(kind, failed) {
  return may("steer") && failed > 0 && (kind !== "sweep" || Boolean(identity.value?.runs));
}

/**
 * @param {object} props
 * @param {"sweep" | "queued" | "execution"} props.kind
 * @param {string} props.path of it, below `/api/v1`
 * @param {string} props.status
 * @param {number} props.failed how many of its cells could be run again
 * @param {() => void} props.reload
 */
export function Steering({ kind, path, status, failed, reload }) {
  const { perform, problem, isBusy } = useAction(reload);
  if (!may("steer")) return null;
  const verbs = (VERBS[kind][status] ?? []).filter((verb) => verb !== "retry" || mayRetry(kind, failed));
  /** @param {string} verb */
  const ask = (verb) =>
    perform(async () => {
      const question = verb === "cancel" ? words.steering.confirmCancel(count((await get(`${path}/cancel`)).cells)) : verb === "retry" ? words.steering.confirmRetry(count(failed), failed === 1) : null;
      if (question === null || confirm(question)) await post(`${path}/${verb}`);
    });
  return html`<${Refused} problem=${problem} />
    ${verbs.map((verb) => html`<button key=${verb} disabled=${isBusy} onClick=${() => ask(verb)}>${words.steering.verbs[/** @type {"pause"} */ (verb)]}</button>`)}`;
}

/** @param {{path: string, breakpoints: string[], nodes: string[], reload: () => void}} props */
export function Breakpoints({ path, breakpoints, nodes, reload }) {
  const { perform, problem, isBusy } = useAction(reload);
  const [text, setText] = useState("");
  if (!may("steer")) return null;
  const change = (/** @type {Record<string, unknown>} */ changes) => perform(() => post(`${path}/breakpoints`, changes));
  /** @param {Event} event */
  async function add(event) {
    event.preventDefault();
    if (await change({ add: [text] })) setText("");
  }
  return html`<details class="breakpoints"><summary>${words.steering.breakpoints(breakpoints.length)}</summary>
    <p class="quiet">${words.steering.breakpointsLegend}</p>
    <ul>${breakpoints.map((breakpoint) => html`<li key=${breakpoint}><code>${breakpoint}</code> <button class="plain" disabled=${isBusy} onClick=${() => change({ remove: [breakpoint] })}>${words.steering.remove}<span class="seen-only-by-readers"> ${breakpoint}</span></button></li>`)}</ul>
    <form class="bar" onSubmit=${add}>
      <label>${words.steering.breakAt}<input list="nodes-to-break-at" required value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
      <datalist id="nodes-to-break-at">${nodes.map((node) => html`<option value=${`before ${node}`} />`)}</datalist>
      <button disabled=${isBusy}>${words.steering.add}</button>
    </form>
    <${Refused} problem=${problem} /></details>`;
}
