/** The node runs of each node, and how many there would be without sharing. */
import { count } from "../lib/format.js";
import { html } from "../lib/html.js";
import { reportWords as texts } from "../lib/report_words.js";

/** @param {{nodes: Record<string, {executed: number, unshared: number, attempts: number}>}} props */
export function NodeRuns({ nodes }) {
  const columns = texts.nodeColumns;
  return html`<div class="scroll" tabindex="0"><table><thead><tr><th>${columns.node}</th><th class="num">${columns.executed}</th><th class="num">${columns.unshared}</th><th class="num">${columns.attempts}</th></tr></thead>
    <tbody>${Object.entries(nodes).map(([node, runs]) => html`<tr><td class="name">${node}</td><td class="num">${count(runs.executed)}</td><td class="num">${count(runs.unshared)}</td><td class="num">${count(runs.attempts)}</td></tr>`)}</tbody></table></div>`;
}
