/** One execution: its steps on one axis of time, with what each wrote, and the state that it came to. */
import { get, segment } from "../lib/api.js";
import { asText, combination, count, date, duration, figure, usd } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Status } from "../views/status.js";
import { Value } from "../views/value.js";

const SHOWN = 200; // steps that are shown before somebody asks for more

/** @param {{parts: string[]}} props */
export function ExecutionPage({ parts: [ref] }) {
  const [all, setAll] = useState(false);
  const resource = useResource((signal) => get(`/executions/${segment(ref)}`, { calls: true }, signal), [ref]);
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  const { execution, cells, path, state, totals } = resource.data;
  const steps = all ? path : path.slice(0, SHOWN);
  const ends = span(path);
  return html`<div class="head">
      <h1>${words.execution.title} <span class="mono">${execution.id}</span></h1><${Status} status=${execution.status} reason=${execution.reason} />
    </div>
    <dl>
      <dt>${words.sweeps.columns.name}</dt><dd><${Link} to=${`/sweeps/${segment(execution.sweep.id)}`}>${execution.sweep.name}<//></dd>
      <dt>${words.execution.case}</dt><dd>${execution.case}${execution.repeat ? `, ${words.execution.repeat(execution.repeat)}` : ""}</dd>
      ${execution.parent ? html`<dt>${words.execution.parent}</dt><dd><${Link} class="mono" to=${`/executions/${segment(execution.parent)}`}>${execution.parent}<//></dd>` : null}
      ${execution.children.length ? html`<dt>${words.execution.children}</dt><dd>${execution.children.map((/** @type {string} */ id) => html`<${Link} class="mono" to=${`/executions/${segment(id)}`}>${id}<//> `)}</dd>` : null}
      ${totals ? html`<dt>${words.sweeps.columns.took}</dt><dd>${duration(totals.elapsed_s)}, ${words.sweep.nodeRuns(totals.node_runs, 0)}${totals.usd ? `, ${usd(totals.usd)}` : ""}</dd>` : null}
    </dl>
    ${execution.error ? html`<div class="problem"><p>${execution.error}</p><pre tabindex="0">${execution.trace}</pre></div>` : null}
    <${Cells} cells=${cells} />
    <h2>${words.execution.steps}</h2>
    ${path.length ? null : html`<p class="quiet">${words.execution.noSteps}</p>`}
    <ol class="steps">${steps.map((/** @type {any} */ step) => html`<${Step} key=${step.node_run} step=${step} ends=${ends} />`)}</ol>
    ${path.length > steps.length ? html`<button onClick=${() => setAll(true)}>${words.execution.more(path.length - steps.length)}</button>` : null}
    <h2>${words.execution.state}</h2>
    <${Values} values=${state} />`;
}

/** When the first attempt began and the last one ended. @param {any[]} path @returns {[number, number]} */
function span(path) {
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

/** @param {{step: any, ends: [number, number]}} props */
function Step({ step, ends: [start, end] }) {
  const percent = (/** @type {number} */ length) => (100 * length) / Math.max(end - start, 0.001);
  const bars = triesOf(step).map((one) => {
    const [from, to] = beginAndEnd(one);
    const left = percent(from - start);
    return { status: one.status, left: `${left}%`, width: `${Math.min(100 - left, percent(to - from))}%` };
  });
  return html`<li><details>
    <summary>
      <span class="quiet">${step.step}</span>
      <span class="name"><i class=${`dot ${step.status}`} aria-hidden="true"></i>${step.node}${step.variant === "default" ? "" : html`<span class="quiet"> = ${step.variant}</span>`}</span>
      <span class="lane" aria-hidden="true">${bars.map(({ status, left, width }) => html`<i class=${status} style=${{ left, width }}></i>`)}</span>
      <span class="num">${duration(step.duration_s)}</span>
    </summary>
    <div class="inner">
      <p class="quiet">${step.status}${step.attempts > 1 ? `, ${words.execution.attempts(step.attempts)}` : ""}, ${date(step.started_at)}${step.usd ? `, ${usd(step.usd)}` : ""}${step.cells > 1 ? `, ${words.execution.standsFor(step.cells)}` : ""}</p>
      ${step.tried.length > 1 ? html`<${Attempts} tried=${step.tried} />` : null}
      ${step.tried.filter((/** @type {any} */ one) => one.error).map((/** @type {any} */ one) => html`<pre class="bad" tabindex="0">${one.error}${one.trace ? `\n${one.trace}` : ""}</pre>`)}
      ${step.tried.map((/** @type {any} */ one) => [one.stdout, one.stderr].filter(Boolean).map((text) => html`<pre tabindex="0">${text}</pre>`))}
      <h3>${words.execution.changed}</h3><${Values} values=${step.writes ?? {}} />
      ${step.calls.length || step.invocations.length ? html`<h3>${words.execution.calls}</h3>` : null}
      ${step.calls.map((/** @type {any} */ call) => html`<details><summary>${call.model ?? call.tool} · ${duration(call.duration_s)} · ${words.execution.tokens(count(call.tokens_in), count(call.tokens_out))} · ${usd(call.usd)}</summary><pre tabindex="0">${asText(call.prompt)}</pre><pre tabindex="0">${asText(call.response)}</pre></details>`)}
      ${step.invocations.map((/** @type {any} */ one) => html`<details><summary>${one.tool} · ${one.status} · ${duration(one.duration_s)}</summary><pre tabindex="0">${asText(one.arguments)}</pre><pre tabindex="0">${asText(one.error ?? one.result)}</pre></details>`)}
    </div>
  </details></li>`;
}

/** Each try with how long the wait before it was. @param {{tried: any[]}} props */
function Attempts({ tried }) {
  const waits = tried.map((one, place) => (place && one.started_at && tried[place - 1].started_at ? (beginAndEnd(one)[0] - beginAndEnd(tried[place - 1])[1]) / 1000 : null));
  const columns = words.execution.attemptColumns;
  return html`<div class="scroll"><table><thead><tr><th>${columns.number}</th><th>${columns.status}</th><th class="num">${columns.waited}</th><th class="num">${columns.took}</th><th class="num">${columns.cost}</th></tr></thead>
    <tbody>${tried.map((one, place) => html`<tr><td>${one.number}</td><td><${Status} status=${one.status} /></td><td class="num">${waits[place] === null ? "" : duration(Math.max(0, waits[place]))}</td><td class="num">${duration(one.duration_s)}</td><td class="num">${one.usd ? usd(one.usd) : ""}</td></tr>`)}</tbody></table></div>`;
}

/** @param {{cells: any[]}} props */
function Cells({ cells }) {
  if (!cells.length) return null;
  return html`<h2>${words.execution.cells}</h2><div class="scroll"><table><tbody>${cells.map(
    (one) => html`<tr><td><${Status} status=${one.status} /></td><td class="mono">${combination(one.combination)}</td>
      <td>${Object.entries(one.scores).map(([name, value]) => `${name} ${figure(/** @type {number} */ (value))}`).join(", ")}</td><td class="bad">${one.error ?? ""}</td></tr>`,
  )}</tbody></table></div>`;
}

/** @param {{values: Record<string, unknown>}} props */
function Values({ values }) {
  return html`<dl>${Object.entries(values).map(([name, value]) => html`<dt class="mono">${name}</dt><dd><${Value} value=${value} /></dd>`)}</dl>`;
}
