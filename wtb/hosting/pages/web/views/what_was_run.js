/** What a sweep was made of, so that it can be made again. */
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";

/** @param {{provenance: any}} props */
export function WhatWasRun({ provenance }) {
  const facts = /** @type {[string, unknown][]} */ ([
    [words.run.workflow, provenance.workflow],
    [words.run.folder, provenance.folder],
    [words.run.command, provenance.command ?? provenance.command_because],
  ]);
  return html`<dl>${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${value}</dd>`)}</dl>
    <h2>${words.run.settings}</h2><pre tabindex="0">${provenance.settings}</pre>
    ${provenance.environment ? html`<h2>${words.run.environment}</h2><pre tabindex="0">${JSON.stringify(provenance.environment, null, 2)}</pre>` : html`<p class="quiet">${provenance.because}</p>`}
    <h2>${words.run.fingerprints}</h2><pre tabindex="0">${JSON.stringify(provenance.fingerprints, null, 2)}</pre>`;
}
