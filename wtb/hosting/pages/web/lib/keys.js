/** Keys that work on every page. */
import { signal, useEffect, useRef } from "./html.js";
import { navigate } from "./router.js";

export const isSheetOpen = signal(false);

const PLACES = /** @type {Record<string, string>} */ ({ s: "/", i: "/inbox", c: "/costs", w: "/workers" });

/** Call something for each key that is neither typed into a field nor a shortcut of the browser. @param {string} fields a selector @param {(event: KeyboardEvent, target: HTMLElement) => void} onKey */
export function useKeydown(fields, onKey) {
  const latest = useRef(onKey);
  latest.current = onKey;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    function on(event) {
      const target = /** @type {HTMLElement} */ (event.target);
      if (!event.metaKey && !event.ctrlKey && !event.altKey && !target.closest(fields)) latest.current(event, target);
    }
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  }, []);
}

export function useKeys() {
  const goes = useRef(false);
  useKeydown("input, textarea, select", (event) => {
    if (event.key === "?") isSheetOpen.value = true;
    else if (event.key === "/") {
      const filter = /** @type {HTMLElement | null} */ (document.querySelector("[data-filter]"));
      if (!filter) return;
      event.preventDefault();
      filter.focus();
    } else if (goes.current && PLACES[event.key]) navigate(PLACES[event.key]);
    goes.current = event.key === "g";
  });
}
