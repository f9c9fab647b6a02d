/** Light or dark, or as the system has it. */
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
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
