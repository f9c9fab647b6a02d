/** Who may ask this server, and for what; who asked for what, and what was refused. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, identity, may, post, Problem } from "../lib/api.js";
import { ago, date } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";

const SHOWN = 50; // calls of the audit log
const SCOPES = ["read", "submit", "steer", "answer", "administer"];

export function AccessPage() {
  const tokens = useResource((signal) => get("/tokens", {}, signal), []);
  const roles = useResource((signal) => get("/access", {}, signal), []);
  const you = identity.value;
  const mayMake = may("administer");
  const isMaking = address.value.query.form === "token";
  const opener = mayMake && !isMaking ? html`<button onClick=${() => look({ form: "token" })}>${words.access.createToken}</button>` : null;
  return html`<div class="head"><h1>${words.access.title}</h1></div>
    <p>${words.access.you(you?.name ?? words.access.operator, you?.scopes.join(", ") || words.none)}</p>
    <h2>${words.access.roles}</h2>
    <${Waiting} resource=${roles} />
    ${roles.data ? html`<${Roles} rows=${roles.data.access} />` : null}
    <div class="head"><h2>${words.access.tokens}</h2><span class="grow"></span>${tokens.data?.tokens.length ? opener : null}</div>
    ${mayMake && isMaking ? html`<${NewToken} onDone=${tokens.reload} onClose=${() => look({ form: null })} />` : null}
    ${roles.error ? null : html`<${Waiting} resource=${tokens} />`}
    ${tokens.data ? html`<${Tokens} rows=${tokens.data.tokens}>${opener}<//>` : null}
    ${may("administer") ? html`<${Calls} />` : null}`;
}

/** A token that is made, which is shown once. @param {{onDone: () => void, onClose: () => void}} props */
function NewToken({ onDone, onClose }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["read"]);
  const [days, setDays] = useState("90");
  const [token, setToken] = useState(/** @type {any} */ (null));
  const { perform, problem, isBusy } = useAction(onDone);
  const submit = instead(() => perform(async () => setToken(await post("/tokens", { name, scopes, ...(days ? { expires_s: Number(days) * 86_400 } : {}) }))));
  if (token) return html`<div class="notice" role="status"><p>${words.access.tokenOnce(name)}</p><pre tabindex="0">${token.token}</pre><button onClick=${onClose}>${words.keys.close}</button></div>`;
  /** @param {string} scope */
  const toggle = (scope) => setScopes(scopes.includes(scope) ? scopes.filter((other) => other !== scope) : [...scopes, scope]);
  return html`<section class="notice" aria-label=${words.access.createToken}><h3>${words.access.createToken}</h3>
    <form class="fields" onSubmit=${submit}>
      <label>${words.access.tokenName}<input required autofocus value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
      <fieldset><legend>${words.access.tokenScopes}</legend>${SCOPES.map((scope) => html`<label><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} />${scope}</label>`)}</fieldset>
      <label>${words.access.tokenExpires}<input type="number" min="1" value=${days} onInput=${(/** @type {any} */ event) => setDays(event.target.value)} /></label>
      <${Refused} problem=${problem} />
      <div class="bar"><button class="main" disabled=${isBusy || !scopes.length}>${words.access.createToken}</button><button type="button" onClick=${onClose}>${words.access.close}</button></div>
    </form></section>`;
}

/** @param {{rows: any[]}} props */
function Roles({ rows }) {
  if (!rows.length) return html`<${Empty} text=${words.access.noRoles} help="access" command=${words.access.firstRole} />`;
  return html`<${Table} columns=${words.access.roleColumns}>${rows.map(
    (assignment) => html`<tr><td class="name">${assignment.user ?? words.access.team(assignment.team)}</td><td>${assignment.role}</td><td class="name">${assignment.project ?? words.access.allProjects}</td><td class="name">${assignment.created_by}</td><td title=${date(assignment.created_at)}>${ago(assignment.created_at)}</td></tr>`,
  )}<//>`;
}

/** @param {{rows: any[], children?: unknown}} props children: what makes one */
function Tokens({ rows, children }) {
  if (!rows.length) return html`<${Empty} text=${words.access.empty} help="access">${children}<//>`;
  return html`<${Table} columns=${words.access.columns}>${rows.map(
    (token) => html`<tr><td class="name">${token.name}</td><td>${token.scopes.join(", ")}</td><td title=${date(token.expires_at)}>${ago(token.expires_at)}</td><td>${ago(token.used_at)}</td><td>${token.state}</td></tr>`,
  )}<//>`;
}

/** What people asked for that changes something, with why it was refused: by scopes, roles, or a policy. */
function Calls() {
  const resource = useResource(async (signal) => {
    try {
      return await get("/audit", { limit: SHOWN }, signal);
    } catch (error) {
      if (error instanceof Problem && error.status === 403) return { audit: null }; // it is about all projects
      throw error;
    }
  }, []);
  const calls = resource.data?.audit;
  if (calls === null) return null;
  return html`<h2>${words.access.calls}</h2>
    <${Waiting} resource=${resource} />
    ${calls && !calls.length ? html`<${Empty} text=${words.access.noCalls} help="access" />` : null}
    ${calls?.length
      ? html`<${Table} columns=${words.access.callColumns}>${calls.map(
          (/** @type {any} */ call) => html`<tr key=${call.number}><td title=${date(call.at)}>${ago(call.at)}</td><td class="name">${call.by}</td><td class="mono">${call.operation}</td><td class=${call.outcome === "failed" ? "bad" : ""}>${call.outcome}</td><td class="name">${call.error ?? ""}</td></tr>`,
        )}<//>`
      : null}`;
}

/** @param {{columns: Record<string, string>, children?: unknown}} props */
function Table({ columns, children }) {
  return html`<div class="scroll" tabindex="0"><table><thead><tr>${Object.values(columns).map((name) => html`<th>${name}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;
}
