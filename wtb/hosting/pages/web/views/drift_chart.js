/** A schedule night by night: each mean with its interval, the fixed reference, the baseline that moves, and alarms. */
import { date, figure } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { scaleOf } from "./intervals.js";
import { ticks } from "./price_chart.js";

const [WIDTH, HEIGHT] = [640, 240];
const [LEFT, RIGHT, TOP, BOTTOM] = [62, 18, 14, 34]; // of the frame
const ARM = 5; // of the cross of an alarm

/** @param {{history: any, bad: string[]}} props history: of /schedules/NAME/history; bad: verdicts that are alarms */
export function DriftChart({ history, bad }) {
  const nights = history.fires.filter((/** @type {any} */ fire) => Number.isFinite(fire.mean));
  if (nights.length < 2) return null;
  const { reference, metric, better, schedule } = history;
  const [low, high] = scaleOf([...nights, ...(reference ? [reference] : [])]);
  const x = (/** @type {number} */ place) => LEFT + ((place + 0.5) / nights.length) * (WIDTH - LEFT - RIGHT);
  const y = (/** @type {number} */ score) => HEIGHT - BOTTOM - ((score - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const half = (x(1) - x(0)) / 2;
  const last = nights.at(-1);
  const label = words.drift.label(schedule, metric, nights.length, reference?.mean === undefined ? null : figure(reference.mean), figure(last.mean));
  return html`<section><h2>${schedule}: ${metric} ${better === "lower" ? "↓" : "↑"}</h2>
    <div class="scroll" tabindex="0" role="group" aria-label=${label}><svg class="chart drift" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${label}>
      <path class="axis" d=${`M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`} />
      ${ticks(low, high).map((tick) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - RIGHT} y1=${y(tick)} y2=${y(tick)} /><text class="tick" x=${LEFT - 6} y=${y(tick) + 4} text-anchor="end">${figure(tick)}</text>`)}
      <text class="tick" x=${LEFT} y=${HEIGHT - 12}>${date(nights[0].fire_at)}</text><text class="tick" x=${WIDTH - RIGHT} y=${HEIGHT - 12} text-anchor="end">${date(last.fire_at)}</text>
      ${Number.isFinite(reference?.mean) ? html`<line class="fixed" x1=${LEFT} x2=${WIDTH - RIGHT} y1=${y(reference.mean)} y2=${y(reference.mean)}><title>${words.drift.reference(figure(reference.mean), date(reference.at))}</title></line>` : null}
      ${nights.map((/** @type {any} */ fire, /** @type {number} */ place) => {
        const isAlarm = bad.includes(fire.verdict);
        const [at, mean] = [x(place), y(fire.mean)];
        const ends = fire.ci ? `, ${words.interval(figure(fire.ci[0]), figure(fire.ci[1]))}` : "";
        return html`<g class=${isAlarm ? "night alarm" : "night"}><title>${[`${date(fire.fire_at)}: ${figure(fire.mean)}${ends}`, fire.verdict ?? fire.status, fire.code_changed?.length ? words.schedules.codeChanged(fire.code_changed.join(", ")) : null].filter(Boolean).join(", ")}</title>
          ${fire.code_changed?.length ? html`<text class="tick" x=${at} y=${HEIGHT - BOTTOM + 12} text-anchor="middle">▲</text>` : null}
          ${Number.isFinite(fire.baseline_mean) ? html`<line class="moving" x1=${at - half} x2=${at + half} y1=${y(fire.baseline_mean)} y2=${y(fire.baseline_mean)} />` : null}
          ${fire.ci ? html`<line class="range" x1=${at} x2=${at} y1=${y(fire.ci[0])} y2=${y(fire.ci[1])} />` : null}
          ${isAlarm ? html`<path d=${`M${at - ARM} ${mean - ARM}L${at + ARM} ${mean + ARM}M${at - ARM} ${mean + ARM}L${at + ARM} ${mean - ARM}`} />` : html`<circle cx=${at} cy=${mean} r="3.5" />`}</g>`;
      })}
    </svg></div>
    <p class="quiet">${words.drift.legend}</p></section>`;
}
