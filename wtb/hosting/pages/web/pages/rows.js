/** Two rows of a sweep over all cases: who wins where, by how much, and whether that is more than chance. */
import { get, segment } from "../lib/api.js";
import { combination, count, difference, figure, probability } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { CaseCell, OutputCell } from "../views/output_cell.js";
import { addressOfOutputs } from "../views/outputs.js";
import { GoodEnough } from "../views/matrix_table.js";
import { outputWords } from "../lib/output_words.js";
import { Progress } from "../views/status.js";

const MOST_ASKED = 100; // cases in one request
const TELLING = 50; // cases that are shown before somebody asks for more

/** @param {{parts: string[]}} props */
export function RowsPage({ parts: [ref] }) {
  const { row = "0", other = "1", metric, limit = String(TELLING) } = address.value.query;
  const path = `/sweeps/${segment(ref)}`;
  const figures = useResource((signal) => get(`${path}/figures`, {}, signal), [ref]);
  const resource = useResource((signal) => get(`${path}/compare`, { row, other, metric, limit }, signal), [ref, row, other, metric, limit]);
  const comparison = resource.data;
  return html`<div class="head"><h1>${words.rows.title}${comparison ? html`: <${Link} to=${path}>${comparison.sweep.name}<//>` : null}</h1></div>
    ${figures.data ? html`<${Choice} matrix=${figures.data.matrix} row=${row} other=${other} metric=${comparison?.metric ?? metric} />` : null}
    <${Waiting} resource=${resource} />
    ${comparison ? html`<${Answer} comparison=${comparison} /><${Cases} key=${`${row}-${other}`} sweep=${ref} rows=${[row, other]} comparison=${comparison} limit=${Number(limit)} />` : null}`;
}

/** @param {{matrix: any, row: string, other: string, metric: string | undefined}} props */
function Choice({ matrix, row, other, metric }) {
  const options = matrix.rows.map((/** @type {any} */ row, /** @type {number} */ number) => html`<option value=${String(number)}>${combination(row.combination)}</option>`);
  /** @param {string} name @param {string} selected */
  const select = (name, selected) => html`<select value=${selected} onChange=${(/** @type {any} */ event) => look({ [name]: event.target.value })}>${options}</select>`;
  return html`<div class="bar rows"><label>${words.rows.row}${select("row", row)}</label><label>${words.rows.other}${select("other", other)}</label>
    <button onClick=${() => look({ row: other, other: row })}>${words.rows.swap}</button>
    <label>${words.sweep.metric}<select value=${metric} onChange=${(/** @type {any} */ event) => look({ metric: event.target.value })}>${Object.keys(matrix.metrics).map((name) => html`<option value=${name}>${name}</option>`)}</select></label></div>`;
}

/** @param {{comparison: any}} props */
function Answer({ comparison }) {
  const { wins, losses, ties, n_pairs: pairs, unpaired, delta, ci, p, because, row, other, metric, better } = comparison;
  const isKnown = ci && (ci[0] > 0 || ci[1] < 0);
  const mark = !isKnown ? "" : (delta > 0) === (better === "higher") ? "good" : "bad";
  return html`<p class="answer">${words.rows.wins(count(wins), count(losses), count(ties), count(pairs))}</p>
    <${Progress} cells=${{ succeeded: wins, failed: losses, pending: ties, running: 0, waiting: 0, total: pairs }} names=${words.rows.names} />
    <dl>
      <dt>${metric} ${better === "lower" ? "↓" : "↑"}</dt><dd>${figure(row.mean)}, ${figure(other.mean)}</dd>
      <dt>${words.sweep.columns.delta}</dt><dd><b class=${mark}>${difference(delta)}</b>${ci ? `, ${words.interval(difference(ci[0]), difference(ci[1]))}` : ""}</dd>
      ${p === null ? null : html`<dt>${words.sweep.columns.p}</dt><dd>${probability(p)} <span class="quiet">${words.rows.p}</span></dd>`}
      ${comparison.within ? html`<dt>${words.rows.within(comparison.within.margin)}</dt><dd><${GoodEnough} within=${comparison.within} /></dd>` : null}
    </dl>
    ${because ? html`<p class="quiet">${because}</p>` : null}
    ${unpaired ? html`<p class="notice">${words.rows.unpaired(count(unpaired))}</p>` : null}`;
}

/** The most informative cases, each with its question, what is expected and what both rows returned. @param {{sweep: string, rows: string[], comparison: any, limit: number}} props */
function Cases({ sweep, rows, comparison, limit }) {
  const cases = comparison.cases.slice(0, MOST_ASKED).map((/** @type {any} */ row) => row.case);
  const outputs = useResource((signal) => (cases.length ? get(`/sweeps/${segment(sweep)}/outputs`, { rows, cases, limit: 1000 }, signal) : Promise.resolve(null)), [sweep, rows.join(), cases.join("\n")]);
  const seen = new Map((outputs.data?.cases ?? []).filter((/** @type {any} */ caseRow) => caseRow.repeat === 0).map((/** @type {any} */ caseRow) => [caseRow.case, caseRow]));
  if (!comparison.cases.length) return null;
  const columns = words.rows.columns;
  const about = outputs.data;
  return html`<h2>${words.rows.cases}</h2><p><${Link} to=${addressOfOutputs(sweep, { rows: rows.join("-"), differ: rows.join("-"), against: rows[1] })}>${outputWords.rowsSideBySide}<//></p><div class="scroll" tabindex="0"><table>
      <thead><tr><th>${columns.case}</th><th class="num">${columns.row}</th><th class="num">${columns.other}</th><th class="num">${columns.gain}</th><th><span class="seen-only-by-readers">${words.compare.look}</span></th></tr></thead>
      <tbody>${comparison.cases.map((/** @type {any} */ row) => {
        const [a, b] = row.executions;
        const beside = seen.get(row.case);
        const cells = beside ? html`<div class="case-beside"><${CaseCell} caseRow=${beside} repeats=${1} />${beside.cells.map((/** @type {any} */ cell) => html`<div><${OutputCell} cell=${cell} keys=${about.keys} metrics=${about.metrics} metric=${comparison.metric} /></div>`)}</div>` : row.case;
        return html`<tr key=${row.case}><td class="name">${cells}</td><td class="num">${figure(row.row)}</td><td class="num">${figure(row.other)}</td>
          <td class=${`num ${row.gain > 0 ? "good" : row.gain < 0 ? "bad" : ""}`}>${difference(row.gain)}</td>
          <td>${a && b ? html`<${Link} to=${`/executions/${segment(a)}/diff/${segment(b)}`}>${words.compare.look}<//>` : null}</td></tr>`;
      })}</tbody></table></div>
    ${comparison.more ? html`<button onClick=${() => look({ limit: String(limit + 200) })}>${words.compare.more(Math.min(200, comparison.more), comparison.more)}</button>` : null}`;
}
