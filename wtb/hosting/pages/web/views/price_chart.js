/** Cost against quality: every combination as a mark with its intervals, and the line of the best mean at each price. */
import { combination, duration, figure, largestOf, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { scaleOf } from "./intervals.js";

const [WIDTH, HEIGHT] = [640, 320];
const [LEFT, RIGHT, TOP, BOTTOM] = [62, 18, 12, 40]; // of the frame
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/**
 * @typedef {object} Mark
 * @property {number} row
 * @property {boolean} isRanked whether it can be the best: planned, and not stopped
 * @property {number} price dollars, or seconds
 * @property {[number, number] | null} prices their 95% interval, where it is known
 * @property {number} mean
 * @property {[number, number] | null} ci
 */

/** What a row costs, by money if anything costs any, else by time; null where the metric is the price itself. @param {any} matrix @param {string} metric */
function priceOf(matrix, metric) {
  const costliest = largestOf(matrix.rows.map((/** @type {any} */ row) => row.cost_usd));
  const isPaid = costliest > 0;
  const name = isPaid ? "cost" : "latency"; // of the evaluators that score the same
  if (metric === name) return null;
  const of = (/** @type {any} */ row) => (isPaid ? row.cost_usd : row.latency_s.p50);
  return { of, name, show: isPaid ? (/** @type {number} */ amount) => usd(amount, costliest) : duration, ci: (/** @type {any} */ row) => (isPaid ? (row.metrics.cost?.ci ?? null) : null) };
}

/** The marks than which none that is as cheap or cheaper has as good a mean, the cheapest first. @param {Mark[]} marks @param {string} better @returns {Mark[]} */
export function front(marks, better) {
  const sign = better === "lower" ? -1 : 1;
  const line = /** @type {Mark[]} */ ([]);
  for (const mark of [...marks].sort((a, b) => a.price - b.price || sign * (b.mean - a.mean))) {
    const last = line.at(-1);
    if (!last || sign * mark.mean > sign * last.mean) line.push(mark);
  }
  return line;
}

/** Rows that have both a mean and a price. @param {any} matrix @param {string} metric @returns {Mark[]} */
export function marksOf(matrix, metric) {
  const price = priceOf(matrix, metric);
  if (!price) return [];
  return matrix.rows
    .map((/** @type {any} */ row, /** @type {number} */ number) => ({ row: number, isRanked: !row.stopped && !row.exploratory, price: price.of(row), prices: price.ci(row), mean: row.metrics[metric]?.mean, ci: row.metrics[metric]?.ci ?? null }))
    .filter((/** @type {Mark} */ mark) => Number.isFinite(mark.price) && Number.isFinite(mark.mean));
}

/** @param {{matrix: any, metric: string}} props */
export function PriceChart({ matrix, metric }) {
  const price = priceOf(matrix, metric);
  const marks = marksOf(matrix, metric);
  if (!price || marks.length < 2) return null;
  const { better } = matrix.metrics[metric];
  const line = front(marks.filter((mark) => mark.isRanked), better);
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination));
  const name = (/** @type {Mark} */ mark) => combination(matrix.rows[mark.row].combination, nodes);
  const label = words.price.label(words.price[/** @type {"cost"} */ (price.name)], metric);
  return html`<section><h2>${label}</h2>
    <div class="scroll" tabindex="0" role="group" aria-label=${label}><${Drawing} marks=${marks} line=${line} name=${name} show=${price.show} label=${label} metric=${metric} better=${better} /></div>
    <p class="quiet">${words.price.legend}</p>
    <div class="scroll" tabindex="0"><table><thead><tr><th></th><th>${words.price.combination}</th><th class="num">${words.price[/** @type {"cost"} */ (price.name)]}</th><th class="num">${metric}</th></tr></thead>
      <tbody>${line.map((mark, place) => html`<tr><td><b>${LETTERS[place] ?? ""}</b></td><td class="name mono">${name(mark)}</td><td class="num">${price.show(mark.price)}</td><td class="num">${figure(mark.mean)}</td></tr>`)}</tbody></table></div>
  </section>`;
}

/** @param {{marks: Mark[], line: Mark[], name: (mark: Mark) => string, show: (price: number) => string, label: string, metric: string, better: string}} props */
function Drawing({ marks, line, name, show, label, metric, better }) {
  const [low, high] = scaleOf(marks.map((mark) => ({ mean: mark.price, ci: mark.prices })));
  const [worst, best] = scaleOf(marks);
  const x = (/** @type {number} */ amount) => LEFT + ((amount - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
  const y = (/** @type {number} */ amount) => HEIGHT - BOTTOM - ((amount - worst) / (best - worst)) * (HEIGHT - TOP - BOTTOM);
  const path = line.map((mark, place) => `${place ? `H${x(mark.price)}V` : `M${x(mark.price)} `}${y(mark.mean)}`).join("") + `H${WIDTH - RIGHT}`;
  return html`<svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${label}>
    <path class="axis" d=${`M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`} />
    ${ticks(low, high).map((tick) => html`<text class="tick" x=${x(tick)} y=${HEIGHT - BOTTOM + 16} text-anchor="middle">${show(tick)}</text>`)}
    ${ticks(worst, best).map((tick) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - RIGHT} y1=${y(tick)} y2=${y(tick)} /><text class="tick" x=${LEFT - 6} y=${y(tick) + 4} text-anchor="end">${figure(tick)}</text>`)}
    <text class="tick" x=${WIDTH - RIGHT} y=${HEIGHT - 6} text-anchor="end">${metric} ${better === "lower" ? "↓" : "↑"} · ${words.price.cheaper}</text>
    <path class="front" d=${path} />
    ${marks.map((mark) => {
      const letter = line.indexOf(mark);
      return html`<g class=${letter < 0 ? "mark" : "mark on"}><title>${`${name(mark)}: ${figure(mark.mean)}, ${show(mark.price)}`}</title>
        ${mark.ci ? html`<line x1=${x(mark.price)} x2=${x(mark.price)} y1=${y(mark.ci[0])} y2=${y(mark.ci[1])} />` : null}
        ${mark.prices ? html`<line x1=${x(mark.prices[0])} x2=${x(mark.prices[1])} y1=${y(mark.mean)} y2=${y(mark.mean)} />` : null}
        <circle cx=${x(mark.price)} cy=${y(mark.mean)} r=${letter < 0 ? 4 : 5} />
        ${letter < 0 ? null : html`<text x=${x(mark.price) + 8} y=${y(mark.mean) - 7}>${LETTERS[letter] ?? ""}</text>`}</g>`;
    })}
  </svg>`;
}

/** Round figures between two ends. @param {number} low @param {number} high @returns {number[]} */
export function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough) ?? rough;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => (first + place) * step);
}
