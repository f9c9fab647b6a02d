/** The rows of a matrix with all ways to see them: as a table that is filtered, sorted and grouped, or as a pivot table. */
import { html } from "../lib/html.js";
import { rowsOf, viewOf } from "../lib/matrix_view.js";
import { matrixWords as texts } from "../lib/matrix_words.js";
import { address } from "../lib/router.js";
import { Filtered, MatrixControls } from "./matrix_controls.js";
import { MatrixTable } from "./matrix_table.js";
import { MetricChoice } from "./metric_choice.js";
import { PivotTable } from "./pivot_table.js";

/** The rows as the address wants to see them. @param {{matrix: any, metric: string, order: number[], view: import("../lib/matrix_view.js").View}} props */
export function ViewedRows({ matrix, metric, order, view }) {
  if (!order.length) return html`<p class="quiet">${texts.none}</p>`;
  if (view.pivot.length) return html`<${PivotTable} matrix=${matrix} metric=${view.measure ?? metric} rows=${order} view=${view} />`;
  return html`<${MatrixTable} matrix=${matrix} metric=${metric} order=${order} group=${view.group} sort=${view.sort} />`;
}

/** For a file, which has no page around it. @param {{matrix: any}} props */
export function MatrixViews({ matrix }) {
  const { query } = address.value;
  const metric = query.metric in matrix.metrics ? query.metric : matrix.primary;
  const view = viewOf(query, matrix, metric);
  const order = rowsOf(matrix, metric, view);
  return html`<div class="bar"><${MetricChoice} matrix=${matrix} metric=${metric} /><${MatrixControls} matrix=${matrix} metric=${metric} view=${view} /></div>
    <${Filtered} matrix=${matrix} order=${order} view=${view} />
    <${ViewedRows} matrix=${matrix} metric=${metric} order=${order} view=${view} />`;
}
