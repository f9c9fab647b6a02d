/** One step of an execution: its attempts on the axis of time, what it said, called, wrote and changed. */
import { get, may, segment } from "../lib/api.js";
import { date, duration, largestOf, usd, visible } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";
import { Calls } from "./calls.js";
import { Difference } from "./state_difference.js";
import { Naming } from "./naming.js";
import { Status } from "./status.js";
import { StepActions } from "./step_actions.js";

const LAG_SHOWN_S = 0.005; // a shorter lag of the event loop is not shown beside a duration

/** Where a moment lies on the axis of time, from 0 to 1. @typedef {(at: number) => number} Axis */

/**
 * The axis of time of an execution, from its first attempt to its last; without the time in which nothing ran, unless
 * waiting is shown: pauses, people who were asked, and free slots that were waited for.
 * @param {any[]} path @param {boolean} withWaiting @returns {{axis: Axis, waited: number}} how long nothing ran, in seconds
 */
export function axisOf(path, withWaiting) {
  const ends = path.flatMap(triesOf).map(beginAndEnd).sort((first, other) => first[0] - other[0]);
  const busy = /** @type {[number, number][]} */ ([]);
  for (const [start, end] of ends) {
    const last = busy[busy.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else busy.push([start, end]);
  }
  const first = busy[0]?.[0] ?? 0;
  const whole = (busy[busy.length - 1]?.[1] ?? 0) - first;
  const worked = busy.reduce((sum, [start, end]) => sum + end - start, 0);
  const before = [0]; // of each busy time, how much was worked before it
  for (const [start, end] of busy) before.push(before[before.length - 1] + end - start);
  /** @param {number} at */
  function place(at) {
    let [low, high] = [0, busy.length]; // the busy time that began last
    while (low < high) {
      const middle = (low + high) >> 1;
      if (busy[middle][0] <= at) low = middle + 1;
      else high = middle;
    }
    return low ? before[low - 1] + Math.min(at, busy[low - 1][1]) - busy[low - 1][0] : 0;
  }
  const axis = withWaiting ? (/** @type {number} */ at) => (at - first) / Math.max(whole, 1e-3) : (/** @type {number} */ at) => place(at) / Math.max(worked, 1e-3);
  return { axis, waited: (whole - worked) / 1000 };
}

/** The attempts of a step that have begun; the step itself where they were removed. @param {any} step @returns {any[]} */
function triesOf(step) {
  const attempts = step.tried.filter((/** @type {any} */ attempt) => attempt.started_at);
  return attempts.length ? attempts : step.started_at ? [step] : [];
}

/** @param {any} attempt a step or an attempt @returns {[number, number]} milliseconds */
function beginAndEnd(attempt) {
  const start = Date.parse(attempt.started_at);
  return [start, start + 1000 * (attempt.duration_s ?? 0)];
}

/** Seconds that a step took; of one that failed, from its first attempt to the end of its last. @param {any} step @returns {number | null} */
function tookOf(step) {
  const ends = triesOf(step).map(beginAndEnd);
  return step.duration_s || (ends.length ? (Math.max(...ends.map(([, end]) => end)) - Math.min(...ends.map(([start]) => start))) / 1000 : step.duration_s);
}

/** The calls of a step: of a model's it is known when it ended, of a tool's when it began. @param {any} step @returns {{name: string, ends: [number, number]}[]} in milliseconds */
function callsOf({ calls, invocations }) {
  const took = (/** @type {any} */ call) => 1000 * (call.duration_s ?? 0);
  /** @param {any} call @param {number} start */
  const barOfCall = (call, start) => ({ name: `${call.model ?? call.tool} · ${duration(call.duration_s)}`, ends: /** @type {[number, number]} */ ([start, start + took(call)]) });
  const timed = (/** @type {any[]} */ all) => all.filter((call) => call.at);
  return [...timed(calls).map((call) => barOfCall(call, Date.parse(call.at) - took(call))), ...timed(invocations).map((call) => barOfCall(call, Date.parse(call.at)))];
}

/**
 * @param {object} props
 * @param {any} props.step
 * @param {Axis} props.axis of time
 * @param {any} props.origin what can be forked and rolled back, and how
 */
export function Step({ step, axis, origin }) {
  const [isOpen, setOpen] = useState(false);
  const percent = (/** @type {number} */ at) => 100 * Math.max(0, Math.min(1, axis(at)));
  /** @param {string} status @param {[number, number]} ends @param {string} [title] */
  const barOf = (status, [from, to], title) => {
    const offset = percent(from);
    return { status, title, left: `${offset}%`, width: `${percent(to) - offset}%` };
  };
  const bars = [...triesOf(step).map((attempt) => barOf(attempt.status, beginAndEnd(attempt))), ...callsOf(step).map(({ name, ends }) => barOf("call", ends, name))];
  return html`<li><details onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary>
      <span class="quiet">${step.step}</span>
      <span class="name"><i class=${`dot ${step.status}`} aria-hidden="true"></i>${step.node}${step.variant === "default" ? "" : html`<span class="quiet"> = ${step.variant}</span>`}${step.name ? html` <span class="tag star" title=${step.note}>${step.name}</span>` : null}</span>
      <span class="lane" aria-hidden="true">${bars.map(({ status, title, left: offset, width }) => html`<i class=${status} title=${title} style=${{ left: offset, width }}></i>`)}</span>
      <span class="num">${duration(tookOf(step))}</span>
    </summary>
    ${isOpen ? html`<${Inner} step=${step} origin=${origin} />` : null}
  </details></li>`;
}

/** @param {any} props */
function Inner({ step, origin }) {
  return html`<div class="inner">
      <p class="quiet">${words.status[/** @type {"running"} */ (step.status)] ?? step.status}${step.attempts > 1 ? `, ${words.execution.attempts(step.attempts)}` : ""}, ${date(step.started_at)}${step.lag_s >= LAG_SHOWN_S ? `, ${words.execution.lag(duration(step.lag_s))}` : ""}${step.usd ? `, ${usd(step.usd)}` : ""}${step.cells > 1 ? `, ${words.execution.standsFor(step.cells)}` : ""}</p>
      ${step.tried.length > 1 ? html`<${Attempts} attempts=${step.tried} />` : null}
      ${step.tried.filter((/** @type {any} */ attempt) => attempt.error).map((/** @type {any} */ attempt) => html`<pre class="bad" tabindex="0">${visible(`${attempt.error}${attempt.trace ? `\n${attempt.trace}` : ""}`)}</pre>`)}
      ${step.tried.map((/** @type {any} */ attempt) => [attempt.stdout, attempt.stderr].filter(Boolean).map((text) => html`<pre tabindex="0">${visible(text)}</pre>`))}
      ${step.before ? html`<h3>${words.execution.changed}</h3><${Changed} before=${step.before} after=${step.checkpoint} />` : null}
      <${Calls} step=${step} />
      ${(step.decisions ?? []).map((/** @type {any} */ decision) => html`<${Decided} decision=${decision} />`)}
      ${step.note ? html`<p class="named"><b>${step.name}</b>: ${step.note}</p>` : null}
      ${step.checkpoint && may("steer") ? html`<${Naming} step=${step} origin=${origin} />` : null}
      ${step.before && may("steer") ? html`<${StepActions} before=${step.before} step=${step} origin=${origin} />` : null}
    </div>`;
}

/** What the state and the files were before a step, and after it. @param {{before: string, after: string}} props */
function Changed({ before, after }) {
  const resource = useResource((signal) => get(`/executions/${segment(before)}/diff/${segment(after)}`, {}, signal), [before, after]);
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  return html`<${Difference} difference=${resource.data} names=${[words.execution.before, words.execution.after]} same=${words.execution.nothingChanged} />`;
}

/** Why the execution went on where it went, and the edges that were tried. @param {{decision: any}} props */
function Decided({ decision: { to, why, tried: alternatives = [] } }) {
  const nameOf = (/** @type {string} */ node) => (node === "__end__" ? words.graph.end : node);
  const untaken = alternatives.filter((/** @type {any} */ edge) => !edge.taken);
  return html`<h3>${words.execution.wentTo(nameOf(to))}</h3><p>${why}</p>
    ${untaken.length ? html`<p class="untaken">${words.execution.untaken}</p><ul class="untaken">${untaken.map((/** @type {any} */ edge) => html`<li>${nameOf(edge.to)}${edge.when ? html`: <code>${edge.when}</code>` : null}</li>`)}</ul>` : null}`;
}

/** Each try with how long the wait before it was. @param {{attempts: any[]}} props */
function Attempts({ attempts }) {
  const waits = attempts.map((attempt, place) => (place && attempt.started_at && attempts[place - 1].started_at ? (beginAndEnd(attempt)[0] - beginAndEnd(attempts[place - 1])[1]) / 1000 : null));
  const columns = words.execution.attemptColumns;
  return html`<div class="scroll" tabindex="0"><table><thead><tr><th>${columns.number}</th><th>${columns.status}</th><th class="num">${columns.waited}</th><th class="num">${columns.took}</th><th class="num">${columns.cost}</th></tr></thead>
    <tbody>${attempts.map((attempt, place) => html`<tr><td>${attempt.number}</td><td><${Status} status=${attempt.status} /></td><td class="num">${waits[place] === null ? "" : duration(Math.max(0, waits[place]))}</td><td class="num">${duration(attempt.duration_s)}</td><td class="num">${attempt.usd ? usd(attempt.usd, largestOf(attempts.map((other) => other.usd))) : ""}</td></tr>`)}</tbody></table></div>`;
}
