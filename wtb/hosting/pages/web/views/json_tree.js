/** JSON as a tree that is folded below its first levels; what is in it is text, whatever it looks like. */
import { visible } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

const OPEN = 2; // levels
const SHOWN = 50; // entries before somebody asks for more

/** @param {{value: unknown, name?: string | null, depth?: number}} props */
export function JsonTree({ value, name = null, depth = 0 }) {
  const [isOpen, setOpen] = useState(depth < OPEN);
  const [limit, setLimit] = useState(SHOWN);
  const label = name === null ? null : html`<span class="key">${visible(name)}: </span>`;
  if (typeof value !== "object" || value === null) return html`<div class="leaf">${label}<span class=${`j-${typeof value}`} dir="auto">${typeof value === "string" ? visible(value) : String(value)}</span></div>`;
  const entries = Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return html`<div class="leaf">${label}${open}${close}</div>`;
  return html`<details open=${isOpen} onToggle=${(/** @type {any} */ event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>${label}<span class="quiet">${open}${entries.length}${close}</span></summary>
    ${isOpen ? entries.slice(0, limit).map(([key, child]) => html`<${JsonTree} key=${key} value=${child} name=${key} depth=${depth + 1} />`) : null}
    ${isOpen && entries.length > limit ? html`<button class="plain" onClick=${() => setLimit(limit + 200)}>${words.execution.more(entries.length - limit)}</button>` : null}
  </details>`;
}
