/** All sweeps: how far each is, and any two of them to compare. */
import { get, may, segment } from "../lib/api.js";
import { ago, between, date, duration } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look, navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Progress, Status } from "../views/status.js";

const STATUSES = /** @type {const} */ (["running", "pending", "paused", "completed", "failed", "cancelled"]);
const ASK_AGAIN_MS = 3_000;
const PAGE = 50;

export function SweepsPage() {
  const { text = "", status = "", limit = String(PAGE) } = address.value.query;
  const resource = useResource(
    (signal) => get("/sweeps", { status, limit: Number(limit) + 1, singles: true }, signal),
    [status, limit],
    ASK_AGAIN_MS,
  );
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const found = /** @type {any[]} */ (resource.data?.sweeps ?? []);
  const rows = found.slice(0, Number(limit)).filter((one) => matches(one, text));
  /** @param {string} id */
  const toggle = (id) => setChosen((ids) => (ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id].slice(-2)));
  /** The older one is what the newer one is held against. */
  function compare() {
    const order = rows.map((one) => one.id);
    const [newer, older] = [...chosen].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    navigate(`/compare/${segment(older)}/${segment(newer)}`);
  }
  return html`<div class="head"><h1>${words.sweeps.title}</h1><span class="grow"></span>${may("submit") ? html`<${Link} to="/submit">${words.submit.title}<//>` : null}</div>
    <div class="bar">
      <input type="search" data-filter placeholder=${words.sweeps.filter} aria-label=${words.sweeps.filter} value=${text}
        onInput=${(/** @type {any} */ event) => look({ text: event.target.value })} />
      <select aria-label=${words.sweeps.status} value=${status} onChange=${(/** @type {any} */ event) => look({ status: event.target.value })}>
        <option value="">${words.sweeps.anyStatus}</option>
        ${STATUSES.map((one) => html`<option value=${one}>${words.status[one]}</option>`)}
      </select>
      <button onClick=${compare} disabled=${chosen.length !== 2} title=${words.sweeps.chooseTwo}>${words.sweeps.compare}</button>
    </div>
    <${Waiting} resource=${resource} />
    ${resource.data && !rows.length ? html`<p class="quiet">${text || status ? words.sweeps.noneMatch : words.sweeps.empty}</p>` : null}
    ${rows.length ? html`<${Table} rows=${rows} chosen=${chosen} toggle=${toggle} />` : null}
    ${found.length > Number(limit)
      ? html`<button onClick=${() => look({ limit: String(Number(limit) + PAGE) })}>${words.sweeps.more}</button>`
      : null}`;
}

/** @param {any} one @param {string} text */
function matches(one, text) {
  const wanted = text.toLowerCase();
  return [one.name, one.workflow, one.id, one.session].some((part) => part?.toLowerCase().includes(wanted));
}

/** @param {{rows: any[], chosen: string[], toggle: (id: string) => void}} props */
function Table({ rows, chosen, toggle }) {
  const { columns } = words.sweeps;
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th><span class="seen-only-by-readers">${words.sweeps.compare}</span></th>
      ${Object.values(columns).map((name) => html`<th>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (one) => html`<tr key=${one.id} class=${chosen.includes(one.id) ? "chosen" : ""}>
        <td><input type="checkbox" aria-label=${`${words.sweeps.compare}: ${one.name}`} checked=${chosen.includes(one.id)} onChange=${() => toggle(one.id)} /></td>
        <td class="name"><${Link} to=${`/sweeps/${segment(one.id)}`}>${one.name}<//> <small class="quiet mono">${one.id}</small></td>
        <td class="name">${one.workflow}</td>
        <td><${Status} status=${one.status} reason=${one.reason} /></td>
        <td><${Progress} cells=${one.cells} /></td>
        <td class="name">${one.session}</td>
        <td title=${date(one.created_at)}>${ago(one.created_at)}</td>
        <td class="num">${duration(between(one.started_at, one.finished_at))}</td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}
