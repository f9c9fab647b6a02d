/** The rows of a matrix under one metric: means, intervals, differences from the baseline, and who could be best. */
import { count, duration, figure, labelsOf, largestOf, probability, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { Difference, Interval, scaleOf } from "./intervals.js";

/** Those that could be best first, then by their means. @param {any} matrix @param {string | null} metric @returns {number[]} */
export function rowsByEvidence(matrix, metric) {
  const numbers = matrix.rows.map((/** @type {any} */ _, /** @type {number} */ index) => index);
  if (!metric) return numbers;
  const sign = matrix.metrics[metric]?.better === "lower" ? 1 : -1;
  const best = matrix.best[metric];
  const rank = (/** @type {number} */ number) => {
    const row = matrix.rows[number];
    const stands = standing(row, best);
    const estimate = row.metrics[metric];
    const mean = estimate?.common_mean ?? estimate?.mean;
    return [stands === "best" || stands === "leads" ? 0 : stands === "couldBeBest" ? 1 : 2, Number.isFinite(mean) ? sign * mean : Infinity];
  };
  return numbers.sort((/** @type {number} */ a, /** @type {number} */ b) => {
    const [one, other] = [rank(a), rank(b)];
    return one[0] - other[0] || one[1] - other[1] || a - b;
  });
}

/** The same, with rows of the same variant of a node together. @param {any} matrix @param {string | null} metric @param {string} node @returns {number[]} */
export function rowsByNode(matrix, metric, node) {
  const numbers = rowsByEvidence(matrix, metric);
  const variantOf = (/** @type {number} */ number) => labelsOf(matrix.rows[number].combination)[node];
  const variants = [...new Set(numbers.map(variantOf))];
  return variants.flatMap((variant) => numbers.filter((number) => variantOf(number) === variant));
}

/** @param {any} row @param {any} best @returns {"best" | "leads" | "couldBeBest" | "exploratory" | "stopped" | null} */
function standing(row, best) {
  if (row.exploratory) return "exploratory";
  if (row.stopped) return "stopped";
  const same = (/** @type {any} */ one) => one && JSON.stringify(one) === JSON.stringify(row.combination);
  if (best && same(best.combination)) {
    if (best.clear) return "best";
    if (best.rival === null) return null; // it has no rival to lead
    if (best.lead > 0) return "leads"; // else others are as good
  }
  return best?.candidates.some(same) ? "couldBeBest" : null;
}

/** Whether a row is shown to be within the margin of the best. @param {any} row @param {string} metric */
export function isGoodEnough(row, metric) {
  return row.metrics[metric]?.within?.shown === true;
}

/** Whether a row is good enough: yes, no, or not shown yet; and how far it is behind. @param {{within: any}} props */
export function GoodEnough({ within }) {
  if (!within) return null;
  const { shown, behind } = within;
  const [tone, text] = shown === null ? ["quiet", words.sweep.notShown] : shown ? ["good", words.sweep.yes] : ["bad", words.sweep.no];
  const most = behind === null ? undefined : shown === false ? words.sweep.behindAtLeast(figure(behind[0])) : words.sweep.behindAtMost(figure(behind[1]));
  return html`<span class=${`within ${tone}`}>${text}</span>${most ? html` <small class="quiet behind">${most}</small>` : null}`;
}

/** @param {{matrix: any, metric: string, order: number[], group: string | null}} props group: the node by whose variants rows stand together */
export function MatrixTable({ matrix, metric, order, group }) {
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination), group);
  const estimates = matrix.rows.map((/** @type {any} */ row) => row.metrics[metric]);
  const scale = scaleOf(estimates);
  const { better, classes } = matrix.metrics[metric];
  const margin = matrix.rows[0]?.metrics[metric]?.within?.margin;
  const isBase = (/** @type {any} */ row) => matrix.baseline && JSON.stringify(row.combination) === JSON.stringify(matrix.baseline);
  const base = matrix.rows.find(isBase)?.metrics[metric]?.mean;
  const columns = words.sweep.columns;
  const costliest = largestOf(matrix.rows.map((/** @type {any} */ row) => row.cost_usd));
  const isPaid = costliest || matrix.cost.unknown?.length;
  const hasFailures = matrix.rows.some((/** @type {any} */ row) => row.failed);
  const hasLost = matrix.rows.some((/** @type {any} */ row) => row.lost_to_provider);
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th><span class="seen-only-by-readers">${words.sweep.best}</span></th>${nodes.map((node) => html`<th>${node}</th>`)}
      <th class="num">${columns.n}</th><th class="num">${metric} ${better === "lower" ? "↓" : "↑"}</th><th>${columns.ci}</th><th class="num">${columns.delta}</th><th class="num">${columns.p}</th>${margin === undefined ? null : html`<th>${words.sweep.within(margin)}</th>`}
      ${hasFailures ? html`<th class="num">${columns.failed}</th>` : null}${hasLost ? html`<th class="num">${columns.provider}</th>` : null}${isPaid ? html`<th class="num">${columns.cost}</th>` : null}<th class="num">${columns.p50}</th></tr></thead>
    <tbody>${order.map((number, place) => {
      const row = matrix.rows[number];
      const labels = labelsOf(row.combination);
      const isFirst = group && place > 0 && labelsOf(matrix.rows[order[place - 1]].combination)[group] !== labels[group];
      const estimate = row.metrics[metric] ?? {};
      const stands = standing(row, matrix.best[metric]);
      return html`<tr key=${number} class=${isFirst ? "apart" : ""}>
        <td>${stands ? html`<span class=${`tag ${row.exploratory || row.stopped ? "" : "star"}`} title=${row.exploratory?.reason ?? (row.stopped ? words.sweep.stoppedBy(row.stopped.by, row.stopped.cases) : undefined)}>${stands === "best" ? "★ " : row.exploratory || row.stopped ? "" : "☆ "}${row.stopped ? words.sweep.stoppedAfter(row.stopped.by, row.stopped.cases) : words.sweep[/** @type {"best"} */ (stands)]}</span>` : null}
          ${isBase(row) ? html`<span class="tag">${words.sweep.baseline}</span>` : null}</td>
        ${nodes.map((node) => html`<td class="name">${labels[node]}</td>`)}
        <td class="num">${count(estimate.n)}${row.exploratory && estimate.n ? html` <small class="quiet" title=${words.sweep.suggestedBy(row.exploratory.suggested_by)}>${words.sweep.leftOut(row.exploratory.cases_left_out)}</small>` : null}</td><td class="num">${figure(estimate.mean)}</td>
        <td title=${classes && Number.isFinite(estimate.class_cases) ? words.sweep.classCases(estimate.class_cases) : undefined}><${Interval} estimate=${estimate} scale=${scale} baseline=${base} /></td>
        <td class="num">${estimate.n ? html`<${Difference} estimate=${estimate} better=${better} />` : null}</td><td class="num">${probability(estimate.p_adjusted)}</td>${margin === undefined ? null : html`<td><${GoodEnough} within=${estimate.within} /></td>`}
        ${hasFailures ? html`<td class="num">${row.failed ? html`<span class="bad">${count(row.failed)}</span>` : ""}</td>` : null}
        ${hasLost ? html`<td class="num">${row.lost_to_provider ? count(row.lost_to_provider) : ""}</td>` : null}
        ${isPaid ? html`<td class="num">${usd(row.cost_usd, costliest)}</td>` : null}<td class="num">${duration(row.latency_s.p50)}</td>
      </tr>`;
    })}</tbody>
  </table></div>${classes && !matrix.warnings.includes(classes.sentence) ? html`<p class="quiet">${classes.sentence}</p>` : null}`;
}
