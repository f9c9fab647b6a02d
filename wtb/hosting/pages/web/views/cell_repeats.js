/** The repeats of a cell, each with the execution that it came from. */
import { get, segment } from "../lib/api.js";
import { combination as inWords, figure } from "../lib/format.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Status } from "./status.js";

/**
 * @param {string} sweep @param {Record<string, string>} combination @param {string} id of the case @param {AbortSignal} [signal]
 * @returns {Promise<any[]>} by number
 */
export async function repeatsOf(sweep, combination, id, signal) {
  const { cells } = await get(`/sweeps/${segment(sweep)}/cells`, { case: id }, signal);
  const wanted = JSON.stringify(combination);
  return cells.filter((/** @type {any} */ one) => JSON.stringify(one.combination) === wanted);
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
          (one) => html`<tr><td>${one.execution ? html`<${Link} to=${`/executions/${segment(one.execution)}`}>${words.execution.repeat(one.repeat)}<//>` : words.execution.repeat(one.repeat)}</td>
            <td><${Status} status=${one.status} /></td>
            <td>${Object.entries(one.scores).map(([name, value]) => `${name} ${figure(/** @type {number} */ (value))}`).join(", ")}</td></tr>`,
        )}</tbody></table></div>`
      : null}
  </section>`;
}
