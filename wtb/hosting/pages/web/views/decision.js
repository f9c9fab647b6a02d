/** What to ship, what that rests on, and the next step: the first thing that is shown of a sweep. Words are the server's, as in a terminal. */
import { segment } from "../lib/api.js";
import { Told } from "../lib/commands.js";
import { html } from "../lib/html.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";

const MARKS = { good: "✓", bad: "✗", open: "?" };

/** @typedef {"good" | "bad" | "open"} Tone */

/** @param {{decision: {tone: Tone, verdict: string, verdict_tone: Tone, title: string, facts: [string, string][], lines: string[], gates: [Tone, string][], compared: [string, string] | null}}} props */
export function Decision({ decision }) {
  const { tone, verdict, verdict_tone: judged, title, facts, lines, gates, compared } = decision;
  return html`<section class=${`decision is-${tone}`} aria-label=${words.decision.label}>
    ${verdict ? html`<p class=${`verdict ${judged}`}><span aria-hidden="true">${MARKS[judged]} </span>${verdict}</p>` : null}
    <h2>${title}</h2>
    ${facts.length ? html`<dl>${facts.map(([name, fact]) => html`<div><dt>${name}</dt><dd>${fact}</dd></div>`)}</dl>` : null}
    ${lines.map((line) => html`<p><${Told} text=${line} /></p>`)}
    ${gates.length ? html`<ul class="gates">${gates.map(([mark, text]) => html`<li class=${mark}><span aria-hidden="true">${MARKS[mark]} </span>${text}</li>`)}</ul>` : null}
    ${compared ? html`<p><${Link} to=${`/compare/${segment(compared[0])}/${segment(compared[1])}`}>${words.decision.compare}<//></p>` : null}
  </section>`;
}

/** Warnings that could change the decision; the others, and what each metric says, behind a count. @param {{matrix: any, answers: string[]}} props */
export function Notes({ matrix, answers }) {
  const first = matrix.decision?.warnings ?? matrix.warnings.length;
  const rest = matrix.warnings.slice(first);
  return html`${matrix.warnings.slice(0, first).map((/** @type {string} */ text) => html`<p class="notice"><${Told} text=${text} /></p>`)}
    ${rest.length ? html`<details class="notes"><summary>${words.decision.warnings(rest.length, first > 0)}</summary>${rest.map((/** @type {string} */ text) => html`<p class="notice"><${Told} text=${text} /></p>`)}</details>` : null}
    ${answers.length ? html`<details class="notes"><summary>${words.decision.answers}</summary>${answers.map((text) => html`<p>${text}</p>`)}</details>` : null}`;
}
