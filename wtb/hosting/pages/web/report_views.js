/** Views of the pages as parts of the report, which is one file: their data stand in the document, and nothing is asked of a server. */
import { html, render } from "./lib/html.js";
import { rowsByEvidence } from "./lib/matrix_view.js";
import { fromFile } from "./lib/output_file.js";
import { MatrixViews } from "./views/matrix_view.js";
import { Outputs } from "./views/outputs.js";

const data = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("views-data")).textContent ?? "");
const { matrix } = data;

/** Draw a view into the part of the document that is kept for it, where styles of the report end. @param {string} name @param {any} view */
function draw(name, view) {
  const host = document.getElementById(`${name}-view`);
  if (!host) return;
  const root = host.attachShadow({ mode: "open" });
  const followTheme = () => (document.documentElement.dataset.theme ? (host.dataset.theme = document.documentElement.dataset.theme) : delete host.dataset.theme);
  new MutationObserver(followTheme).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  followTheme();
  const style = document.createElement("style");
  style.textContent = data.style;
  const place = document.createElement("div");
  root.append(style, place);
  render(view, place);
}

draw("rows", html`<${MatrixViews} matrix=${matrix} />`);
draw("outputs", html`<${Outputs} sweep=${matrix.sweep.id} matrix=${matrix} metric=${matrix.primary} order=${rowsByEvidence(matrix, matrix.primary)} source=${data.outputs ? fromFile(data) : undefined} />`);
