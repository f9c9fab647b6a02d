/** What stands around every page: the side bar, and the sheet of keys. */
import { get, signOut } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { isSheetOpen } from "../lib/keys.js";
import { useResource } from "../lib/resource.js";
import { address, Link } from "../lib/router.js";
import { theme, THEMES } from "../lib/theme.js";
import { words } from "../lib/words.js";

const LOGO = new URL("../icon.svg", import.meta.url).href;
const ITEMS = Object.entries(words.nav); // each an address and its name
const ASK_AGAIN_MS = 10_000;

export function SideBar() {
  const questions = useResource((signal) => get("/approvals", { limit: 100 }, signal), [], ASK_AGAIN_MS);
  const open = questions.data?.groups?.length ?? 0;
  const { path } = address.value;
  const next = THEMES[(THEMES.indexOf(/** @type {any} */ (theme.value)) + 1) % THEMES.length];
  const [isOpen, setOpen] = useState(false); // where there is no room for all of it
  useEffect(() => setOpen(false), [path]);
  const count = open ? html`<span class="tag star">${open}<span class="seen-only-by-readers"> ${words.inbox.open}</span></span>` : null;
  return html`<nav class=${`side ${isOpen ? "is-open" : ""}`} aria-label=${words.title} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && setOpen(false)}>
    <${Link} to="/" class="brand"><img src=${LOGO} alt="" />WTB<//>
    <span class="here" aria-hidden="true">${ITEMS.find(([to]) => isHere(to, path))?.[1] ?? ""}</span>
    <button class="menu" aria-expanded=${isOpen} aria-controls="menu" onClick=${() => setOpen(!isOpen)}>${words.menu} ${count}</button>
    <div class="items" id="menu">
      ${ITEMS.map(
        ([to, name]) => html`<${Link} to=${to} class="item" aria-current=${isHere(to, path) ? "page" : undefined}>
          <span>${name}</span>${to === "/inbox" ? count : null}
        <//>`,
      )}
      <div class="foot">
        <${Link} to="/help/pages" class="item" aria-current=${path.startsWith("/help/") ? "page" : undefined}>${words.help.title}<//>
        <button class="plain" onClick=${() => (theme.value = next)}>${words.theme[/** @type {"auto"} */ (theme.value)]}</button>
        <button class="plain" onClick=${() => (isSheetOpen.value = true)}>${words.keys.title} <kbd>?</kbd></button>
        <button class="plain" onClick=${signOut}>${words.signIn.out}</button>
      </div>
    </div>
  </nav>`;
}

/** @param {string} to @param {string} path */
const isHere = (to, path) => (to === "/" ? path === "/" || /^\/(submit$|sweeps\/|executions\/|compare\/)/.test(path) : path.startsWith(to));

export function KeySheet() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const open = isSheetOpen.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return html`<dialog ref=${dialog} aria-label=${words.keys.title} onClose=${() => (isSheetOpen.value = false)}>
    <h2>${words.keys.title}</h2>
    <dl>${words.keys.list.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <form method="dialog"><button autofocus>${words.keys.close}</button></form>
  </dialog>`;
}
