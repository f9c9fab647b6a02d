/** The mean of each row within the cases of each tag, and how far it is from the baseline there. */
import { combination, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { Difference } from "./intervals.js";

/** @param {{matrix: any, order: number[], nodes: string[]}} props nodes: those in which rows differ */
export function Slices({ matrix, order, nodes }) {
  const { metric, tags, left_out: leftOut } = matrix.slices;
  const { better } = matrix.metrics[metric];
  const title = words.slices.title(metric);
  return html`<section><h2>${title}</h2>
    <div class="scroll" tabindex="0" role="group" aria-label=${title}><table>
      <thead><tr><th>${words.price.combination}</th><th class="num">${words.slices.all}</th>
        ${tags.map((/** @type {any} */ slice) => html`<th class="num">${slice.tag}<br /><small>${words.slices.cases(slice.cases)}</small></th>`)}</tr></thead>
      <tbody>${order.map((number) => {
        const row = matrix.rows[number];
        return html`<tr key=${number}><td class="name mono">${combination(row.combination, nodes)}</td><td class="num">${figure(row.metrics[metric]?.mean)}</td>
          ${tags.map((/** @type {any} */ slice) => html`<td class="num">${figure(slice.rows[number].mean)} <small><${Difference} estimate=${slice.rows[number]} better=${better} /></small></td>`)}</tr>`;
      })}</tbody></table></div>
    <p class="quiet">${words.slices.legend}${leftOut ? ` ${words.slices.leftOut(leftOut)}` : ""}</p></section>`;
}
