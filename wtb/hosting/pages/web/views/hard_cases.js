/** The most informative cases: those in which combinations differ, and those that are hard for all. */
import { combination, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { factorsOf } from "../lib/matrix_view.js";
import { reportWords as texts } from "../lib/report_words.js";
import { Interval, scaleOf } from "./intervals.js";

/** @param {{cases: any, matrix: any, anchors: Map<string, string>}} props cases: `worst` of the evidence; anchors: where a case is opened */
export function HardCases({ cases, matrix, anchors }) {
  if (cases.because) return html`<p class="quiet">${texts.cannotTell(cases.because)}</p>`;
  const factors = factorsOf(matrix);
  const drawn = new Map(cases.cases.map((/** @type {any} */ hardCase) => [hardCase, { mean: hardCase.mean, ci: hardCase.best ? [hardCase.worst.score, hardCase.best.score].sort((a, b) => a - b) : null }]));
  const scale = scaleOf([...drawn.values()]);
  const side = (/** @type {any} */ extreme) => (extreme ? html`<b>${figure(extreme.score)}</b> <span class="mono">${combination(matrix.rows[extreme.combination].combination, factors)}</span>` : null);
  return html`<p class="quiet">${texts.casesLegend(cases.metric)}</p>
    ${Object.entries(texts.why).map(([kind, title]) => {
      const ofKind = cases.cases.filter((/** @type {any} */ hardCase) => hardCase.why === kind);
      return ofKind.length === 0 ? null : html`<h3>${title}</h3><div class="scroll" tabindex="0"><table class="drawn"><thead><tr><th>${texts.columns.case}</th><th>${texts.columns.scores}</th><th>${texts.columns.best}</th><th>${texts.columns.worst}</th><th>${texts.columns.parted}</th></tr></thead>
        <tbody>${ofKind.map((/** @type {any} */ hardCase) => html`<tr><td class="name">${anchors.has(hardCase.case) ? html`<a href=${`#${anchors.get(hardCase.case)}`}>${hardCase.case}</a>` : hardCase.case}</td>
          <td><${Interval} estimate=${drawn.get(hardCase)} scale=${scale} /></td><td class="name">${hardCase.best ? side(hardCase.best) : texts.allScore(hardCase.n, figure(hardCase.mean))}</td><td class="name">${side(hardCase.worst)}</td>
          <td class="name">${hardCase.parted === null ? html`<span class="quiet">${hardCase.because}</span>` : html`${hardCase.parted}<br /><code>wtb diff ${hardCase.best.execution} ${hardCase.worst.execution}</code>`}</td></tr>`)}</tbody></table></div>`;
    })}`;
}
