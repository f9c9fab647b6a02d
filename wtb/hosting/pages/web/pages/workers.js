/** Who works, on what, and how long the queues are. */
import { get } from "../lib/api.js";
import { count, duration } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";

export function WorkersPage() {
  const resource = useResource((signal) => get("/watch", {}, signal), [], 2_000);
  const stack = useResource((signal) => get("/stack", {}, signal), []);
  const found = resource.data;
  const { columns, queueColumns } = words.workers;
  return html`<div class="head"><h1>${words.workers.title}</h1><span class="grow"></span>${stack.data?.flower ? html`<a href=${stack.data.flower} rel="noopener noreferrer" target="_blank">${words.workers.flower}</a>` : null}</div>
    <${Waiting} resource=${resource} />
    ${found && !found.workers.length ? html`<${Empty} text=${words.workers.none} help="workers" command=${words.workers.first} />` : null}
    ${found?.broker?.problem ? html`<p class="notice">${found.broker.problem}</p>` : null}
    ${found?.workers.length
      ? html`<div class="scroll" tabindex="0"><table><thead><tr><th>${columns.name}</th><th>${columns.queues}</th><th class="num">${columns.busy}</th><th class="num">${columns.slots}</th><th class="num">${columns.seen}</th><th>${columns.version}</th></tr></thead>
          <tbody>${found.workers.map((/** @type {any} */ one) => html`<tr><td class="name">${one.name}</td><td>${one.queues?.join(", ")}</td><td class="num">${count(one.busy)}</td><td class="num">${count(one.slots)}</td><td class="num">${duration(one.seen_s)}</td><td>${one.version}</td></tr>`)}</tbody></table></div>`
      : null}
    ${found?.queues.length
      ? html`<h2>${words.workers.queues}</h2><div class="scroll" tabindex="0"><table><thead><tr><th>${queueColumns.name}</th><th class="num">${queueColumns.messages}</th><th class="num">${queueColumns.pending}</th><th class="num">${queueColumns.workers}</th></tr></thead>
          <tbody>${found.queues.map((/** @type {any} */ one) => html`<tr><td>${one.name}</td><td class="num">${count(one.messages)}</td><td class="num">${count(one.pending)}</td><td class="num">${count(one.workers)}</td></tr>`)}</tbody></table></div>`
      : null}`;
}
