/** Whether the page is being printed: canvases are pictures of the screen, so views draw SVG instead. */
import { signal } from "./html.js";

export const isPrinting = signal(false);

addEventListener("beforeprint", () => (isPrinting.value = true));
addEventListener("afterprint", () => (isPrinting.value = false));
