/** Status, progress and names, as they stand on every page. */
import { count } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
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

const ANNOUNCED_MS = 15_000; // between two announcements of something that goes on

/** What screen readers announce now and then of something that goes on, and when it has ended. @param {{text: string, isLive: boolean}} props */
export function Announced({ text, isLive }) {
  const [announced, setAnnounced] = useState("");
  const latest = useRef(text);
  const wasLive = useRef(isLive);
  latest.current = text;
  useEffect(() => {
    if (!isLive) return wasLive.current ? setAnnounced(latest.current) : undefined;
    wasLive.current = true;
    const timer = setInterval(() => setAnnounced(latest.current), ANNOUNCED_MS);
    return () => clearInterval(timer);
  }, [isLive]);
  return html`<span class="seen-only-by-readers" role="status">${announced}</span>`;
}
