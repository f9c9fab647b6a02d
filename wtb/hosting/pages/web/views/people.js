/** What people would say of rows that they have labelled: the means of a table are a judge's, and no means of theirs. */
import { combination, count, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { Difference, Interval, scaleOf } from "./intervals.js";

/** @param {{matrix: any, metric: string, order: number[]}} props */
export function People({ matrix, metric, order }) {
  const rating = matrix.people?.find((/** @type {any} */ candidate) => candidate.metric === metric);
  if (!rating) return null;
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination));
  const named = (/** @type {any} */ row) => JSON.stringify(row.combination);
  const byName = new Map(rating.rows.map((/** @type {any} */ row) => [named(row), row]));
  const rows = order.filter((number) => byName.has(named(matrix.rows[number])));
  const scale = scaleOf(rating.rows);
  const { better } = matrix.metrics[metric];
  const columns = words.people.columns;
  const title = words.people.title(metric);
  return html`<section><h2>${title}</h2>
    <p class="quiet">${words.people.basis(metric, rating.labels, rating.raters)}</p>
    <div class="scroll" tabindex="0" role="group" aria-label=${title}><table>
      <thead><tr><th>${words.price.combination}</th><th class="num">${columns.labels}</th><th class="num">${columns.judge}</th><th class="num">${columns.people}</th><th>${columns.interval}</th><th class="num">${columns.difference}</th></tr></thead>
      <tbody>${rows.map((number) => {
        const row = /** @type {any} */ (byName.get(named(matrix.rows[number])));
        return html`<tr key=${number}><td class="name mono">${combination(row.combination, nodes)}</td>
          <td class="num">${count(row.labels)}${row.few_labels ? "*" : ""}</td><td class="num">${figure(matrix.rows[number].metrics[metric]?.mean)}</td><td class="num">${figure(row.mean)}</td>
          <td>${row.ci ? html`<${Interval} estimate=${row} scale=${scale} /> <small>${words.people.interval(figure(row.ci[0]), figure(row.ci[1]))}</small>` : words.people.noInterval}</td>
          <td class="num"><${Difference} estimate=${row} better=${better} /></td></tr>`;
      })}</tbody></table></div>
    ${rating.because ? html`<p class="quiet">${words.people.notDrawn(rating.because)}</p>` : null}
    ${rating.rows.some((/** @type {any} */ row) => row.few_labels) ? html`<p class="quiet">${words.people.few}</p>` : null}</section>`;
}
