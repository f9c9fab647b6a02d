/** One step of an execution: its attempts on the axis of time, what it said, called, wrote and changed. */
import { get, may, segment } from "../lib/api.js";
import { date, duration, largestOf, usd } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";
import { Calls } from "./calls.js";
import { Difference } from "./state_difference.js";
import { Status } from "./status.js";
import { StepActions } from "./step_actions.js";

/** When the first attempt began and the last one ended. @param {any[]} path @returns {[number, number]} */
export function span(path) {
  const ends = path.flatMap(triesOf).map(beginAndEnd);
  return [Math.min(...ends.map(([start]) => start)), Math.max(...ends.map(([, end]) => end))];
}

/** The attempts of a step that have begun; the step itself where they were removed. @param {any} step @returns {any[]} */
function triesOf(step) {
  const tried = step.tried.filter((/** @type {any} */ one) => one.started_at);
  return tried.length ? tried : step.started_at ? [step] : [];
}

/** @param {any} one a step or an attempt @returns {[number, number]} milliseconds */
function beginAndEnd(one) {
  const start = Date.parse(one.started_at);
  return [start, start + 1000 * (one.duration_s ?? 0)];
}

/** Seconds that a step took; of one that failed, from its first attempt to the end of its last. @param {any} step @returns {number | null} */
function tookOf(step) {
  const ends = triesOf(step).map(beginAndEnd);
  return step.duration_s || (ends.length ? (Math.max(...ends.map(([, end]) => end)) - Math.min(...ends.map(([start]) => start))) / 1000 : step.duration_s);
}

/** The calls of a step: of a model's it is known when it ended, of a tool's when it began. @param {any} step @returns {{name: string, ends: [number, number]}[]} in milliseconds */
function callsOf({ calls, invocations }) {
  const took = (/** @type {any} */ one) => 1000 * (one.duration_s ?? 0);
  /** @param {any} one @param {number} begun */
  const made = (one, begun) => ({ name: `${one.model ?? one.tool} · ${duration(one.duration_s)}`, ends: /** @type {[number, number]} */ ([begun, begun + took(one)]) });
  const known = (/** @type {any[]} */ all) => all.filter((one) => one.at);
  return [...known(calls).map((one) => made(one, Date.parse(one.at) - took(one))), ...known(invocations).map((one) => made(one, Date.parse(one.at)))];
}

/**
 * @param {object} props
 * @param {any} props.step
 * @param {[number, number]} props.ends of the axis of time
 * @param {any} props.origin what can be forked and rolled back, and how
 */
export function Step({ step, ends: [start, end], origin }) {
  const [isOpen, setOpen] = useState(false);
  const percent = (/** @type {number} */ length) => (100 * length) / Math.max(end - start, 0.001);
  /** @param {string} status @param {[number, number]} ends @param {string} [title] */
  const barOf = (status, [from, to], title) => {
    const left = Math.max(0, Math.min(100, percent(from - start)));
    return { status, title, left: `${left}%`, width: `${Math.min(100 - left, percent(to - from))}%` };
  };
  const bars = [...triesOf(step).map((one) => barOf(one.status, beginAndEnd(one))), ...callsOf(step).map(({ name, ends }) => barOf("call", ends, name))];
  return html`<li><details onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary>
      <span class="quiet">${step.step}</span>
      <span class="name"><i class=${`dot ${step.status}`} aria-hidden="true"></i>${step.node}${step.variant === "default" ? "" : html`<span class="quiet"> = ${step.variant}</span>`}</span>
      <span class="lane" aria-hidden="true">${bars.map(({ status, title, left, width }) => html`<i class=${status} title=${title} style=${{ left, width }}></i>`)}</span>
      <span class="num">${duration(tookOf(step))}</span>
    </summary>
    ${isOpen ? html`<${Inner} step=${step} origin=${origin} />` : null}
  </details></li>`;
}

/** @param {any} props */
function Inner({ step, origin }) {
  return html`<div class="inner">
      <p class="quiet">${words.status[/** @type {"running"} */ (step.status)] ?? step.status}${step.attempts > 1 ? `, ${words.execution.attempts(step.attempts)}` : ""}, ${date(step.started_at)}${step.usd ? `, ${usd(step.usd)}` : ""}${step.cells > 1 ? `, ${words.execution.standsFor(step.cells)}` : ""}</p>
      ${step.tried.length > 1 ? html`<${Attempts} tried=${step.tried} />` : null}
      ${step.tried.filter((/** @type {any} */ one) => one.error).map((/** @type {any} */ one) => html`<pre class="bad" tabindex="0">${one.error}${one.trace ? `\n${one.trace}` : ""}</pre>`)}
      ${step.tried.map((/** @type {any} */ one) => [one.stdout, one.stderr].filter(Boolean).map((text) => html`<pre tabindex="0">${text}</pre>`))}
      ${step.before ? html`<h3>${words.execution.changed}</h3><${Changed} before=${step.before} after=${step.checkpoint} />` : null}
      <${Calls} step=${step} />
      ${step.before && may("steer") ? html`<${StepActions} before=${step.before} step=${step} origin=${origin} />` : null}
    </div>`;
}

/** What the state and the files were before a step, and after it. @param {{before: string, after: string}} props */
function Changed({ before, after }) {
  const found = useResource((signal) => get(`/executions/${segment(before)}/diff/${segment(after)}`, {}, signal), [before, after]);
  if (!found.data) return html`<${Waiting} resource=${found} />`;
  return html`<${Difference} found=${found.data} names=${[words.execution.before, words.execution.after]} same=${words.execution.nothingChanged} />`;
}

/** Each try with how long the wait before it was. @param {{tried: any[]}} props */
function Attempts({ tried }) {
  const waits = tried.map((one, place) => (place && one.started_at && tried[place - 1].started_at ? (beginAndEnd(one)[0] - beginAndEnd(tried[place - 1])[1]) / 1000 : null));
  const columns = words.execution.attemptColumns;
  return html`<div class="scroll" tabindex="0"><table><thead><tr><th>${columns.number}</th><th>${columns.status}</th><th class="num">${columns.waited}</th><th class="num">${columns.took}</th><th class="num">${columns.cost}</th></tr></thead>
    <tbody>${tried.map((one, place) => html`<tr><td>${one.number}</td><td><${Status} status=${one.status} /></td><td class="num">${waits[place] === null ? "" : duration(Math.max(0, waits[place]))}</td><td class="num">${duration(one.duration_s)}</td><td class="num">${one.usd ? usd(one.usd, largestOf(tried.map((other) => other.usd))) : ""}</td></tr>`)}</tbody></table></div>`;
}
