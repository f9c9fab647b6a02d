/** Two sweeps: what was changed, what got worse, and whether that is more than chance. */
import { get, segment } from "../lib/api.js";
import { combination, count, difference, figure, probability } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { CaseCell } from "../views/output_cell.js";
import { words } from "../lib/words.js";

const SHOWN = 100; // cells of a kind that are shown before somebody asks for more
const KINDS = /** @type {const} */ (["failed", "worse", "fixed", "better"]);

/** @param {{parts: string[]}} props */
export function ComparePage({ parts: [before, after] }) {
  const resource = useResource((signal) => get(`/sweeps/${segment(before)}/compare/${segment(after)}`, {}, signal), [before, after]);
  const comparison = resource.data;
  if (!comparison) return html`<h1>${words.compare.title}</h1><${Waiting} resource=${resource} />`;
  return html`<div class="head"><h1><${Link} to=${`/sweeps/${segment(comparison.before.id)}`}>${comparison.before.name}<//> → <${Link} to=${`/sweeps/${segment(comparison.after.id)}`}>${comparison.after.name}<//></h1></div>
    <p class="answer">${words.compare.verdict}: <b>${comparison.verdict}</b>${comparison.because?.length ? ` – ${[comparison.because].flat().join("; ")}` : ""}</p>
    <h2>${words.compare.changed}</h2><${Changed} changed=${comparison.changed} />
    <h2>${words.sweep.tabs.matrix}</h2><${Rows} rows=${comparison.rows} />
    ${KINDS.map((kind) => html`<${Cells} key=${kind} title=${words.compare.cells[kind]} sweep=${comparison.after.id} cells=${comparison.cells.filter((/** @type {any} */ cell) => cell.what === kind)} />`)}`;
}

/** @param {{changed: any}} props */
function Changed({ changed }) {
  const lines = [
    ...changed.code.map((/** @type {any} */ change) => words.compare.codeOf(change.node, change.variant, change.causes ?? [])),
    ...(changed.files ?? []).map((/** @type {any} */ file) => html`<details><summary>${words.compare.file(file.path)}</summary><table class="text-diff"><tbody>${file.difference.map((/** @type {string} */ line) => html`<tr class=${line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : ""}><td>${line}</td></tr>`)}</tbody></table></details>`),
    ...changed.settings.map((/** @type {any} */ setting) => `${setting.key}: ${JSON.stringify(setting.before)} → ${JSON.stringify(setting.after)}`),
    ...(changed.variants?.added ?? []).map((/** @type {any} */ variant) => words.compare.added(variant.node, variant.variant)),
    ...(changed.variants?.removed ?? []).map((/** @type {any} */ variant) => words.compare.removed(variant.node, variant.variant)),
  ];
  return lines.length ? html`<ul>${lines.map((text) => html`<li class="mono">${text}</li>`)}</ul>` : html`<p class="quiet">${words.compare.same}</p>`;
}

/** @param {{rows: any[]}} props */
function Rows({ rows }) {
  return html`<div class="scroll" tabindex="0"><table><tbody>${rows.map(
    (row) => html`<tr><td class="mono name">${combination(row.combination)}</td><td><b>${row.verdict}</b></td>
      <td>${Object.entries(row.metrics).map(([name, /** @type {any} */ change]) => html`<div>${name}: ${figure(change.before)} → ${figure(change.after)} (${difference(change.delta)}${change.p_worse === null ? "" : `, ${words.compare.pWorse} ${probability(change.p_worse)}`})</div>`)}</td></tr>`,
  )}</tbody></table></div>`;
}

/** @param {{title: string, sweep: string, cells: any[]}} props */
function Cells({ title, sweep, cells }) {
  const [limit, setLimit] = useState(SHOWN);
  const cases = [...new Set(cells.slice(0, limit).map((cell) => cell.case))].slice(0, SHOWN);
  const outputs = useResource((signal) => (cases.length ? get(`/sweeps/${segment(sweep)}/outputs`, { cases, rows: [0], limit: 1000 }, signal) : Promise.resolve(null)), [sweep, cases.join("\n")]);
  const seen = new Map((outputs.data?.cases ?? []).map((/** @type {any} */ caseRow) => [caseRow.case, caseRow]));
  if (!cells.length) return null;
  const remaining = cells.length - limit;
  return html`<h2>${title} (${count(cells.length)})</h2><div class="scroll" tabindex="0"><table><tbody>${cells.slice(0, limit).map(
    (cell) => html`<tr><td class="name">${seen.has(cell.case) ? html`<${CaseCell} caseRow=${{ ...seen.get(cell.case), tags: [] }} repeats=${1} />` : cell.case}</td><td class="mono name">${combination(cell.combination)}</td><td>${cell.metric ?? ""}</td>
      <td class="num"><${Came} to=${cell.before} execution=${cell.executions[0]} /> → <${Came} to=${cell.after} execution=${cell.executions[1]} /></td><td>${cell.diverged ? words.compare.partAt(cell.diverged) : ""}</td>
      <td>${cell.executions[0] && cell.executions[1] ? html`<${Link} to=${`/executions/${segment(cell.executions[0])}/diff/${segment(cell.executions[1])}`}>${words.compare.look}<//>` : null}</td></tr>`,
  )}</tbody></table></div>
  ${remaining > 0 ? html`<button onClick=${() => setLimit(limit + SHOWN)}>${words.compare.more(Math.min(remaining, SHOWN), remaining)}</button>` : null}`;
}

/** What a cell came to, as a link to how. @param {{to: number | string | null, execution: string | null}} props */
function Came({ to, execution }) {
  const text = typeof to === "string" ? to : figure(to);
  return execution ? html`<${Link} to=${`/executions/${segment(execution)}`}>${text}<//>` : text;
}
