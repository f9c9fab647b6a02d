/** How the rows of a matrix are seen: by which metric, which levels, in which order, in which groups, or as a pivot table. */
import { html } from "../lib/html.js";
import { FIGURES, factorsOf, levelsOf, sortParts, usualDirection, whereText } from "../lib/matrix_view.js";
import { matrixWords as texts } from "../lib/matrix_words.js";
import { look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { MatrixTable } from "./matrix_table.js";
import { PivotTable } from "./pivot_table.js";

/** @param {{matrix: any, metric: string | null, view: import("../lib/matrix_view.js").View}} props */
export function MatrixControls({ matrix, metric, view }) {
  const factors = factorsOf(matrix);
  const margin = metric ? matrix.rows.find((/** @type {any} */ row) => row.metrics[metric])?.metrics[metric].within?.margin : undefined;
  const rows = matrix.rows.map((/** @type {any} */ _, /** @type {number} */ number) => number);
  const [first = "", second = ""] = view.pivot;
  const pivot = (/** @type {string} */ first, /** @type {string} */ other) => look({ pivot: first ? [first, other !== first && other].filter(Boolean).join(",") : null });
  return html`<${SortChoice} matrix=${matrix} metric=${metric} sort=${view.sort} factors=${factors} />
    ${factors.length > 1 ? html`<${FactorChoice} label=${texts.group} factors=${factors} selected=${view.group ?? ""} onChange=${(/** @type {string} */ group) => look({ group, sort: view.sort })} />` : null}
    ${metric && matrix.rows.length > 1 ? html`<span class="pair"><${FactorChoice} label=${texts.pivot} factors=${factors} selected=${first} onChange=${(/** @type {string} */ factor) => pivot(factor, second)} />
      ${first && factors.length > 1 ? html`<${FactorChoice} label=${texts.by} factors=${factors.filter((factor) => factor !== first)} selected=${second} onChange=${(/** @type {string} */ other) => pivot(first, other)} />` : null}
      ${first ? html`<label>${texts.measure}<select value=${view.measure ?? ""} onChange=${(/** @type {any} */ event) => look({ measure: event.target.value })}><option value="">${metric}</option>${FIGURES.filter((name) => !(name in matrix.metrics)).map((name) => html`<option value=${name}>${texts[/** @type {"cost"} */ (name)]}</option>`)}</select></label>` : null}</span>` : null}
    ${matrix.rows.length > 1 ? factors.map((factor) => html`<${LevelFilter} key=${factor} factor=${factor} levels=${levelsOf(matrix, rows, factor).filter((level) => level !== null)} view=${view} />`) : null}
    ${margin === undefined ? null : html`<label><input type="checkbox" checked=${view.good} onChange=${(/** @type {any} */ event) => look({ good: event.target.checked ? "1" : null })} />${words.sweep.onlyGoodEnough(margin)}</label>`}`;
}

/** How many rows the filters leave, and the way back to all. @param {{matrix: any, order: number[], view: import("../lib/matrix_view.js").View}} props */
export function Filtered({ matrix, order, view }) {
  if (!view.where.size && !view.together.length && !view.good) return null;
  return html`<p class="quiet" role="status">${view.together.length ? html`<span class="mono">${texts.together(view.together)}</span> ` : null}${texts.shown(order.length, matrix.rows.length)} <button class="plain" onClick=${() => look({ where: null, good: null })}>${texts.all}</button></p>`;
}

/** @param {{matrix: any, metric: string | null, sort: string, factors: string[]}} props */
function SortChoice({ matrix, metric, sort, factors }) {
  const [name, direction] = sortParts(sort);
  const options = [...(metric ? [["evidence", texts.evidence], [metric, metric]] : []), ["number", texts.asSubmitted], ["cost", texts.cost], ["latency", texts.latency], ...factors.map((factor) => [factor, factor])];
  if (!options.some(([key]) => key === name)) options.push([name, name]);
  const isReversed = direction !== null && direction !== usualDirection(matrix, name);
  if (isReversed) options.push([sort, texts.reversed(options.find(([key]) => key === name)?.[1] ?? name)]);
  return html`<label>${texts.sort}
    <select value=${isReversed ? sort : name} onChange=${(/** @type {any} */ event) => look({ sort: event.target.value })}>
      ${options.map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>`;
}

/** @param {{label: string, factors: string[], selected: string, onChange: (factor: string) => void}} props */
function FactorChoice({ label, factors, selected, onChange }) {
  return html`<label>${label}
    <select value=${selected} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
      <option value="">${texts.nothing}</option>${factors.map((factor) => html`<option value=${factor}>${factor}</option>`)}</select></label>`;
}

/** Some levels of a factor; none chosen means all. @param {{factor: string, levels: string[], view: import("../lib/matrix_view.js").View}} props */
function LevelFilter({ factor, levels, view }) {
  const selected = view.where.get(factor) ?? [];
  /** @param {string} level @param {boolean} isOn */
  function change(level, isOn) {
    const next = levels.filter((candidate) => (candidate === level ? isOn : selected.includes(candidate)));
    const where = new Map(view.where);
    if (next.length) where.set(factor, next);
    else where.delete(factor);
    look({ where: whereText(where, view.together) });
  }
  return html`<details class=${`choices ${selected.length ? "on" : ""}`}><summary>${texts.levels(factor, selected)}</summary><div class="choice-list">
    ${levels.map((level) => html`<label key=${level}><input type="checkbox" checked=${selected.includes(level)} onChange=${(/** @type {any} */ event) => change(level, event.target.checked)} />${level}</label>`)}</div></details>`;
}

/** The rows as the address wants to see them. @param {{matrix: any, metric: string, order: number[], view: import("../lib/matrix_view.js").View}} props */
export function ViewedRows({ matrix, metric, order, view }) {
  if (!order.length) return html`<p class="quiet">${texts.none}</p>`;
  if (view.pivot.length) return html`<${PivotTable} matrix=${matrix} metric=${view.measure ?? metric} rows=${order} view=${view} />`;
  return html`<${MatrixTable} matrix=${matrix} metric=${metric} order=${order} group=${view.group} sort=${view.sort} />`;
}

/** By which metric rows are compared. @param {{matrix: any, metric: string}} props */
export function MetricChoice({ matrix, metric }) {
  return html`<label>${words.sweep.metric}
    <select value=${metric} onChange=${(/** @type {any} */ event) => look({ metric: event.target.value })}>
      ${Object.keys(matrix.metrics).map((name) => html`<option value=${name}>${name}${matrix.metrics[name].better === "lower" ? " ↓" : " ↑"}</option>`)}
    </select></label>`;
}
