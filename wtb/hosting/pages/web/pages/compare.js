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
  const found = resource.data;
  if (!found) return html`<h1>${words.compare.title}</h1><${Waiting} resource=${resource} />`;
  return html`<div class="head"><h1><${Link} to=${`/sweeps/${segment(found.before.id)}`}>${found.before.name}<//> → <${Link} to=${`/sweeps/${segment(found.after.id)}`}>${found.after.name}<//></h1></div>
    <p class="answer">${words.compare.verdict}: <b>${found.verdict}</b>${found.because?.length ? ` – ${[found.because].flat().join("; ")}` : ""}</p>
    <h2>${words.compare.changed}</h2><${Changed} changed=${found.changed} />
    <h2>${words.sweep.tabs.matrix}</h2><${Rows} rows=${found.rows} />
    ${KINDS.map((kind) => html`<${Cells} key=${kind} title=${words.compare.cells[kind]} sweep=${found.after.id} cells=${found.cells.filter((/** @type {any} */ one) => one.what === kind)} />`)}`;
}

/** @param {{changed: any}} props */
function Changed({ changed }) {
  const items = [
    ...changed.code.map((/** @type {any} */ one) => words.compare.codeOf(one.node, one.variant, one.causes ?? [])),
    ...(changed.files ?? []).map((/** @type {any} */ one) => html`<details><summary>${words.compare.file(one.path)}</summary><table class="text-diff"><tbody>${one.difference.map((/** @type {string} */ line) => html`<tr class=${line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : ""}><td>${line}</td></tr>`)}</tbody></table></details>`),
    ...changed.settings.map((/** @type {any} */ one) => `${one.key}: ${JSON.stringify(one.before)} → ${JSON.stringify(one.after)}`),
    ...(changed.variants?.added ?? []).map((/** @type {any} */ one) => words.compare.added(one.node, one.variant)),
    ...(changed.variants?.removed ?? []).map((/** @type {any} */ one) => words.compare.removed(one.node, one.variant)),
  ];
  return items.length ? html`<ul>${items.map((text) => html`<li class="mono">${text}</li>`)}</ul>` : html`<p class="quiet">${words.compare.same}</p>`;
}

/** @param {{rows: any[]}} props */
function Rows({ rows }) {
  return html`<div class="scroll" tabindex="0"><table><tbody>${rows.map(
    (row) => html`<tr><td class="mono name">${combination(row.combination)}</td><td><b>${row.verdict}</b></td>
      <td>${Object.entries(row.metrics).map(([name, /** @type {any} */ one]) => html`<div>${name}: ${figure(one.before)} → ${figure(one.after)} (${difference(one.delta)}${one.p_worse === null ? "" : `, ${words.compare.pWorse} ${probability(one.p_worse)}`})</div>`)}</td></tr>`,
  )}</tbody></table></div>`;
}

/** @param {{title: string, sweep: string, cells: any[]}} props */
function Cells({ title, sweep, cells }) {
  const [shown, setShown] = useState(SHOWN);
  const cases = [...new Set(cells.slice(0, shown).map((one) => one.case))].slice(0, SHOWN);
  const asked = useResource((signal) => (cases.length ? get(`/sweeps/${segment(sweep)}/outputs`, { cases, rows: [0], limit: 1000 }, signal) : Promise.resolve(null)), [sweep, cases.join("\n")]);
  const seen = new Map((asked.data?.cases ?? []).map((/** @type {any} */ one) => [one.case, one]));
  if (!cells.length) return null;
  const left = cells.length - shown;
  return html`<h2>${title} (${count(cells.length)})</h2><div class="scroll" tabindex="0"><table><tbody>${cells.slice(0, shown).map(
    (one) => html`<tr><td class="name">${seen.has(one.case) ? html`<${CaseCell} found=${{ ...seen.get(one.case), tags: [] }} repeats=${1} />` : one.case}</td><td class="mono name">${combination(one.combination)}</td><td>${one.metric ?? ""}</td>
      <td class="num"><${Came} to=${one.before} execution=${one.executions[0]} /> → <${Came} to=${one.after} execution=${one.executions[1]} /></td><td>${one.diverged ? words.compare.partAt(one.diverged) : ""}</td>
      <td>${one.executions[0] && one.executions[1] ? html`<${Link} to=${`/executions/${segment(one.executions[0])}/diff/${segment(one.executions[1])}`}>${words.compare.look}<//>` : null}</td></tr>`,
  )}</tbody></table></div>
  ${left > 0 ? html`<button onClick=${() => setShown(shown + SHOWN)}>${words.compare.more(Math.min(left, SHOWN), left)}</button>` : null}`;
}

/** What a cell came to, as a link to how. @param {{to: number | string | null, execution: string | null}} props */
function Came({ to, execution }) {
  const text = typeof to === "string" ? to : figure(to);
  return execution ? html`<${Link} to=${`/executions/${segment(execution)}`}>${text}<//>` : text;
}
