/** All sweeps: how far each is, and any two of them to compare. */
import { get, may, segment } from "../lib/api.js";
import { ago, between, date, duration, largestOf, usd } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look, navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";
import { Progress, Status } from "../views/status.js";

const STATUSES = /** @type {const} */ (["running", "pending", "waiting", "paused", "completed", "failed", "cancelled"]);
const ASK_AGAIN_MS = 3_000;
const OPEN = ["running", "pending", "waiting", "paused"];
const ENDED = ["completed", "failed", "cancelled"];
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
  const costs = useCosts(found);
  const decisions = useDecisions(found);
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
    ${resource.data && !rows.length ? (text || status
      ? html`<${Empty} text=${words.sweeps.noneMatch} help="pages"><button onClick=${() => look({ text: null, status: null })}>${words.sweeps.showAll}</button><//>`
      : html`<${Empty} text=${words.sweeps.empty} help="sweep-file" command=${words.sweeps.first}>${may("submit") ? html`<${Link} class="button" to="/submit">${words.submit.title}<//>` : null}<//>`) : null}
    ${rows.length ? html`<${Table} rows=${rows} decisions=${decisions} costs=${costs} chosen=${chosen} toggle=${toggle} />` : null}
    ${found.length > Number(limit)
      ? html`<button onClick=${() => look({ limit: String(Number(limit) + PAGE) })}>${words.sweeps.more}</button>`
      : null}`;
}

/**
 * What each has cost so far, by id: of those that are open as they stand, of all others as of when one of them ended.
 * @param {any[]} sweeps @returns {Map<string, number>}
 */
function useCosts(sweeps) {
  const ended = sweeps.filter((one) => !OPEN.includes(one.status)).length;
  const hasOpen = sweeps.length > ended;
  const all = useResource((signal) => get("/costs", { by: "sweep" }, signal), []);
  const open = useResource((signal) => (hasOpen ? get("/watch", {}, signal) : Promise.resolve({ sweeps: [] })), [hasOpen], ASK_AGAIN_MS);
  const isKnown = sweeps.length > 0;
  const seen = useRef(/** @type {number | null} */ (null));
  useEffect(() => {
    if (!isKnown) return;
    if (seen.current !== null && ended !== seen.current) all.reload(); // not as soon as there is a list: that was asked for already
    seen.current = ended;
  }, [ended, isKnown]);
  const spent = [...(all.data?.rows ?? []).map((/** @type {any} */ one) => [one.sweep, one.usd]), ...(open.data?.sweeps ?? []).map((/** @type {any} */ one) => [one.id, one.usd])];
  return new Map(spent);
}

const AT_ONCE = 4; // decisions that are asked for together
const decided = /** @type {Map<string, any>} */ (new Map()); // of sweeps that have ended, which keep theirs

/** What each sweep that has ended came to, by id; read a few at a time. @param {any[]} sweeps @returns {Map<string, any>} */
function useDecisions(sweeps) {
  const [, setCount] = useState(0);
  const ids = sweeps.filter((one) => ENDED.includes(one.status) && !decided.has(one.id)).map((one) => one.id).join(" ");
  useEffect(() => {
    const waiting = ids ? ids.split(" ") : [];
    const stop = new AbortController();
    async function readNext() {
      for (let id = waiting.shift(); id && !stop.signal.aborted; id = waiting.shift()) {
        if (decided.has(id)) continue;
        const found = await get(`/sweeps/${segment(id)}/decision`, {}, stop.signal).catch(() => null);
        if (stop.signal.aborted) return;
        decided.set(id, found?.decision ?? null);
        if (!waiting.length || decided.size % AT_ONCE === 0) setCount((count) => count + 1);
      }
    }
    for (let one = 0; one < AT_ONCE; one++) readNext();
    return () => stop.abort();
  }, [ids]);
  return decided;
}

/** @param {any} one @param {string} text */
function matches(one, text) {
  const wanted = text.toLowerCase();
  return [one.name, one.workflow, one.id, one.session].some((part) => part?.toLowerCase().includes(wanted));
}

/** @param {{rows: any[], decisions: Map<string, any>, costs: Map<string, number>, chosen: string[], toggle: (id: string) => void}} props */
function Table({ rows, decisions, costs, chosen, toggle }) {
  const { columns } = words.sweeps;
  const costliest = largestOf(rows.map((one) => costs.get(one.id)));
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th><span class="seen-only-by-readers">${words.sweeps.compare}</span></th>
      ${Object.entries(columns).map(([key, name]) => html`<th class=${["score", "cost", "took"].includes(key) ? "num" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (one) => html`<tr key=${one.id} class=${chosen.includes(one.id) ? "chosen" : ""}>
        <td><input type="checkbox" aria-label=${`${words.sweeps.compare}: ${one.name}`} checked=${chosen.includes(one.id)} onChange=${() => toggle(one.id)} /></td>
        <td class="name"><${Link} to=${`/sweeps/${segment(one.id)}`}>${one.name}<//> <small class="quiet mono">${one.id}</small></td>
        <td class="name">${one.workflow}</td>
        <td><${Status} status=${one.status} reason=${one.reason} /></td>
        <${Outcome} decision=${decisions.get(one.id)} />
        <td><${Progress} cells=${one.cells} />${one.cells.waiting ? html`<small><${Link} to="/inbox">${words.sweeps.wait(one.cells.waiting)}<//></small>` : null}</td>
        <td class="num">${costs.get(one.id) ? usd(costs.get(one.id), costliest) : ""}</td>
        <td class="name">${one.session}</td>
        <td title=${date(one.created_at)}>${ago(one.created_at)}</td>
        <td class="num">${duration(between(one.started_at, one.finished_at))}</td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/** The score of what a sweep recommends, and what its gates say. @param {{decision: any}} props */
function Outcome({ decision }) {
  const [name, value] = decision?.score ?? [];
  const hasGates = Boolean(decision?.verdict);
  const text = hasGates ? words.sweeps.gates[/** @type {"good"} */ (decision.verdict_tone)] : words.sweeps.noGates;
  return html`<td class="num" title=${name}>${value?.split(",")[0] ?? ""}</td>
    <td title=${decision?.title}>${decision ? html`<span class=${hasGates ? decision.verdict_tone : "quiet"}>${text}</span>` : ""}</td>`;
}
