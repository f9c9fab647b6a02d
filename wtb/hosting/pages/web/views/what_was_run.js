/** What a sweep was made of, so that it can be made again. */
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { Graph } from "./graph.js";

/** @param {{provenance: any, graph?: any}} props graph: of the workflow, to draw */
export function WhatWasRun({ provenance, graph }) {
  const { sweep, workflow, graph: described, folder, command, command_because: because, fingerprints } = provenance;
  const facts = /** @type {[string, unknown][]} */ ([
    [words.run.workflow, [workflow, described.version].filter(Boolean).join(", ")],
    [words.run.sweep, `${sweep.id}, ${sweep.status}`],
    [words.run.session, sweep.session],
    [words.run.project, sweep.project === "default" ? null : sweep.project],
    [words.run.submitted, sweep.created_at],
    [words.run.ended, sweep.finished_at ?? sweep.reason],
    [words.run.folder, folder],
    [words.run.command, command ?? because],
  ]);
  const environment = /** @type {[string, any][]} */ (Object.entries(provenance.environment ?? {}).filter(([, fact]) => fact !== null));
  const [plain, nested] = [false, true].map((isNested) => environment.filter(([, fact]) => (typeof fact === "object") === isNested));
  const code = Object.entries(fingerprints).flatMap(([node, variants]) => Object.entries(variants).map(([variant, text]) => [node, variant, text]));
  return html`${described.description ? html`<p dir="auto">${described.description}</p>` : null}
    <dl>${facts.filter(([, fact]) => fact).map(([name, fact]) => html`<dt>${name}</dt><dd class="mono">${fact}</dd>`)}</dl>
    ${graph ? html`<${Graph} graph=${graph} />` : null}
    <h2>${words.run.settings}</h2><pre tabindex="0">${provenance.settings}</pre>
    ${provenance.environment ? html`<h2>${words.run.environment}</h2><p>${plain.map(([name, fact]) => `${name} ${fact}`).join(", ")}</p>${nested.map(([name, fact]) => html`<details class="long"><summary>${words.run.listed(name, Object.keys(fact).length)}</summary><pre tabindex="0">${JSON.stringify(fact, null, 2)}</pre></details>`)}` : html`<p class="quiet">${provenance.because}</p>`}
    <h2>${words.run.fingerprints}</h2><div class="scroll" tabindex="0"><table><thead><tr>${words.run.columns.map((name) => html`<th>${name}</th>`)}</tr></thead><tbody>${code.map(([node, variant, text]) => html`<tr><td class="name">${node}</td><td class="name">${variant}</td><td class="mono">${text}</td></tr>`)}</tbody></table></div>`;
}
