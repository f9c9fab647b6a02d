/** The rows of a matrix as a table that is filtered, sorted and grouped, or as a pivot table. */
import { html } from "../lib/html.js";
import { matrixWords as texts } from "../lib/matrix_words.js";
import { MatrixTable } from "./matrix_table.js";
import { PivotTable } from "./pivot_table.js";

/** The rows as the address wants to see them. @param {{matrix: any, metric: string, order: number[], view: import("../lib/matrix_view.js").View}} props */
export function ViewedRows({ matrix, metric, order, view }) {
  if (!order.length) return html`<p class="quiet">${texts.none}</p>`;
  if (view.pivot.length) return html`<${PivotTable} matrix=${matrix} metric=${view.measure ?? metric} rows=${order} view=${view} />`;
  return html`<${MatrixTable} matrix=${matrix} metric=${metric} order=${order} group=${view.group} sort=${view.sort} />`;
}
