/** By which metric rows are compared. */
import { html } from "../lib/html.js";
import { look } from "../lib/router.js";
import { words } from "../lib/words.js";

/** @param {{matrix: any, metric: string}} props */
export function MetricChoice({ matrix, metric }) {
  return html`<label>${words.sweep.metric}
    <select value=${metric} onChange=${(/** @type {any} */ event) => look({ metric: event.target.value })}>
      ${Object.keys(matrix.metrics).map((name) => html`<option value=${name}>${name}${matrix.metrics[name].better === "lower" ? " ↓" : " ↑"}</option>`)}
    </select></label>`;
}
