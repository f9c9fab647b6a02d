/** Why cells failed: each cause once, with the cases in which it did. */
import { get, segment } from "../lib/api.js";
import { count, visible } from "../lib/format.js";
import { html, useEffect } from "../lib/html.js";
import { outputWords } from "../lib/output_words.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "./empty.js";
import { outputsHere } from "./outputs.js";

const LISTED = 30; // cases of each cause

/** @param {{sweep: string, failures: any}} props failures: as a status that is looked at again and again has them */
export function Causes({ sweep, failures }) {
  const status = useResource((signal) => get(`/sweeps/${segment(sweep)}/status`, { cases: LISTED }, signal), [sweep]);
  const version = JSON.stringify(failures);
  useEffect(() => {
    if (status.data && JSON.stringify(withoutCases(status.data.failures)) !== version) status.reload();
  }, [version]);
  if (!failures.causes.length) return html`<${Empty} text=${words.sweep.noFailures} help="reliability"><${Link} class="button" to=${outputsHere({})}>${words.sweep.toOutputs}<//><//>`;
  if (!status.data) return html`<${Waiting} resource=${status} />`;
  const { causes, more } = status.data.failures;
  return html`<div>
    ${causes.map((/** @type {any} */ cause) => html`<section key=${`${cause.node} ${cause.type} ${cause.message}`}>
        <h2>${count(cause.cells)} × ${cause.node ?? ""} ${cause.type ?? ""}</h2>
        <pre tabindex="0">${visible(cause.message ?? "")}</pre>
        <${Cases} cause=${cause} />
      </section>`)}
    ${more ? html`<p class="quiet">${words.execution.more(more)}</p>` : null}
  </div>`;
}

/** What a status has that lists no cases. @param {any} failures */
const withoutCases = ({ causes, more }) => ({ causes: causes.map((/** @type {any} */ { cases, text, ...rest }) => rest), more });

/** The cases of a cause, each linked to an execution in which it failed, and the cells behind the others. @param {{cause: any}} props */
function Cases({ cause }) {
  const remaining = cause.cells - cause.cases.reduce((/** @type {number} */ sum, /** @type {any} */ caseRow) => sum + caseRow.cells, 0);
  const all = outputsHere({ failed: "1", rows: cause.combinations.slice(0, 64).join("-"), text: cause.text ?? null });
  return html`<ul class="failed-cases" aria-label=${words.sweep.failedCases}>
      ${cause.cases.map((/** @type {any} */ caseRow) => html`<li key=${caseRow.case}>${caseRow.execution ? html`<${Link} to=${`/executions/${segment(caseRow.execution)}`}>${visible(caseRow.case)}<//>` : visible(caseRow.case)}${caseRow.cells > 1 ? html` <span class="quiet">× ${count(caseRow.cells)}</span>` : null}</li>`)}
      ${remaining ? html`<li><${Link} to=${all}>${words.sweep.moreCells(remaining)}<//></li>` : null}</ul>
    <p><${Link} to=${all}>${outputWords.failures(cause.cells)}<//></p>`;
}
