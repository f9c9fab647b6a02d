/** A list without anything in it: what would be there, what makes it, and where to read about it. */
import { html, useState } from "../lib/html.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";

/**
 * @param {object} props
 * @param {string} props.text one sentence
 * @param {string} props.help the page of the documentation, such as `results` or `judges#gates`
 * @param {string} [props.command] what a terminal makes it with, where no page can
 * @param {unknown} [props.children] the button or the link that makes it
 */
export function Empty({ text, help, command, children }) {
  return html`<div class="empty"><p>${text}</p>
    ${command ? html`<${Command} text=${command} />` : null}
    <div class="bar">${children}<${Link} to=${`/help/${help}`}>${words.help.about(words.help.names[/** @type {"pages"} */ (help.split("#")[0])] ?? help)}<//></div></div>`;
}

/** A command for a terminal, to be copied. @param {{text: string}} props */
function Command({ text }) {
  const [isCopied, setCopied] = useState(false);
  /** @param {Event} event */
  async function copy(event) {
    const code = /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (event.currentTarget).parentElement).querySelector("code");
    getSelection()?.selectAllChildren(/** @type {HTMLElement} */ (code)); // where the clipboard is not to be had, a key copies it
    await navigator.clipboard?.writeText(text).then(() => setCopied(true), () => {});
  }
  return html`<p class="command"><code>${text}</code> <button type="button" onClick=${copy}>${words.help.copy}</button> <span role="status" class="quiet">${isCopied ? words.help.copied : ""}</span></p>`;
}
