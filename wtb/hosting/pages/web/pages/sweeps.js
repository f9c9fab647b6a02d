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
  const [selected, setSelected] = useState(/** @type {string[]} */ ([]));
  const sweeps = /** @type {any[]} */ (resource.data?.sweeps ?? []);
  const costs = useCosts(sweeps);
  const decisions = useDecisions(sweeps);
  const rows = sweeps.slice(0, Number(limit)).filter((sweep) => matches(sweep, text));
  /** @param {string} id */
  const toggle = (id) => setSelected((ids) => (ids.includes(id) ? ids.filter((other) => other !== id) : [...ids, id].slice(-2)));
  /** The older one is what the newer one is held against. */
  function compare() {
    const order = rows.map((sweep) => sweep.id);
    const [newer, older] = [...selected].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    navigate(`/compare/${segment(older)}/${segment(newer)}`);
  }
  return html`<div class="head"><h1>${words.sweeps.title}</h1><span class="grow"></span>${may("submit") ? html`<${Link} to="/submit">${words.submit.title}<//>` : null}</div>
    <div class="bar">
      <input type="search" data-filter placeholder=${words.sweeps.filter} aria-label=${words.sweeps.filter} value=${text}
        onInput=${(/** @type {any} */ event) => look({ text: event.target.value })} />
      <select aria-label=${words.sweeps.status} value=${status} onChange=${(/** @type {any} */ event) => look({ status: event.target.value })}>
        <option value="">${words.sweeps.anyStatus}</option>
        ${STATUSES.map((name) => html`<option value=${name}>${words.status[name]}</option>`)}
      </select>
      <button onClick=${compare} disabled=${selected.length !== 2} title=${words.sweeps.chooseTwo}>${words.sweeps.compare}</button>
    </div>
    <${Waiting} resource=${resource} />
    ${resource.data && !rows.length ? (text || status
      ? html`<${Empty} text=${words.sweeps.noneMatch} help="pages"><button onClick=${() => look({ text: null, status: null })}>${words.sweeps.showAll}</button><//>`
      : html`<${Empty} text=${words.sweeps.empty} help="sweep-file" command=${words.sweeps.first}>${may("submit") ? html`<${Link} class="button" to="/submit">${words.submit.title}<//>` : null}<//>`) : null}
    ${rows.length ? html`<${Table} rows=${rows} decisions=${decisions} costs=${costs} selected=${selected} toggle=${toggle} />` : null}
    ${sweeps.length > Number(limit)
      ? html`<button onClick=${() => look({ limit: String(Number(limit) + PAGE) })}>${words.sweeps.more}</button>`
      : null}`;
}

/** What each has cost so far, by id: of those that are open as they stand, of all others as of when one of them ended. @param {any[]} sweeps @returns {Map<string, number>} */
function useCosts(sweeps) {
  const ended = sweeps.filter((sweep) => !OPEN.includes(sweep.status)).length;
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
  const spent = [...(all.data?.rows ?? []).map((/** @type {any} */ row) => [row.sweep, row.usd]), ...(open.data?.sweeps ?? []).map((/** @type {any} */ row) => [row.id, row.usd])];
  return new Map(spent);
}

const AT_ONCE = 4; // decisions that are asked for together
const decided = /** @type {Map<string, any>} */ (new Map()); // of sweeps that have ended, which keep theirs

/** What each sweep that has ended came to, by id; read a few at a time. @param {any[]} sweeps @returns {Map<string, any>} */
function useDecisions(sweeps) {
  const [, setCount] = useState(0);
  const ids = sweeps.filter((sweep) => ENDED.includes(sweep.status) && !decided.has(sweep.id)).map((sweep) => sweep.id).join(" ");
  useEffect(() => {
    const waiting = ids ? ids.split(" ") : [];
    const stop = new AbortController();
    async function readNext() {
      for (let id = waiting.shift(); id && !stop.signal.aborted; id = waiting.shift()) {
        if (decided.has(id)) continue;
        const answer = await get(`/sweeps/${segment(id)}/decision`, {}, stop.signal).catch(() => null);
        if (stop.signal.aborted) return;
        decided.set(id, answer?.decision ?? null);
        if (!waiting.length || decided.size % AT_ONCE === 0) setCount((count) => count + 1);
      }
    }
    for (let reader = 0; reader < AT_ONCE; reader++) readNext();
    return () => stop.abort();
  }, [ids]);
  return decided;
}

/** @param {any} sweep @param {string} text */
function matches(sweep, text) {
  const needle = text.toLowerCase();
  return [sweep.name, sweep.workflow, sweep.id, sweep.session].some((part) => part?.toLowerCase().includes(needle));
}

/** @param {{rows: any[], decisions: Map<string, any>, costs: Map<string, number>, selected: string[], toggle: (id: string) => void}} props */
function Table({ rows, decisions, costs, selected, toggle }) {
  const { columns } = words.sweeps;
  const costliest = largestOf(rows.map((sweep) => costs.get(sweep.id)));
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th><span class="seen-only-by-readers">${words.sweeps.compare}</span></th>
      ${Object.entries(columns).map(([key, name]) => html`<th class=${["score", "cost", "took"].includes(key) ? "num" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (sweep) => html`<tr key=${sweep.id} class=${selected.includes(sweep.id) ? "chosen" : ""}>
        <td><input type="checkbox" aria-label=${`${words.sweeps.compare}: ${sweep.name}`} checked=${selected.includes(sweep.id)} onChange=${() => toggle(sweep.id)} /></td>
        <td class="name"><${Link} to=${`/sweeps/${segment(sweep.id)}`}>${sweep.name}<//> <small class="quiet mono">${sweep.id}</small></td>
        <td class="name">${sweep.workflow}</td>
        <td><${Status} status=${sweep.status} reason=${sweep.reason} /></td>
        <${Outcome} decision=${decisions.get(sweep.id)} />
        <td><${Progress} cells=${sweep.cells} />${sweep.cells.waiting ? html`<small><${Link} to="/inbox">${words.sweeps.wait(sweep.cells.waiting)}<//></small>` : null}</td>
        <td class="num">${costs.get(sweep.id) ? usd(costs.get(sweep.id), costliest) : ""}</td>
        <td class="name">${sweep.session}</td>
        <td title=${date(sweep.created_at)}>${ago(sweep.created_at)}</td>
        <td class="num">${duration(between(sweep.started_at, sweep.finished_at))}</td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/** The score of what a sweep recommends, and what its gates say. @param {{decision: any}} props */
function Outcome({ decision }) {
  const [name, score] = decision?.score ?? [];
  const hasGates = Boolean(decision?.verdict);
  const text = hasGates ? words.sweeps.gates[/** @type {"good"} */ (decision.verdict_tone)] : words.sweeps.noGates;
  return html`<td class="num" title=${name}>${score?.split(",")[0] ?? ""}</td>
    <td title=${decision?.title}>${decision ? html`<span class=${hasGates ? decision.verdict_tone : "quiet"}>${text}</span>` : ""}</td>`;
}
