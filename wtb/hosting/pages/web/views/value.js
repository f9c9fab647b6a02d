/** A value of a state, of which the beginning is shown until somebody asks for all of it. */
import { readable } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

const CUT = 4_000; // characters

/** @param {{value: unknown}} props */
export function Value({ value }) {
  const [whole, setWhole] = useState(false);
  const text = readable(value);
  if (text.length <= 80 && !text.includes("\n")) return html`<code>${text}</code>`;
  const visibleText = whole ? text : text.slice(0, CUT);
  return html`<pre tabindex="0">${visibleText}</pre>${visibleText.length < text.length ? html`<button class="plain" onClick=${() => setWhole(true)}>${words.execution.showWhole}</button>` : null}`;
}
