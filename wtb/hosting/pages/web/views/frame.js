/** What stands around every page: the side bar, and the sheet of keys. */
import { get, signOut } from "../lib/api.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { isSheetOpen } from "../lib/keys.js";
import { useResource } from "../lib/resource.js";
import { address, Link } from "../lib/router.js";
import { theme, THEMES } from "../lib/theme.js";
import { words } from "../lib/words.js";

const LOGO = new URL("../icon.svg", import.meta.url).href;
const ITEMS = /** @type {[string, string][]} */ ([
  ["/", words.nav.sweeps],
  ["/inbox", words.nav.inbox],
  ["/schedules", words.nav.schedules],
  ["/workers", words.nav.workers],
  ["/costs", words.nav.costs],
  ["/access", words.nav.access],
]);
const ASK_AGAIN_MS = 10_000;

export function SideBar() {
  const questions = useResource((signal) => get("/approvals", { limit: 100 }, signal), [], ASK_AGAIN_MS);
  const open = questions.data?.groups?.length ?? 0;
  const { path } = address.value;
  const next = THEMES[(THEMES.indexOf(/** @type {any} */ (theme.value)) + 1) % THEMES.length];
  return html`<nav class="side" aria-label=${words.title}>
    <${Link} to="/" class="brand"><img src=${LOGO} alt="" />WTB<//>
    ${ITEMS.map(
      ([to, name]) => html`<${Link} to=${to} class="item" aria-current=${isHere(to, path) ? "page" : undefined}>
        <span>${name}</span>${to === "/inbox" && open ? html`<span class="tag star">${open}</span>` : null}
      <//>`,
    )}
    <div class="foot">
      <button class="plain" onClick=${() => (theme.value = next)}>${words.theme[/** @type {"auto"} */ (theme.value)]}</button>
      <button class="plain" onClick=${() => (isSheetOpen.value = true)}>${words.keys.title} <kbd>?</kbd></button>
      <button class="plain" onClick=${signOut}>${words.signIn.out}</button>
    </div>
  </nav>`;
}

/** @param {string} to @param {string} path */
function isHere(to, path) {
  return to === "/" ? path === "/" || /^\/(submit$|sweeps\/|executions\/|compare\/)/.test(path) : path.startsWith(to);
}

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
