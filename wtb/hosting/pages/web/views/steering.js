/** What can be done with a sweep or an execution as it stands: pause, resume, retry, cancel, and where it is to pause. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, identity, may, post, segment } from "../lib/api.js";
import { combination, count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { isBaseline } from "../lib/matrix_view.js";
import { words } from "../lib/words.js";

/** By kind and status, as the commands have it. A sweep that neither workers nor this server run is continued where its code is. */
const VERBS = /** @type {Record<string, Record<string, string[]>>} */ ({
  sweep: { pending: ["cancel"], running: ["pause", "cancel"], paused: ["cancel"], failed: ["retry"], completed: ["retry"] },
  queued: { pending: ["pause", "cancel"], running: ["pause", "cancel"], paused: ["resume", "cancel"], failed: ["resume", "retry"], completed: ["retry"] },
  execution: { pending: ["pause", "cancel"], running: ["pause", "cancel"], waiting: ["pause", "cancel"], paused: ["resume", "cancel"], failed: ["retry"], cancelled: ["retry"] },
});

/** Whether who asks may run cells again here. @param {"sweep" | "queued" | "execution"} kind @param {number} failed how many could be */
export const mayRetry = (kind, failed) => may("steer") && failed > 0 && (kind !== "sweep" || Boolean(identity.value?.runs));

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
  const add = instead(async () => (await change({ add: [text] })) && setText(""));
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

const STOPPABLE = ["pending", "running", "paused"];

/** Stopping one combination of a sweep that has not ended: the others go on. @param {{matrix: any, nodes: string[]}} props */
export function StopRow({ matrix, nodes }) {
  const [selected, setSelected] = useState("");
  const { perform, problem, isBusy } = useAction(() => setSelected(""));
  const rows = matrix.rows.filter((/** @type {any} */ row) => !row.stopped && !isBaseline(matrix, row));
  if (!may("steer") || !STOPPABLE.includes(matrix.sweep.status) || matrix.rows.length < 2 || !rows.length) return null;
  const stop = () => perform(() => post(`/sweeps/${segment(matrix.sweep.id)}/combinations/stop`, { combination: JSON.parse(selected) }));
  return html`<div class="bar"><label>${words.sweep.stopRow}
      <select value=${selected} onChange=${(/** @type {any} */ event) => setSelected(event.target.value)}>
        <option value="">${words.sweep.chooseRow}</option>
        ${rows.map((/** @type {any} */ row) => html`<option value=${JSON.stringify(row.combination)}>${combination(row.combination, nodes)}</option>`)}
      </select></label>
      <button disabled=${isBusy || !selected} onClick=${stop}>${words.sweep.stop}</button></div>
    <${Refused} problem=${problem} />`;
}
