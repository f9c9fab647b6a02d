/** Who may ask this server, and for what; who asked for what, and what was refused. */
import { get, identity, may, Problem } from "../lib/api.js";
import { ago, date } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";

const SHOWN = 50; // calls of the audit log

export function AccessPage() {
  const tokens = useResource((signal) => get("/tokens", {}, signal), []);
  const roles = useResource((signal) => get("/access", {}, signal), []);
  const you = identity.value;
  return html`<div class="head"><h1>${words.access.title}</h1></div>
    <p>${words.access.you(you?.name ?? words.access.operator, you?.scopes.join(", ") || words.none)}</p>
    <h2>${words.access.roles}</h2>
    <${Waiting} resource=${roles} />
    ${roles.data ? html`<${Roles} rows=${roles.data.access} />` : null}
    <h2>${words.access.tokens}</h2>
    ${roles.error ? null : html`<${Waiting} resource=${tokens} />`}
    ${tokens.data ? html`<${Tokens} rows=${tokens.data.tokens} />` : null}
    ${may("administer") ? html`<${Calls} />` : null}`;
}

/** @param {{rows: any[]}} props */
function Roles({ rows }) {
  if (!rows.length) return html`<p class="quiet">${words.access.noRoles}</p>`;
  return html`<${Table} columns=${words.access.roleColumns}>${rows.map(
    (one) => html`<tr><td class="name">${one.user ?? words.access.team(one.team)}</td><td>${one.role}</td><td class="name">${one.project ?? words.access.allProjects}</td><td class="name">${one.created_by}</td><td title=${date(one.created_at)}>${ago(one.created_at)}</td></tr>`,
  )}<//>`;
}

/** @param {{rows: any[]}} props */
function Tokens({ rows }) {
  if (!rows.length) return html`<p class="quiet">${words.access.empty}</p>`;
  return html`<${Table} columns=${words.access.columns}>${rows.map(
    (one) => html`<tr><td class="name">${one.name}</td><td>${one.scopes.join(", ")}</td><td title=${date(one.expires_at)}>${ago(one.expires_at)}</td><td>${ago(one.used_at)}</td><td>${one.state}</td></tr>`,
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
    ${calls && !calls.length ? html`<p class="quiet">${words.access.noCalls}</p>` : null}
    ${calls?.length
      ? html`<${Table} columns=${words.access.callColumns}>${calls.map(
          (/** @type {any} */ one) => html`<tr key=${one.number}><td title=${date(one.at)}>${ago(one.at)}</td><td class="name">${one.by}</td><td class="mono">${one.operation}</td><td class=${one.outcome === "failed" ? "bad" : ""}>${one.outcome}</td><td class="name">${one.error ?? ""}</td></tr>`,
        )}<//>`
      : null}`;
}

/** @param {{columns: Record<string, string>, children?: unknown}} props */
function Table({ columns, children }) {
  return html`<div class="scroll" tabindex="0"><table><thead><tr>${Object.values(columns).map((name) => html`<th>${name}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;
}
