/** Sessions, to which sweeps belong: what each uses of its quotas, and the quotas to change. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, may, post, segment } from "../lib/api.js";
import { ago, bytesOf, count, date, sizeText, usd } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";

const LIMITS = /** @type {const} */ (["memory", "disk", "node_runs", "usd", "tokens"]);
const SIZES = ["memory", "disk"];
const ASK_AGAIN_MS = 5_000;

export function SessionsPage() {
  const resource = useResource((signal) => get("/sessions", {}, signal), [], ASK_AGAIN_MS);
  const rows = resource.data?.sessions ?? [];
  const mayChange = may("administer");
  const { form } = address.value.query;
  const open = rows.find((/** @type {any} */ session) => `=${session.name}` === form); // no name begins so
  const close = () => look({ form: null });
  const done = () => {
    resource.reload();
    close();
  };
  return html`<div class="head"><h1>${words.sessions.title}</h1><span class="grow"></span>
      ${mayChange && form !== "new" ? html`<button onClick=${() => look({ form: "new" })}>${words.sessions.create}</button>` : null}</div>
    <p class="quiet">${words.sessions.legend}</p>
    <${Waiting} resource=${resource} />
    ${mayChange && form === "new" ? html`<${Form} key="new" session=${null} onDone=${done} onClose=${close} />` : null}
    ${mayChange && open ? html`<${Form} key=${open.name} session=${open} onDone=${done} onClose=${close} />` : null}
    ${resource.data && !rows.length ? html`<${Empty} text=${words.sessions.empty} help="data#quotas">${mayChange ? html`<button onClick=${() => look({ form: "new" })}>${words.sessions.create}</button>` : null}<//>` : null}
    ${rows.length ? html`<${Table} rows=${rows} mayChange=${mayChange} />` : null}`;
}

/** @param {{rows: any[], mayChange: boolean}} props */
function Table({ rows, mayChange }) {
  const { columns, limits } = words.sessions;
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${words.sessions.title}><table>
    <thead><tr><th>${columns.name}</th><th class="num">${columns.sweeps}</th>${LIMITS.map((limit) => html`<th>${limits[limit]}</th>`)}<th>${columns.active}</th>${mayChange ? html`<th><span class="seen-only-by-readers">${words.sessions.change}</span></th>` : null}</tr></thead>
    <tbody>${rows.map((session) => html`<tr key=${session.name}><td class="name"><b>${session.name}</b>${session.owner ? html` <small class="quiet">${session.owner}</small>` : null}</td>
      <td class="num"><${Link} to=${`/?text=${segment(session.name)}`}>${count(session.sweeps)}<//></td>
      ${LIMITS.map((limit) => html`<td><${Used} limit=${limit} used=${session.usage[limit]} limitAmount=${session.quota[limit]} /></td>`)}
      <td title=${date(session.active_at)}>${ago(session.active_at)}</td>
      ${mayChange ? html`<td><button class="plain" onClick=${() => look({ form: `=${session.name}` })}>${words.sessions.change}<span class="seen-only-by-readers"> ${session.name}</span></button></td>` : null}</tr>`)}</tbody></table></div>`;
}

/** @param {string} limit @param {number | null | undefined} amount */
function amountText(limit, amount) {
  if (amount === null || amount === undefined) return words.unknown;
  return SIZES.includes(limit) ? sizeText(amount) : limit === "usd" ? usd(amount) : count(amount);
}

/** What is used of a limit. @param {{limit: string, used: number | null, limitAmount: number | null}} props */
function Used({ limit, used, limitAmount }) {
  if (limitAmount === null || limitAmount === undefined) return html`${used ? amountText(limit, used) : ""} <small class="quiet">${words.sessions.noLimit}</small>`;
  const share = Math.min(1, (used ?? 0) / limitAmount);
  return html`${amountText(limit, used)} / ${amountText(limit, limitAmount)}
    <div class="progress" role="img" aria-label=${`${Math.round(100 * share)}%`}><i class=${share >= 1 ? "failed" : "succeeded"} style=${{ width: `${100 * share}%` }}></i></div>`;
}

/** A session that is made, or whose quotas are changed. @param {{session: any, onDone: () => void, onClose: () => void}} props */
function Form({ session, onDone, onClose }) {
  const before = (/** @type {string} */ limit) => (session?.quota[limit] === null || session === null ? "" : SIZES.includes(limit) ? sizeText(session.quota[limit]) : String(session.quota[limit]));
  const [name, setName] = useState("");
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ (Object.fromEntries(LIMITS.map((limit) => [limit, before(limit)]))));
  const { perform, problem, isBusy } = useAction(onDone);
  const submit = instead(() => perform(async () => {
    const changed = LIMITS.filter((limit) => typed[limit].trim() !== before(limit));
    const limits = Object.fromEntries(changed.map((limit) => [limit, valueOf(limit, typed[limit])]));
    await (session ? post(`/sessions/${segment(session.name)}/change`, { limits }) : post("/sessions", { name, quota: limits }));
  }));
  return html`<section class="notice" aria-label=${session ? words.sessions.changeOf(session.name) : words.sessions.create}><h2>${session ? words.sessions.changeOf(session.name) : words.sessions.create}</h2>
    <form class="fields" onSubmit=${submit}>
      ${session ? null : html`<label>${words.sessions.name}<input required autofocus value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>`}
      ${LIMITS.map((limit) => html`<label>${words.sessions.fields[limit]}<input value=${typed[limit]} inputmode=${SIZES.includes(limit) ? "text" : "decimal"} placeholder=${words.sessions.noLimit} onInput=${(/** @type {any} */ event) => setTyped({ ...typed, [limit]: event.target.value })} /></label>`)}
      <${Refused} problem=${problem} />
      <div class="bar"><button class="main" disabled=${isBusy}>${session ? words.sessions.save : words.sessions.create}</button><button type="button" onClick=${onClose}>${words.sessions.close}</button></div>
    </form></section>`;
}

/** A limit as it was typed; null lifts it. @param {string} limit @param {string} text */
function valueOf(limit, text) {
  if (!text.trim()) return null;
  if (SIZES.includes(limit)) return bytesOf(text);
  const number = Number(text.replaceAll(",", ""));
  if (!Number.isFinite(number)) throw new Error(words.sessions.wrongNumber(text));
  return number;
}
