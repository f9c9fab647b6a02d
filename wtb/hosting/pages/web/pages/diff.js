/** Two executions: the first step at which they part, and in what their states and files differ. */
import { get, segment } from "../lib/api.js";
import { combination } from "../lib/format.js";
import { differing } from "../lib/combinations.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { useCase } from "../views/case_of_execution.js";
import { CaseCell, OutputCell } from "../views/output_cell.js";
import { outputWords } from "../lib/output_words.js";
import { Difference } from "../views/state_difference.js";

/** @param {{parts: string[]}} props */
export function DiffPage({ parts: [a, b] }) {
  const resource = useResource((signal) => get(`/executions/${segment(a)}/diff/${segment(b)}`, {}, signal), [a, b]);
  const difference = resource.data;
  if (!difference) return html`<h1>${words.diff.title}</h1><${Waiting} resource=${resource} />`;
  const { divergence } = difference;
  const names = namesOf([difference.a, difference.b]);
  const links = [a, b].map((id, place) => html`<${Link} to=${`/executions/${segment(id)}`}>${names[place]}<//>`);
  return html`<div class="head"><h1>${difference.a.case && difference.a.case === difference.b.case ? `${difference.a.case}: ` : ""}${links[0]} ${words.diff.versus} ${links[1]}</h1></div>
    <${Cases} sides=${[difference.a, difference.b]} names=${names} />
    <p class="answer">${divergence ? words.diff.parts(divergence.step, words.diff.why[/** @type {"path"} */ (divergence.why)] ?? divergence.why) : words.diff.same}</p>
    <p class="quiet">${words.diff.shared(difference.shared_steps)}</p>
    <h2>${words.execution.state}</h2>
    <${Difference} difference=${difference} names=${links} />`;
}

/** What two executions are called: by the variants in which they differ, else by repeat, sweep or id. @param {any[]} sides */
function namesOf(sides) {
  const combinations = sides.map((side) => side.combinations?.[0] ?? null);
  if (combinations.every(Boolean)) {
    const nodes = differing(combinations);
    if (nodes.length) return combinations.map((variants) => combination(variants, nodes));
    if (sides[0].sweep.id !== sides[1].sweep.id && sides[0].sweep.name !== sides[1].sweep.name) return sides.map((side) => side.sweep.name);
    if (sides[0].case !== sides[1].case) return sides.map((side) => side.case);
    if (sides[0].repeat !== sides[1].repeat) return sides.map((side) => words.execution.repeat(side.repeat));
  }
  return sides.map((side) => side.id);
}

/** Of both the case with what is expected of it, what came, and the scores. @param {{sides: any[], names: string[]}} props */
function Cases({ sides, names }) {
  const seen = [useCase(sides[0]).data, useCase(sides[1]).data];
  const [first, second] = seen;
  if (!first?.caseRow && !second?.caseRow) return null;
  const isSame = sides[0].case === sides[1].case && sides[0].sweep.id === sides[1].sweep.id;
  const cases = isSame ? [first ?? second] : [first, second];
  return html`<div class="two">${cases.map((side, place) => (side?.caseRow ? html`<section><h2>${isSame ? outputWords.input : `${outputWords.input}: ${names[place]}`}</h2><${CaseCell} caseRow=${side.caseRow} repeats=${side.about.repeats} isWhole /></section>` : null))}</div>
    <div class="two">${seen.map((side, place) => (side?.cell ? html`<section><h2 class="name">${names[place]}</h2><${OutputCell} cell=${side.cell} keys=${side.about.keys} metrics=${side.about.metrics} metric=${null} isWhole /></section>` : null))}</div>`;
}
