/** Sweeps by the clock, each with its verdicts as a strip. */
import { get, segment } from "../lib/api.js";
import { ago, date } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Status } from "../views/status.js";

export function SchedulesPage() {
  const resource = useResource((signal) => get("/schedules", {}, signal), [], 10_000);
  const rows = resource.data?.schedules ?? [];
  return html`<div class="head"><h1>${words.schedules.title}</h1></div>
    <${Waiting} resource=${resource} />
    ${resource.data && !rows.length ? html`<p class="quiet">${words.schedules.empty}</p>` : null}
    ${rows.length
      ? html`<div class="scroll" tabindex="0"><table><tbody>${rows.map(
          (/** @type {any} */ one) => html`<tr><td class="name"><b>${one.name}</b></td><td class="mono">${one.cron} ${one.tz}</td><td><${Status} status=${one.status} /></td>
            <td>${words.schedules.next}: <span title=${date(one.next_at)}>${ago(one.next_at)}</span></td>
            <td>${one.last ? html`${words.schedules.last}: ${one.last.sweep ? html`<${Link} to=${`/sweeps/${segment(one.last.sweep)}`}>${one.last.verdict ?? one.last.status}<//>` : one.last.status}` : null}</td></tr>`,
        )}</tbody></table></div>`
      : null}`;
}
