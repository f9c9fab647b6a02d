/** What a tab of the browser, its history and screen readers call a page. */
import { useEffect } from "./html.js";

/** @param {string | undefined} title nothing as long as it is not known */
export function useTitle(title) {
  useEffect(() => {
    if (title) document.title = `${title} · WTB`;
  }, [title]);
}
