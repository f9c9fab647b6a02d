/** What people say of answers, one after another, without whose they are: a key labels one and shows the next. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, may, post, segment } from "../lib/api.js";
import { figure, visible } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useKeydown } from "../lib/keys.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, Link, look, useTitle } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";

const STEPS = 20; // of a slider
/** Labels of a metric that passes or fails, each with its keys. */
const VERDICTS = /** @type {const} */ ([{ score: 1, look: "pass", key: "p", other: "1" }, { score: 0, look: "fail", key: "f", other: "0" }]);

/** Whether answers pass or fail. @param {any} queue */
const isBinary = (queue) => queue.is_binary && !Object.keys(queue.rubric).length;

/** @param {{parts: string[]}} props */
export function LabelPage({ parts: [ref] }) {
  const { metric, field, cases, again: isRepeated } = address.value.query;
  const drawn = { metric, field, cases, again: isRepeated ? "true" : undefined };
  const path = `/sweeps/${segment(ref)}`;
  const resource = useResource((signal) => get(`${path}/labelling`, drawn, signal), [ref, metric, field, cases, isRepeated]);
  const queue = resource.data;
  useTitle(`${words.label.title} ${ref}`);
  return html`<div class="head"><h1>${words.label.title} <${Link} to=${path}>${ref}<//></h1></div>
    <div class="bar"><label><input type="checkbox" checked=${Boolean(isRepeated)} onChange=${(/** @type {any} */ event) => look({ again: event.target.checked ? "1" : null })} />${words.label.again}</label></div>
    <${Waiting} resource=${resource} />
    ${queue && !may("answer") ? html`<p class="quiet">${words.label.notAllowed}</p>` : null}
    ${queue && may("answer") ? html`<${Labelling} key=${JSON.stringify([drawn, queue.rater])} path=${path} queue=${queue} drawn=${drawn} />` : null}`;
}

/** @param {{path: string, queue: any, drawn: Record<string, string | undefined>}} props */
function Labelling({ path, queue, drawn }) {
  const [place, setPlace] = useState(0);
  const [labelled, setLabelled] = useState(/** @type {number[]} */ ([])); // places of what was labelled
  const { perform, problem, isBusy } = useAction();
  const item = queue.items[place];
  const levels = Object.keys(queue.rubric);
  const drawing = { metric: queue.metric, field: drawn.field, again: Boolean(drawn.again), ...(drawn.cases ? { cases: Number(drawn.cases) } : {}) };
  /** @param {any} of @param {number | null} label */
  const send = (of, label) => perform(() => post(`${path}/labelling`, { ...drawing, case: of.case, answer: of.id, label }));
  /** @param {number} score */
  async function label(score) {
    if (isBusy || !(await send(item, score))) return;
    setLabelled((before) => [...before, place]);
    setPlace(place + 1);
  }
  async function takeBack() {
    const last = labelled[labelled.length - 1];
    if (isBusy || last === undefined || !(await send(queue.items[last], null))) return;
    setLabelled((before) => before.slice(0, -1));
    setPlace(last);
  }
  const skip = () => isBusy || setPlace((before) => Math.min(before + 1, queue.items.length));
  useKeys((key) => {
    if (key === "b") takeBack();
    else if (key === "s") skip();
    else if (item && isBinary(queue)) {
      const verdict = VERDICTS.find((candidate) => candidate.key === key || candidate.other === key);
      if (verdict) label(verdict.score);
    } else if (item && levelOf(levels, key) !== undefined) label(Number(levelOf(levels, key)));
  });
  const done = queue.done + labelled.length;
  return html`<p class="quiet" role="status">${words.label.progress(done, queue.items.length - labelled.length, queue.rater)}</p>
    ${queue.criteria ? html`<p>${queue.criteria}</p>` : null}
    ${item ? html`<${Item} item=${item} /><${Ways} levels=${levels} queue=${queue} isBusy=${isBusy} onLabel=${label} place=${place} />` : html`<${Empty} text=${words.label.nothingLeft} help="judges"><${Link} class="button" to=${path}>${words.label.toSweep}<//><//>`}
    <div class="bar"><button disabled=${isBusy || !labelled.length} onClick=${takeBack}>${words.label.back} <kbd aria-hidden="true">b</kbd></button>
      ${item ? html`<button disabled=${isBusy} onClick=${skip}>${words.label.skip} <kbd aria-hidden="true">s</kbd></button>` : null}</div>
    <${Refused} problem=${problem} />
    ${item ? null : html`<${Agreement} path=${path} metric=${queue.metric} />`}`;
}

/** @param {{item: any}} props */
function Item({ item }) {
  return html`<section aria-label=${words.label.answer}>
    <h2>${words.label.input}</h2><pre tabindex="0">${visible(item.input)}</pre>
    <h2>${words.label.answer}</h2><pre tabindex="0">${visible(item.answer)}</pre></section>`;
}

/** Pass and fail for scores of 0 and 1; a button for each level of a rubric; else a number. @param {{levels: string[], queue: any, isBusy: boolean, onLabel: (score: number) => void, place: number}} props */
function Ways({ levels, queue, isBusy, onLabel, place }) {
  if (isBinary(queue)) {
    return html`<div class="judge" role="group" aria-label=${words.label.give}>
      ${VERDICTS.map(({ score, look, key }) => html`<button key=${key} class=${look} aria-disabled=${isBusy} onClick=${() => onLabel(score)}>${words.label[look]} <kbd aria-hidden="true">${key}</kbd></button>`)}
    </div>`;
  }
  if (levels.length) {
    return html`<ul class="levels">${levels.map((level) => html`<li key=${level}><button aria-disabled=${isBusy} onClick=${() => onLabel(Number(level))}>${level} <kbd aria-hidden="true">${keyOf(levels, level)}</kbd></button> ${queue.rubric[level]}</li>`)}</ul>`;
  }
  return html`<${NumberOf} key=${place} ends=${queue.ends} isBusy=${isBusy} onLabel=${onLabel} />`;
}

/** A number, typed or, on a scale, moved to. @param {{ends: [number, number] | null, isBusy: boolean, onLabel: (score: number) => void}} props */
function NumberOf({ ends, isBusy, onLabel }) {
  const [typed, setTyped] = useState("");
  const field = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => field.current?.focus(), []);
  const type = (/** @type {any} */ event) => setTyped(event.target.value);
  const [low, high] = ends ?? [undefined, undefined];
  const isScale = ends !== null && Number.isFinite(ends[0]) && Number.isFinite(ends[1]);
  const submit = instead(() => typed !== "" && onLabel(Number(typed)));
  return html`<form class="bar" onSubmit=${submit}>
    ${isScale ? html`<input type="range" aria-label=${words.label.slide} min=${low} max=${high} step=${(ends[1] - ends[0]) / STEPS} value=${typed === "" ? (ends[0] + ends[1]) / 2 : typed} onInput=${type} />` : null}
    <label>${ends ? words.label.number(ends[0], ends[1]) : words.label.anyNumber}
    <input ref=${field} type="number" step="any" required min=${low} max=${high} value=${typed} onInput=${type} /></label>
    <button class="main" disabled=${isBusy}>${words.label.give} <kbd aria-hidden="true">Enter</kbd></button></form>`;
}

/** What the labels say of the judge so far, of no row by its name. @param {{path: string, metric: string}} props */
function Agreement({ path, metric }) {
  const { data: agreement } = useResource((signal) => get(`${path}/judge`, { metric }, signal), [path, metric]);
  if (!agreement) return null;
  return html`<dl><dt>${words.label.kappa}</dt><dd>${estimateText(agreement.kappa)}</dd><dt>${words.label.alpha}</dt><dd>${estimateText(agreement.alpha)}</dd></dl>`;
}

/** @param {{value: number | null, interval: [number, number] | null, because?: string | null}} estimate */
function estimateText(estimate) {
  return estimate.interval ? `${figure(estimate.value)} (${words.interval(figure(estimate.interval[0]), figure(estimate.interval[1]))})` : estimate.because ? `${figure(estimate.value)} (${estimate.because})` : figure(estimate.value);
}

/** The key of a level: its own digit, else its place where some level has no digit of its own. @param {string[]} levels @param {string} level */
const keyOf = (levels, level) => (levels.every((level) => /^\d$/.test(level)) ? level : String(levels.indexOf(level) + 1));

/** @param {string[]} levels @param {string} key */
const levelOf = (levels, key) => levels.find((level) => keyOf(levels, level) === key);

/** @param {(key: string) => void} onKey */
const useKeys = (onKey) => useKeydown("textarea, select, dialog", (event, target) => {
  const isNumber = target.matches("input[type=number], input[type=range]"); // where letters are no input
  if (event.repeat || (target.closest("input") && !(isNumber && /^[a-z]$/.test(event.key)))) return;
  if (isNumber) event.preventDefault();
  onKey(event.key);
});
