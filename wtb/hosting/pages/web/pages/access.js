/** Who may ask this server, and for what. */
import { get } from "../lib/api.js";
import { ago, date } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";

export function AccessPage() {
  const resource = useResource((signal) => get("/tokens", {}, signal), []);
  const rows = resource.data?.tokens ?? [];
  const { columns } = words.access;
  return html`<div class="head"><h1>${words.access.title}</h1></div>
    <${Waiting} resource=${resource} />
    ${resource.data && !rows.length ? html`<p class="quiet">${words.access.empty}</p>` : null}
    ${rows.length
      ? html`<div class="scroll" tabindex="0"><table><thead><tr>${Object.values(columns).map((name) => html`<th>${name}</th>`)}<th></th></tr></thead>
          <tbody>${rows.map((/** @type {any} */ one) => html`<tr><td class="name">${one.name}</td><td>${one.scopes.join(", ")}</td><td title=${date(one.expires_at)}>${ago(one.expires_at)}</td><td>${ago(one.used_at)}</td><td>${one.state}</td></tr>`)}</tbody></table></div>`
      : null}`;
}
