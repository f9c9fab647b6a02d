/** The view of outputs as part of the report, which is one file: its data stand in the document, and nothing is asked of a server. */
import { html, render } from "./lib/html.js";
import { fromFile } from "./lib/output_file.js";
import { Outputs } from "./views/outputs.js";

const data = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("outputs-data")).textContent ?? "");
const { primary, rows } = data.matrix;
const meanOf = (/** @type {number} */ row) => (primary ? rows[row].metrics[primary]?.mean ?? -Infinity : 0) * (data.matrix.metrics[primary]?.better === "lower" ? -1 : 1);
const order = rows.map((/** @type {any} */ _, /** @type {number} */ row) => row).sort((/** @type {number} */ a, /** @type {number} */ b) => meanOf(b) - meanOf(a) || a - b);
const root = /** @type {HTMLElement} */ (document.getElementById("outputs-view")).attachShadow({ mode: "open" }); // styles of the report end here
const host = root.host;
const followTheme = () => (host instanceof HTMLElement) && (document.documentElement.dataset.theme ? (host.dataset.theme = document.documentElement.dataset.theme) : delete host.dataset.theme);
new MutationObserver(followTheme).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
followTheme();
const style = document.createElement("style");
style.textContent = data.style;
const place = document.createElement("div");
root.append(style, place);
render(html`<${Outputs} sweep=${data.matrix.sweep.id} matrix=${data.matrix} metric=${primary} order=${order} source=${fromFile(data)} />`, place);
