/** The repeats of a cell, each with the execution that it came from. */
import { get, segment } from "../lib/api.js";
import { combination as inWords, figure } from "../lib/format.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Status } from "./status.js";

/** @param {string} sweep @param {Record<string, string>} combination @param {string} id of the case @param {AbortSignal} [signal] @returns {Promise<any[]>} by number */
export async function repeatsOf(sweep, combination, id, signal) {
  const { cells } = await get(`/sweeps/${segment(sweep)}/cells`, { case: id }, signal);
  const key = JSON.stringify(combination);
  return cells.filter((/** @type {any} */ cell) => JSON.stringify(cell.combination) === key);
}

/** @param {{sweep: string, combination: Record<string, string> | undefined, id: string}} props */
export function CellRepeats({ sweep, combination = {}, id }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const key = JSON.stringify(combination);
  const repeats = useResource((signal) => repeatsOf(sweep, combination, id, signal), [sweep, key, id]);
  useEffect(() => heading.current?.focus(), [key, id]); // who opened it by keyboard goes on from here
  return html`<section>
    <h3 tabindex="-1" ref=${heading} class="name">${id} · ${inWords(combination)}</h3>
    <${Waiting} resource=${repeats} />
    ${repeats.data
      ? html`<div class="scroll" tabindex="0"><table><tbody>${repeats.data.map(
          (cell) => html`<tr><td>${cell.execution ? html`<${Link} to=${`/executions/${segment(cell.execution)}`}>${words.execution.repeat(cell.repeat)}<//>` : words.execution.repeat(cell.repeat)}</td>
            <td><${Status} status=${cell.status} /></td>
            <td>${Object.entries(cell.scores).map(([name, score]) => `${name} ${figure(/** @type {number} */ (score))}`).join(", ")}</td></tr>`,
        )}</tbody></table></div>`
      : null}
  </section>`;
}
