/** Status, progress and names, as they stand on every page. */
import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";

/** @param {{status: string, reason?: string | null}} props */
export function Status({ status, reason }) {
  const name = words.status[/** @type {"running"} */ (status)] ?? status;
  return html`<span class="status" title=${reason ?? undefined}><i class="dot ${status}" aria-hidden="true"></i>${name}</span>`;
}

const SHOWN = ["succeeded", "failed", "set_aside", "running", "waiting", "skipped", "cancelled"];

/** How many cells are where, as a bar and in words. @param {{cells: Record<string, number>, names?: Record<string, string>}} props what statuses are called, where it is not cells that are counted */
export function Progress({ cells, names = words.status }) {
  const parts = SHOWN.filter((status) => cells[status]);
  const text = [...parts, ...(cells.pending ? ["pending"] : [])].map((status) => `${count(cells[status])} ${names[status]}`).join(", ");
  return html`<div title=${text}>
    <div class="progress" role="img" aria-label=${text || words.none}>
      ${parts.map((status) => html`<i class=${status} style=${{ width: `${(100 * cells[status]) / cells.total}%` }}></i>`)}
    </div>
    <small class="quiet">${names === words.status ? `${count(cells.total - (cells.pending + cells.running + cells.waiting))} / ${count(cells.total)}` : text}</small>
  </div>`;
}

/** A name set off from the text around it, whatever is in it. @param {{children?: unknown}} props */
export function Code({ children }) {
  return html`<code>${children}</code>`;
}
