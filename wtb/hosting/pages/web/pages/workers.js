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
  const stand = resource.data;
  const { columns, queueColumns } = words.workers;
  return html`<div class="head"><h1>${words.workers.title}</h1><span class="grow"></span>${stack.data?.flower ? html`<a href=${stack.data.flower} rel="noopener noreferrer" target="_blank">${words.workers.flower}</a>` : null}</div>
    <${Waiting} resource=${resource} />
    ${stand && !stand.workers.length ? html`<${Empty} text=${words.workers.none} help="workers" command=${words.workers.first} />` : null}
    ${stand?.broker?.problem ? html`<p class="notice">${stand.broker.problem}</p>` : null}
    ${stand?.workers.length
      ? html`<div class="scroll" tabindex="0"><table><thead><tr><th>${columns.name}</th><th>${columns.queues}</th><th class="num">${columns.busy}</th><th class="num">${columns.slots}</th><th class="num">${columns.seen}</th><th>${columns.version}</th></tr></thead>
          <tbody>${stand.workers.map((/** @type {any} */ worker) => html`<tr><td class="name">${worker.name}</td><td>${worker.queues?.join(", ")}</td><td class="num">${count(worker.busy)}</td><td class="num">${count(worker.slots)}</td><td class="num">${duration(worker.seen_s)}</td><td>${worker.version}</td></tr>`)}</tbody></table></div>`
      : null}
    ${stand?.queues.length
      ? html`<h2>${words.workers.queues}</h2><div class="scroll" tabindex="0"><table><thead><tr><th>${queueColumns.name}</th><th class="num">${queueColumns.messages}</th><th class="num">${queueColumns.pending}</th><th class="num">${queueColumns.workers}</th></tr></thead>
          <tbody>${stand.queues.map((/** @type {any} */ queue) => html`<tr><td>${queue.name}</td><td class="num">${count(queue.messages)}</td><td class="num">${count(queue.pending)}</td><td class="num">${count(queue.workers)}</td></tr>`)}</tbody></table></div>`
      : null}`;
}
