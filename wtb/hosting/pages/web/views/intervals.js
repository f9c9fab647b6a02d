/** A mean with its interval, on the scale that all rows of a table share. */
import { difference, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";

const WIDTH = 200;
const MIDDLE = 10;
const SIGNIFICANT = 0.05; // as the commands have it

/** The ends of what all rows show. @param {any[]} estimates @returns {[number, number]} */
export function scaleOf(estimates) {
  const ends = estimates.flatMap((estimate) => [estimate?.mean, ...(estimate?.ci ?? [])]).filter(Number.isFinite);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  if (!ends.length) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - room, high + room];
}

/** @param {{estimate: any, scale: [number, number], baseline?: number | null}} props */
export function Interval({ estimate, scale, baseline }) {
  if (estimate?.mean === null || estimate === undefined) return null;
  const x = (/** @type {number} */ score) => ((score - scale[0]) / (scale[1] - scale[0])) * WIDTH;
  const [low, high] = estimate.ci ?? [estimate.mean, estimate.mean];
  const text = estimate.ci ? `${figure(estimate.mean)}, ${words.interval(figure(low), figure(high))}` : figure(estimate.mean);
  return html`<svg class="interval" viewBox=${`0 0 ${WIDTH} 20`} preserveAspectRatio="none" role="img" aria-label=${text}>
    <title>${text}</title>
    <line class="rail" x1="0" x2=${WIDTH} y1=${MIDDLE} y2=${MIDDLE} />
    ${Number.isFinite(baseline) ? html`<line class="base" x1=${x(/** @type {number} */ (baseline))} x2=${x(/** @type {number} */ (baseline))} y1="0" y2="20" />` : null}
    <line class="range" x1=${x(low)} x2=${x(high)} y1=${MIDDLE} y2=${MIDDLE} />
    <rect class="mean" x=${x(estimate.mean) - 1.5} y="4" width="3" height="12" />
  </svg>`;
}

/** A difference with its interval, coloured where it is shown: by the corrected test if there is one, else by the interval. @param {{estimate: any, better: string}} props */
export function Difference({ estimate, better }) {
  const { delta, delta_ci: ends, p_adjusted: p } = estimate;
  if (delta === null) return null;
  const isShown = Number.isFinite(p) ? p < SIGNIFICANT : ends && (ends[0] > 0 || ends[1] < 0);
  const mark = !isShown ? "" : (delta > 0) === (better === "higher") ? "good" : "bad";
  return html`<span class=${mark} title=${ends ? words.interval(difference(ends[0]), difference(ends[1])) : undefined}>${difference(delta)}</span>`;
}
