/** Why cells failed: each cause once, with a case to look at. */
import { segment } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Link } from "../lib/router.js";
import { outputWords } from "../lib/output_words.js";
import { Empty } from "./empty.js";
import { outputsHere } from "./outputs.js";
import { words } from "../lib/words.js";

/** @param {{failures: any}} props */
export function Causes({ failures }) {
  if (!failures.causes.length) return html`<${Empty} text=${words.sweep.noFailures} help="reliability"><${Link} class="button" to=${outputsHere({})}>${words.sweep.toOutputs}<//><//>`;
  return html`<div>
    ${failures.causes.map(
      (/** @type {any} */ one) => html`<section>
        <h2>${count(one.cells)} × ${one.node ?? ""} ${one.type ?? ""}</h2>
        <pre tabindex="0">${one.message ?? ""}</pre>
        ${one.cells > 1 ? words.sweep.forExample : null} ${one.example.execution ? html`<${Link} to=${`/executions/${segment(one.example.execution)}`}>${one.example.case}<//>` : one.example.case}
        · <${Link} to=${outputsHere({ failed: "1", rows: one.combinations.slice(0, 64).join("-") })}>${outputWords.failures(one.cells)}<//>
      </section>`,
    )}
    ${failures.more ? html`<p class="quiet">${words.execution.more(failures.more)}</p>` : null}
  </div>`;
}
