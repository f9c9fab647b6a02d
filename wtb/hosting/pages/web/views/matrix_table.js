/** The rows of a matrix under one metric: means, intervals, differences from the baseline, and who could be best. */
import { count, duration, figure, labelsOf, largestOf, probability, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { isBaseline, sortParts, standing, usualDirection } from "../lib/matrix_view.js";
import { matrixWords as texts } from "../lib/matrix_words.js";
import { isPrinting } from "../lib/theme.js";
import { look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { Difference, Interval, scaleOf } from "./intervals.js";

/** Whether a row is good enough: yes, no, or not shown yet; and how far it is behind. @param {{within: any}} props */
export function GoodEnough({ within }) {
  if (!within) return null;
  const { shown: isWithin, behind } = within;
  const [tone, text] = isWithin === null ? ["quiet", words.sweep.notShown] : isWithin ? ["good", words.sweep.yes] : ["bad", words.sweep.no];
  const behindText = behind === null ? undefined : isWithin === false ? words.sweep.behindAtLeast(figure(behind[0])) : words.sweep.behindAtMost(figure(behind[1]));
  return html`<span class=${`within ${tone}`}>${text}</span>${behindText ? html` <small class="quiet behind">${behindText}</small>` : null}`;
}

const LONG = 18; // characters of a level that needs room

/** A heading that sorts the rows; once more, the other way round. @param {any} props */
function Heading({ matrix, name, sort, label = name, tip, isNumber = false }) {
  const [by, chosenDirection] = sortParts(sort);
  const usual = usualDirection(matrix, name);
  const direction = by === name ? (chosenDirection ?? usual) : null;
  const next = direction === usual ? `${name}:${usual === "asc" ? "desc" : "asc"}` : name;
  return html`<th class=${isNumber ? "num" : ""} aria-sort=${direction ? (direction === "asc" ? "ascending" : "descending") : undefined}>
    ${isPrinting.value ? label : html`<button class="plain sorts" title=${tip ?? texts.sortBy(label)} onClick=${() => look({ sort: next })}>${label}<span aria-hidden="true">${direction ? (direction === "asc" ? " ▲" : " ▼") : ""}</span></button>`}</th>`;
}

/** @param {{matrix: any, metric: string, order: number[], group: string | null, sort: string}} props group: the node by whose variants rows stand together */
export function MatrixTable({ matrix, metric, order, group, sort }) {
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination), group);
  const estimates = matrix.rows.map((/** @type {any} */ row) => row.metrics[metric]);
  const scale = scaleOf(estimates);
  const { better, classes } = matrix.metrics[metric];
  const margin = matrix.rows.find((/** @type {any} */ row) => row.metrics[metric])?.metrics[metric].within?.margin;
  const base = matrix.rows.find((/** @type {any} */ row) => isBaseline(matrix, row))?.metrics[metric]?.mean;
  const columns = words.sweep.columns;
  const costliest = largestOf(matrix.rows.map((/** @type {any} */ row) => row.cost_usd));
  const isPaid = costliest || matrix.cost.unknown?.length;
  const hasFailures = matrix.rows.some((/** @type {any} */ row) => row.failed);
  const hasLost = matrix.rows.some((/** @type {any} */ row) => row.lost_to_provider);
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><${Heading} matrix=${matrix} sort=${sort} name="number" label=${texts.number} tip=${texts.sortBy(texts.asSubmitted)} isNumber /><th><span class="seen-only-by-readers">${words.sweep.best}</span></th>${nodes.map((node) => html`<${Heading} matrix=${matrix} sort=${sort} name=${node} />`)}
      <th class="num">${columns.n}</th><${Heading} matrix=${matrix} sort=${sort} name=${metric} label=${`${metric} ${better === "lower" ? "↓" : "↑"}`} isNumber /><th>${columns.ci}</th><th class="num">${columns.delta}</th><th class="num">${columns.p}</th>${margin === undefined ? null : html`<th>${words.sweep.within(margin)}</th>`}
      ${hasFailures ? html`<th class="num">${columns.failed}</th>` : null}${hasLost ? html`<th class="num">${columns.provider}</th>` : null}${isPaid ? html`<${Heading} matrix=${matrix} sort=${sort} name="cost" label=${columns.cost} isNumber />` : null}<${Heading} matrix=${matrix} sort=${sort} name="latency" label=${columns.p50} isNumber /></tr></thead>
    <tbody>${order.map((number, place) => {
      const row = matrix.rows[number];
      const labels = labelsOf(row.combination);
      const isFirst = group && place > 0 && labelsOf(matrix.rows[order[place - 1]].combination)[group] !== labels[group];
      const estimate = row.metrics[metric] ?? {};
      const stands = standing(row, matrix.best[metric]);
      return html`<tr key=${number} class=${isFirst ? "apart" : ""}>
        <td class="num quiet">${number}</td><td>${stands ? html`<span class=${`tag ${row.exploratory || row.stopped ? "" : "star"}`} title=${row.exploratory?.reason ?? (row.stopped ? words.sweep.stoppedBy(row.stopped.by, row.stopped.cases) : undefined)}>${stands === "best" ? "★ " : row.exploratory || row.stopped ? "" : "☆ "}${row.stopped ? words.sweep.stoppedAfter(row.stopped.by, row.stopped.cases) : words.sweep[/** @type {"best"} */ (stands)]}</span>` : null}
          ${isBaseline(matrix, row) ? html`<span class="tag">${words.sweep.baseline}</span>` : null}</td>
        ${nodes.map((node) => html`<td class=${`name ${(labels[node]?.length ?? 0) > LONG ? "long" : ""}`}>${labels[node]}</td>`)}
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
