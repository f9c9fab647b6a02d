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
  const resource = useResource((signal) => get(`/sweeps/${segment(execution.sweep.id)}/cells`, { case: execution.case }, signal), [execution.sweep.id, execution.case]);
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  const cells = resource.data.cells.filter((/** @type {any} */ cell) => cell.execution && cell.execution !== execution.id);
  if (!cells.length) return html`<p class="quiet">${words.execution.noOthers}</p>`;
  const nodes = differing(resource.data.cells.map((/** @type {any} */ cell) => cell.combination));
  return html`<div class="scroll" tabindex="0"><table><tbody>${cells.map(
    (/** @type {any} */ cell) => html`<tr><td class="mono name"><${Link} to=${`/executions/${segment(cell.execution)}`}>${combination(cell.combination, nodes)}<//>${cell.repeat ? `, ${words.execution.repeat(cell.repeat)}` : ""}</td><td><${Status} status=${cell.status} /></td>
      <td>${Object.entries(cell.scores).map(([name, score]) => `${name} ${figure(/** @type {number} */ (score))}`).join(", ")}</td>
      <td><${Link} to=${`/executions/${segment(execution.id)}/diff/${segment(cell.execution)}`}>${words.compare.look}<span class="seen-only-by-readers"> ${combination(cell.combination, nodes)}</span><//></td></tr>`,
  )}</tbody></table></div>`;
}
