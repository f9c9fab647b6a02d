/** Light or dark, or as the system has it; or on paper. */
import { effect, signal } from "./html.js";
import { isEmbedded } from "./router.js";

const KEPT = "wtb.theme";
export const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
export const theme = signal(isEmbedded ? "auto" : localStorage.getItem(KEPT) ?? "auto"); // a file may not keep anything

effect(() => {
  if (!isEmbedded) localStorage.setItem(KEPT, theme.value);
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** The value of a colour of the style sheet, for canvases. @param {string} name */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Whether the page is being printed: canvases are pictures of the screen, so views draw SVG instead. */
export const isPrinting = signal(false);
addEventListener("beforeprint", () => (isPrinting.value = true));
addEventListener("afterprint", () => (isPrinting.value = false));
