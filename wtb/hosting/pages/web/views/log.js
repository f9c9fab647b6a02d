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
    return follow(sweep, { severity }, (message) => setEvents((earlier) => [...(message.events ?? []).reverse(), ...earlier].slice(0, KEPT)), setConnected);
  }, [sweep, severity]);
  return html`<div class="bar">
      <label>${words.log.severity}<select value=${severity} onChange=${(/** @type {any} */ event) => setSeverity(event.target.value)}>
        ${["debug", "info", "warning", "error"].map((severity) => html`<option>${severity}</option>`)}
      </select></label>
      ${isConnected === false ? html`<span role="status" class="warn">${words.reconnecting}</span>` : null}
    </div>
    ${events.length || isConnected === false ? null : isConnected ? html`<${Empty} text=${words.log.nothing} help="results">${severity === "debug" ? null : html`<button onClick=${() => setSeverity("debug")}>${words.log.all}</button>`}<//>` : html`<p class="quiet" role="status">${words.loading}</p>`}
    <div class="log" tabindex="0" role="log" aria-label=${words.sweep.tabs.log}><table><tbody>${events.map(
      (event) => html`<tr key=${event.id}>
        <td class="mono num">${event.at.slice(11, 23)}</td><td class=${event.severity === "error" ? "bad" : event.severity === "warning" ? "warn" : "quiet"}>${event.severity}</td><td class="mono">${event.kind}</td>
        <td>${event.execution ? html`<${Link} to=${`/executions/${segment(event.execution)}`} class="mono">${event.execution.slice(-6)}<//>` : null}</td>
        <td class="mono name">${visible(JSON.stringify(event.data))}</td>
      </tr>`,
    )}</tbody></table></div>`;
}
