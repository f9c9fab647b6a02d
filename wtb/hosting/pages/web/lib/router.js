/** The address is the state of a page: its path says which page it is, its query how it is looked at. */
import { html, signal, useEffect } from "./html.js";

/** Whether this is part of a file: it has no other pages, no server, and its view stands behind the # of its address. */
export const isEmbedded = document.documentElement.dataset.embedded !== undefined;

export const address = signal(read());

function read() {
  if (isEmbedded) return { path: "", query: Object.fromEntries(new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "")) };
  return { path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

if (isEmbedded) addEventListener("hashchange", () => location.hash.startsWith("#?") && (address.value = read()));
else addEventListener("popstate", () => (address.value = read()));

/** @param {string} url @param {{replace?: boolean}} [how] */
export function navigate(url, how = {}) {
  if (isEmbedded) {
    history.replaceState(null, "", `#${url || "?"}`);
    address.value = read();
    if (!how.replace) document.getElementById(address.value.query.tab ?? "")?.scrollIntoView();
    return;
  }
  if (how.replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  address.value = read();
  if (!how.replace) scrollTo(0, 0);
}

/** The address of this page looked at otherwise: what is empty is left out. @param {Record<string, string | null>} changes */
export function addressWith(changes) {
  const query = { ...address.value.query };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") delete query[name];
    else query[name] = value;
  }
  const text = new URLSearchParams(query).toString();
  return address.value.path + (text ? `?${text}` : "");
}

/** Change how a page is looked at. @param {Record<string, string | null>} changes */
export function look(changes) {
  navigate(addressWith(changes), { replace: true });
}

/** A link within the pages. @param {any} props */
export function Link({ to, children, ...rest }) {
  /** @param {MouseEvent} event */
  function go(event) {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  }
  return html`<a href=${to} onClick=${go} ...${rest}>${children}</a>`;
}

/** What a tab of the browser, its history and screen readers call a page. @param {string | undefined} title nothing as long as it is not known */
export function useTitle(title) {
  useEffect(() => {
    if (title) document.title = `${title} · WTB`;
  }, [title]);
}
