/** Cases opened: input, expected value, and two combinations side by side with what differs between them. */
import { combination, duration, figure, sizeText, usd, visible } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { factorsOf } from "../lib/matrix_view.js";
import { isPrinting } from "../lib/theme.js";
import { reportWords as texts } from "../lib/report_words.js";
import { compareTexts } from "../lib/text_diff.js";

const PARTS = /** @type {const} */ (["steps", "calls", "files"]);

/** Where each case is opened on the page. @param {any} opened @returns {Map<string, string>} */
export function anchorsOf(opened) {
  return new Map([...(opened?.cases ?? [])].map((openedCase, number) => /** @type {[string, string]} */ ([openedCase.case, `case-${number}`])).reverse());
}

/** @param {{opened: any, matrix: any}} props opened: of the evidence */
export function OpenedCases({ opened, matrix }) {
  const factors = factorsOf(matrix);
  const leftOut = [...(opened.cut ? [texts.characters(opened.cut)] : []), ...(opened.left_out ? [texts.casesLeftOut(opened.left_out)] : [])];
  return html`${opened.cases.map((/** @type {any} */ openedCase, /** @type {number} */ number) => html`<${OpenedCase} openedCase=${openedCase} id=${`case-${number}`} matrix=${matrix} factors=${factors} />`)}
    ${leftOut.length ? html`<p class="quiet">${texts.leftOut(leftOut, matrix.sweep.id)}</p>` : null}`;
}

/** @param {{openedCase: any, id: string, matrix: any, factors: string[]}} props */
function OpenedCase({ openedCase, id, matrix, factors }) {
  const [isOpen, setOpen] = useState(false);
  const score = (/** @type {any} */ side) => (matrix.primary in side.scores ? shownScore(side.scores[matrix.primary]) : side.status);
  const facts = [openedCase.sides.map(score).join(" | "), texts.whyOpened[openedCase.why] ?? openedCase.why, openedCase.tags.join(", ")].filter(Boolean);
  const isShown = isOpen || isPrinting.value;
  return html`<details class="opened" id=${id} open=${isShown} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}><summary><b class="name">${visible(openedCase.case)}</b> <span class="quiet">${facts.map(visible).join(" · ")}</span></summary>
    ${isShown ? html`<${Sides} openedCase=${openedCase} matrix=${matrix} factors=${factors} />` : null}</details>`;
}

/** @param {{openedCase: any, matrix: any, factors: string[]}} props */
function Sides({ openedCase, matrix, factors }) {
  const { sides } = openedCase;
  const keys = [...new Set(sides.flatMap((/** @type {any} */ side) => Object.keys(side.output)))];
  const has = {
    steps: true,
    calls: sides.some((/** @type {any} */ side) => side.calls.length || side.more.calls),
    files: sides.some((/** @type {any} */ side) => side.files === null || side.files.changes.length),
  };
  return html`<dl>${Object.entries(openedCase.input).map(([key, content]) => html`<dt>${visible(key)}</dt><dd><${Value} value=${content} /></dd>`)}
      ${openedCase.expected ? html`<dt>${texts.expected}</dt><dd><${Value} value=${openedCase.expected} /></dd>` : null}</dl>
    ${sides.length ? null : html`<p class="quiet">${texts.notBegun}</p>`}
    <div class="two">${sides.map((/** @type {any} */ side) => html`<div class="side-head"><b class="mono">${combination(matrix.rows[side.combination].combination, factors)}</b>
      <p class="figures">${Object.entries(side.scores).map(([name, score]) => html`<span>${visible(name.split(":").at(-1) ?? name)} <b>${shownScore(score)}</b></span>`)}<span class="quiet">${spentOn(side)}</span></p><code>wtb show ${side.execution}</code></div>`)}</div>
    ${keys.map((key) => html`<h4>${visible(key)}</h4><${Values} values=${sides.map((/** @type {any} */ side) => side.output[key] ?? null)} />`)}
    ${sides.some((/** @type {any} */ side) => side.error) ? html`<h4>${texts.error}</h4><${Values} values=${sides.map((/** @type {any} */ side) => side.error)} />` : null}
    ${sides.length ? PARTS.filter((part) => has[part]).map((part) => html`<h4>${texts.parts[part]}</h4><div class="two">${sides.map((/** @type {any} */ side) => html`<div><${Part} part=${part} side=${side} otherSides=${sides.filter((/** @type {any} */ other) => other !== side)} /></div>`)}</div>`) : null}`;
}

/** What a side did, called or changed; what the other has not is marked. @param {{part: "steps" | "calls" | "files", side: any, otherSides: any[]}} props */
function Part({ part, side, otherSides }) {
  if (part === "calls") return html`${side.calls.map((/** @type {any} */ call) => html`<${Call} call=${call} />`)}${side.more.calls ? html`<p class="quiet">${texts.more(side.more.calls)}</p>` : side.calls.length ? null : html`<p class="quiet">${texts.noneOf}</p>`}`;
  if (part === "files" && side.files === null) return html`<p class="quiet">${texts.noFiles}</p>`;
  const lines = part === "steps" ? stepsOf(side, otherSides) : filesOf(side, otherSides);
  const more = part === "steps" ? side.more.steps : side.files.more;
  if (!lines.length && !more) return html`<p class="quiet">${texts.noneOf}</p>`;
  return html`<ol class="did">${lines.map(({ text, isMarked, facts, error }) => html`<li>${isMarked ? html`<b>${visible(text)}</b>` : visible(text)} <small class="quiet">${facts}</small>${error ? html`<br /><small class="bad">${visible(error)}</small>` : null}</li>`)}</ol>
    ${more ? html`<p class="quiet">${texts.more(more)}</p>` : null}`;
}

/** @typedef {{text: string, isMarked: boolean, facts: string, error: string | null}} Item */

/** @param {any} side @param {any[]} otherSides @returns {Item[]} */
function stepsOf(side, otherSides) {
  const named = (/** @type {any} */ step) => `${step.node}=${step.variant}${step.status === "succeeded" ? "" : ` (${step.status})`}`;
  return side.steps.map((/** @type {any} */ step, /** @type {number} */ at) => ({
    text: named(step),
    isMarked: otherSides.length > 0 && !otherSides.some((other) => other.steps[at] && named(other.steps[at]) === named(step)),
    facts: listed([step.duration_s === null ? null : duration(step.duration_s), step.usd ? usd(step.usd) : null, step.attempts > 1 ? texts.attempt(step.attempts) : null]),
    error: step.error,
  }));
}

/** @param {any} side @param {any[]} otherSides @returns {Item[]} */
function filesOf(side, otherSides) {
  const theirs = new Set(otherSides.flatMap((other) => (other.files?.changes ?? []).map((/** @type {any} */ file) => `${file.sha256} ${file.path}`)));
  return side.files.changes.map((/** @type {any} */ file) => ({
    text: file.path,
    isMarked: otherSides.length > 0 && !theirs.has(`${file.sha256} ${file.path}`),
    facts: listed([file.kind, file.bytes === null ? null : sizeText(file.bytes)]),
    error: null,
  }));
}

/** @param {{call: any}} props */
function Call({ call }) {
  const facts = listed([call.tokens_in ? texts.tokens(call.tokens_in + (call.tokens_out ?? 0)) : null, call.duration_s === null ? null : duration(call.duration_s), call.usd ? usd(call.usd) : null]);
  const head = html`${visible(call.node)}: ${visible(call.model ?? call.tool ?? "")} <small class="quiet">${facts}</small>`;
  if (call.prompt === null && call.response === null) return html`<p>${head}</p>`;
  return html`<details><summary>${head}</summary>${call.prompt ? html`<small class="quiet">${texts.asked}</small><${Value} value=${call.prompt} />` : null}${call.response ? html`<small class="quiet">${texts.answered}</small><${Value} value=${call.response} />` : null}</details>`;
}

/** A value of each side: once where all have the same, else with the words marked that differ. @param {{values: any[]}} props */
function Values({ values }) {
  const [first, second] = [values[0], values.at(-1)];
  const isPair = values.length > 1 && first && second;
  const pieces = useMemo(() => (isPair && first.text !== second.text ? compareTexts(first.text, second.text) : null), [first, second]);
  if (isPair && !pieces && first.cut === second.cut) return html`<small class="quiet">${texts.same}</small><${Value} value=${first} />`;
  const marked = (/** @type {"removed" | "added"} */ kind) => pieces?.filter((piece) => piece.kind === "same" || piece.kind === kind).map((piece) => (piece.kind === "same" ? visible(piece.text) : kind === "removed" ? html`<del>${visible(piece.text)}</del>` : html`<ins>${visible(piece.text)}</ins>`));
  return html`<div class="two">${values.map((content, place) => (content ? html`<${Value} value=${content} marked=${marked(place ? "added" : "removed")} />` : html`<p class="quiet">${texts.nothing}</p>`))}</div>`;
}

/** @param {{value: any, marked?: any}} props */
function Value({ value, marked }) {
  return html`<div><div class="compared boxed" dir="auto">${marked ?? visible(value.text)}</div>${value.cut ? html`<small class="quiet">${texts.moreCharacters(value.cut)}</small>` : null}</div>`;
}

/** @param {any} side */
function spentOn({ status, totals }) {
  const tokens = (totals?.tokens_in ?? 0) + (totals?.tokens_out ?? 0);
  return listed([status, totals ? duration(totals.elapsed_s) : null, totals?.usd ? usd(totals.usd) : null, tokens ? texts.tokens(tokens) : null]);
}

/** @param {unknown} score */
const shownScore = (score) => (typeof score === "string" ? texts.failedScore : figure(/** @type {number | null} */ (score)));

/** @param {(string | null)[]} facts */
const listed = (facts) => facts.filter(Boolean).join(", ");
