/** The other cells of the case that an execution is of, each beside it. */
import { get, segment } from "../lib/api.js";
import { combination, figure } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { Status } from "./status.js";

/** @param {{execution: any}} props its heading */
export function OtherCells({ execution }) {
  const [isOpen, setOpen] = useState(false);
  if (execution.sweep.kind === "single") return null;
  return html`<details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>${words.execution.others}</summary>
    ${isOpen ? html`<${List} execution=${execution} />` : null}</details>`;
}

/** @param {{execution: any}} props */
function List({ execution }) {
  const found = useResource((signal) => get(`/sweeps/${segment(execution.sweep.id)}/cells`, { case: execution.case }, signal), [execution.sweep.id, execution.case]);
  if (!found.data) return html`<${Waiting} resource=${found} />`;
  const cells = found.data.cells.filter((/** @type {any} */ one) => one.execution && one.execution !== execution.id);
  if (!cells.length) return html`<p class="quiet">${words.execution.noOthers}</p>`;
  const nodes = differing(found.data.cells.map((/** @type {any} */ one) => one.combination));
  return html`<div class="scroll" tabindex="0"><table><tbody>${cells.map(
    (/** @type {any} */ one) => html`<tr><td class="mono name"><${Link} to=${`/executions/${segment(one.execution)}`}>${combination(one.combination, nodes)}<//>${one.repeat ? `, ${words.execution.repeat(one.repeat)}` : ""}</td><td><${Status} status=${one.status} /></td>
      <td>${Object.entries(one.scores).map(([name, value]) => `${name} ${figure(/** @type {number} */ (value))}`).join(", ")}</td>
      <td><${Link} to=${`/executions/${segment(execution.id)}/diff/${segment(one.execution)}`}>${words.compare.look}<span class="seen-only-by-readers"> ${combination(one.combination, nodes)}</span><//></td></tr>`,
  )}</tbody></table></div>`;
}
