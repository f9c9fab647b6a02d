/** The cases that tell most: those in which combinations differ, and those that are hard for all. */
import { combination, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { factorsOf } from "../lib/matrix_view.js";
import { reportWords as texts } from "../lib/report_words.js";
import { Interval, scaleOf } from "./intervals.js";

/** @param {{cases: any, matrix: any, anchors: Map<string, string>}} props cases: `worst` of the evidence; anchors: where a case is opened */
export function HardCases({ cases, matrix, anchors }) {
  if (cases.because) return html`<p class="quiet">${texts.cannotTell(cases.because)}</p>`;
  const factors = factorsOf(matrix);
  const drawn = new Map(cases.cases.map((/** @type {any} */ one) => [one, { mean: one.mean, ci: one.best ? [one.worst.score, one.best.score].sort((a, b) => a - b) : null }]));
  const scale = scaleOf([...drawn.values()]);
  const side = (/** @type {any} */ one) => (one ? html`<b>${figure(one.score)}</b> <span class="mono">${combination(matrix.rows[one.combination].combination, factors)}</span>` : null);
  return html`<p class="quiet">${texts.casesLegend(cases.metric)}</p>
    ${Object.entries(texts.why).map(([kind, title]) => {
      const chosen = cases.cases.filter((/** @type {any} */ one) => one.why === kind);
      return chosen.length === 0 ? null : html`<h3>${title}</h3><div class="scroll" tabindex="0"><table class="drawn"><thead><tr><th>${texts.columns.case}</th><th>${texts.columns.scores}</th><th>${texts.columns.best}</th><th>${texts.columns.worst}</th><th>${texts.columns.parted}</th></tr></thead>
        <tbody>${chosen.map((/** @type {any} */ one) => html`<tr><td class="name">${anchors.has(one.case) ? html`<a href=${`#${anchors.get(one.case)}`}>${one.case}</a>` : one.case}</td>
          <td><${Interval} estimate=${drawn.get(one)} scale=${scale} /></td><td class="name">${one.best ? side(one.best) : texts.allScore(one.n, figure(one.mean))}</td><td class="name">${side(one.worst)}</td>
          <td class="name">${one.parted === null ? html`<span class="quiet">${one.because}</span>` : html`${one.parted}<br /><code>wtb diff ${one.best.execution} ${one.worst.execution}</code>`}</td></tr>`)}</tbody></table></div>`;
    })}`;
}
