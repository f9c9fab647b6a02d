/** The events of a sweep as they come, the newest first. */
import { visible } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { segment } from "../lib/api.js";
import { Link } from "../lib/router.js";
import { follow } from "../lib/stream.js";
import { words } from "../lib/words.js";
import { Empty } from "./empty.js";

const KEPT = 500;

/** @param {{sweep: string}} props */
export function Log({ sweep }) {
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  const [severity, setSeverity] = useState("info");
  const [isConnected, setConnected] = useState(/** @type {boolean | null} */ (null)); // null before there is an answer
  useEffect(() => {
    setEvents([]);
    setConnected(null);
    return follow(sweep, { severity }, (message) => setEvents((known) => [...(message.events ?? []).reverse(), ...known].slice(0, KEPT)), setConnected);
  }, [sweep, severity]);
  return html`<div class="bar">
      <label>${words.log.severity}<select value=${severity} onChange=${(/** @type {any} */ event) => setSeverity(event.target.value)}>
        ${["debug", "info", "warning", "error"].map((one) => html`<option>${one}</option>`)}
      </select></label>
      ${isConnected === false ? html`<span role="status" class="warn">${words.reconnecting}</span>` : null}
    </div>
    ${events.length || isConnected === false ? null : isConnected ? html`<${Empty} text=${words.log.nothing} help="results">${severity === "debug" ? null : html`<button onClick=${() => setSeverity("debug")}>${words.log.all}</button>`}<//>` : html`<p class="quiet" role="status">${words.loading}</p>`}
    <div class="log" tabindex="0" role="log" aria-label=${words.sweep.tabs.log}><table><tbody>${events.map(
      (one) => html`<tr key=${one.id}>
        <td class="mono num">${one.at.slice(11, 23)}</td><td class=${one.severity === "error" ? "bad" : one.severity === "warning" ? "warn" : "quiet"}>${one.severity}</td><td class="mono">${one.kind}</td>
        <td>${one.execution ? html`<${Link} to=${`/executions/${segment(one.execution)}`} class="mono">${one.execution.slice(-6)}<//>` : null}</td>
        <td class="mono name">${visible(JSON.stringify(one.data))}</td>
      </tr>`,
    )}</tbody></table></div>`;
}
