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
    ${causes.map((/** @type {any} */ one) => html`<section key=${`${one.node} ${one.type} ${one.message}`}>
        <h2>${count(one.cells)} × ${one.node ?? ""} ${one.type ?? ""}</h2>
        <pre tabindex="0">${visible(one.message ?? "")}</pre>
        <${Cases} cause=${one} />
      </section>`)}
    ${more ? html`<p class="quiet">${words.execution.more(more)}</p>` : null}
  </div>`;
}

/** What a status has that lists no cases. @param {any} failures */
function withoutCases({ causes, more }) {
  return { causes: causes.map((/** @type {any} */ { cases, text, ...rest }) => rest), more };
}

/** The cases of a cause, each linked to an execution in which it failed, and the cells behind the others. @param {{cause: any}} props */
function Cases({ cause }) {
  const left = cause.cells - cause.cases.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.cells, 0);
  const all = outputsHere({ failed: "1", rows: cause.combinations.slice(0, 64).join("-"), text: cause.text ?? null });
  return html`<ul class="failed-cases" aria-label=${words.sweep.failedCases}>
      ${cause.cases.map((/** @type {any} */ one) => html`<li key=${one.case}>${one.execution ? html`<${Link} to=${`/executions/${segment(one.execution)}`}>${visible(one.case)}<//>` : visible(one.case)}${one.cells > 1 ? html` <span class="quiet">× ${count(one.cells)}</span>` : null}</li>`)}
      ${left ? html`<li><${Link} to=${all}>${words.sweep.moreCells(left)}<//></li>` : null}</ul>
    <p><${Link} to=${all}>${outputWords.failures(cause.cells)}<//></p>`;
}
