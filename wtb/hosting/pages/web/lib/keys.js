/** Keys that work on every page. */
import { signal, useEffect } from "./html.js";
import { navigate } from "./router.js";

export const isSheetOpen = signal(false);

const PLACES = /** @type {Record<string, string>} */ ({ s: "/", i: "/inbox", c: "/costs", w: "/workers" });

export function useKeys() {
  useEffect(() => {
    let goes = false;
    /** @param {KeyboardEvent} event */
    function on(event) {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.metaKey || event.ctrlKey || event.altKey || target.closest("input, textarea, select")) return;
      if (event.key === "?") isSheetOpen.value = true;
      else if (event.key === "/") {
        const filter = /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"));
        if (!filter) return;
        event.preventDefault();
        filter.focus();
      } else if (goes && PLACES[event.key]) navigate(PLACES[event.key]);
      goes = event.key === "g";
    }
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  }, []);
}
