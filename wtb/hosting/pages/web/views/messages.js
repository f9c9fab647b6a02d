/** What the nodes of an execution say and call, as it comes: the newest last. */
import { request, segment } from "../lib/api.js";
import { asText, duration, usd, visible } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { follow } from "../lib/stream.js";
import { words } from "../lib/words.js";

const KEPT = 200;
const KINDS = ["node.stream", "model.called", "tool.called", "tool.reversed", "approval.asked", "approval.answered"];

/**
 * @param {object} props
 * @param {string} props.sweep
 * @param {string} props.execution
 * @param {boolean} props.isLive whether there may be more: what has ended is read once, and holds no connection
 */
export function Messages({ sweep, execution, isLive }) {
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  useEffect(() => {
    if (!isLive) {
      const ending = new AbortController();
      read(execution, ending.signal).then((all) => setEvents(all.slice(-KEPT)), () => {});
      return () => ending.abort();
    }
    setEvents([]);
    const mine = (/** @type {any[]} */ all) => all.filter((message) => message.execution === execution);
    return follow(sweep, { severity: "debug", kinds: KINDS }, (message) => setEvents((earlier) => [...earlier, ...mine(message.events ?? [])].slice(-KEPT)), () => {});
  }, [sweep, execution, isLive]);
  if (!events.length) return null;
  return html`<h2>${words.messages.title}</h2><div class="log messages" tabindex="0" role="log" aria-label=${words.messages.title}><table><tbody>${events.map(
    (event) => html`<tr key=${event.id}><td class="mono quiet">${event.at.slice(11, 19)}</td><td class="mono">${event.data.node ?? ""}</td><td class="name">${visible(text(event))}</td></tr>`,
  )}</tbody></table></div>`;
}

/** @param {string} execution @param {AbortSignal} signal @returns {Promise<any[]>} */
async function read(execution, signal) {
  const answer = await request("GET", `/sweeps/${segment(execution)}/log`, { query: { severity: "debug", kinds: KINDS }, signal });
  return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

/** @param {any} event */
function text({ kind, data: details }) {
  if (kind === "model.called") return words.messages.model(details.model ?? "", duration(details.duration_s), usd(details.usd), details.error ?? "");
  if (kind === "tool.called") return words.messages.tool(details.tool, duration(details.duration_s), details.error ?? "");
  if (kind === "tool.reversed") return words.messages.reversed(details.tool);
  if (kind === "approval.asked") return words.messages.asked(details.question);
  if (kind === "approval.answered") return words.messages.answered(details.action ?? "", details.by ?? "");
  return asText(details.data);
}
