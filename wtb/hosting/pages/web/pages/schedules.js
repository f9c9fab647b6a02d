/** Sweeps by the clock, each with its verdicts as a strip. */
import { get, segment } from "../lib/api.js";
import { ago, date, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { DriftChart } from "../views/drift_chart.js";
import { Empty } from "../views/empty.js";
import { Status } from "../views/status.js";

const SHOWN = 30; // fires of a strip
/** What stands for a verdict besides its colour. */
const SIGNS = /** @type {Record<string, string>} */ ({ better: "+", same: "=", "not worse": "≈", unclear: "?", worse: "−", "cannot tell": "?", failed: "!" });
const GOOD = ["better", "same", "not worse"];
const BAD = ["worse", "failed"];

export function SchedulesPage() {
  const resource = useResource((signal) => get("/schedules", {}, signal), [], 10_000);
  const rows = resource.data?.schedules ?? [];
  const { columns } = words.schedules;
  return html`<div class="head"><h1>${words.schedules.title}</h1></div>
    <${Waiting} resource=${resource} />
    ${resource.data && !rows.length ? html`<${Empty} text=${words.schedules.empty} help="regressions#run-a-sweep-every-night" command=${words.schedules.first} />` : null}
    ${rows.length
      ? html`<div class="scroll" tabindex="0"><table>
          <thead><tr>${Object.values(columns).map((name) => html`<th>${name}</th>`)}</tr></thead>
          <tbody>${rows.map(
            (/** @type {any} */ schedule) => html`<tr key=${schedule.name}><td class="name"><b>${schedule.name}</b></td><td class="mono">${schedule.cron} ${schedule.tz}</td><td><${Status} status=${schedule.status} /></td>
            <td title=${date(schedule.next_at)}>${ago(schedule.next_at)}</td>
            <td>${schedule.last ? html`<${Ended} fire=${schedule.last} />` : null}</td>
            <td><${Strip} name=${schedule.name} last=${schedule.last?.fire_at} /></td></tr>`,
          )}</tbody></table></div>
        <p class="quiet">${words.schedules.legend}</p>
        ${rows.map((/** @type {any} */ schedule) => html`<${Why} key=${schedule.name} schedule=${schedule} />`)}
        ${rows.map((/** @type {any} */ schedule) => html`<${Drift} key=${schedule.name} name=${schedule.name} last=${schedule.last?.fire_at} />`)}`
      : null}`;
}

/** How a fire ended, in words. @param {any} fire @returns {string} */
const endOf = (fire) => fire.verdict ?? words.schedules.statuses[/** @type {"due"} */ (fire.status)] ?? fire.status;

/** How a fire ended, as a link to its sweep. @param {{fire: any}} props */
function Ended({ fire }) {
  const text = endOf(fire);
  return fire.sweep ? html`<${Link} to=${`/sweeps/${segment(fire.sweep)}`}>${text}<//>` : text;
}

/** Why its last fire was worse or failed, with a link to the comparison. @param {{schedule: any}} props */
function Why({ schedule: { name, last } }) {
  if (!last || !BAD.includes(last.verdict)) return null;
  return html`<section class="why"><h2>${words.schedules.why(name, endOf(last))}</h2>
    <ul>${last.because.map((/** @type {string} */ reason) => html`<li key=${reason}>${reason}</li>`)}</ul>
    ${last.sweep && last.baseline
      ? html`<p><${Link} class="button" to=${`/compare/${segment(last.baseline)}/${segment(last.sweep)}`}>${words.schedules.compare}<//></p>`
      : null}</section>`;
}

/** What its nights came to, and how far they drifted from the fixed reference. @param {{name: string, last: string | undefined}} props last: when the last fire was */
function Drift({ name, last }) {
  const { data: drift } = useResource((signal) => get(`/schedules/${segment(name)}/history`, { limit: SHOWN }, signal), [name, last]);
  return drift ? html`<${DriftChart} history=${drift} bad=${BAD} />` : null;
}

/** Its last fires, the oldest first. @param {{name: string, last: string | undefined}} props last: when the last one was */
function Strip({ name, last }) {
  const { data: drift } = useResource((signal) => get(`/schedules/${segment(name)}/history`, { limit: SHOWN }, signal), [name, last]);
  if (!drift?.fires.length) return null;
  return html`<ol class="strip" aria-label=${words.schedules.verdicts}>${drift.fires.map((/** @type {any} */ fire) => {
    const verdict = endOf(fire);
    const figures = fire.mean === null ? "" : `, ${drift.metric} ${figure(fire.mean)}`;
    const changed = fire.code_changed.length ? `, ${words.schedules.codeChanged(fire.code_changed.join(", "))}` : "";
    const text = `${date(fire.fire_at)}: ${verdict}${figures}${changed}`;
    const mark = html`<span aria-hidden="true">${SIGNS[fire.verdict] ?? "·"}</span><span class="seen-only-by-readers">${text}</span>`;
    const looks = `${GOOD.includes(fire.verdict) ? "good" : BAD.includes(fire.verdict) ? "bad" : ""} ${changed ? "changed" : ""}`;
    return html`<li key=${fire.fire_at} class=${looks} title=${text}>${fire.sweep ? html`<${Link} to=${`/sweeps/${segment(fire.sweep)}`}>${mark}<//>` : mark}</li>`;
  })}</ol>`;
}
