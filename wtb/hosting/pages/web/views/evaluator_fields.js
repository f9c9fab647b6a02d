/** Evaluators of a form: picked from a list, each with the options that it takes, and tried on an output. */
import { Refused, useAction } from "../lib/action.js";
import { post } from "../lib/api.js";
import { figure } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { typedOf } from "../lib/parameters.js";
import { evaluatorWords } from "../lib/evaluator_words.js";
import { words } from "../lib/words.js";
import { written } from "../lib/written.js";

/** An evaluator: its options as the JSON Schema of an object. @typedef {{name: string, options: {properties: Record<string, any>, required: string[]}}} Listed */
/** One that was picked, with what was typed for its options. @typedef {{name: string, typed: Record<string, string>}} Picked */
/** A case to try evaluators with. @typedef {{id: string, input: Record<string, unknown>, expected: unknown}} Example */

/** @param {{builtIn: Listed[], own: Listed[], picked: Picked[], state: any, example: Example | null, onChange: (picked: Picked[]) => void}} props own: that workers publish. state: its keys, as described */
export function EvaluatorFields({ builtIn, own, picked, state, example, onChange }) {
  const every = [...own, ...builtIn];
  /** @param {number} place @param {Record<string, string>} typed */
  const type = (place, typed) => onChange(picked.map((evaluator, number) => (number === place ? { ...evaluator, typed: { ...evaluator.typed, ...typed } } : evaluator)));
  const choices = (/** @type {Listed[]} */ from) => from.map(({ name }) => html`<option>${name}</option>`);
  return html`<datalist id="keys-of-the-state">${Object.keys(state).map((key) => html`<option value=${key} />`)}</datalist>
    ${picked.map((evaluator, place) => {
      const listed = /** @type {Listed} */ (every.find(({ name }) => name === evaluator.name));
      const { properties, required } = listed.options;
      return html`<fieldset key=${place} class="evaluator"><legend>${evaluator.name}</legend>
        ${Object.entries(properties).map(([option, schema]) => html`<${Field} option=${option} schema=${schema} isNeeded=${required.includes(option)} text=${evaluator.typed[option] ?? ""} onInput=${(/** @type {string} */ text) => type(place, { [option]: text })} />`)}
        ${own.includes(listed) ? html`<p class="quiet">${evaluatorWords.onWorkers}</p>` : html`<${Trial} listed=${listed} picked=${evaluator} state=${state} example=${example} />`}
        <button type="button" class="plain" onClick=${() => onChange(picked.filter((_, number) => number !== place))}>${words.steering.remove}<span class="seen-only-by-readers"> ${evaluator.name}</span></button>
      </fieldset>`;
    })}
    <label>${evaluatorWords.pick}<select value="" onChange=${(/** @type {any} */ event) => { onChange([...picked, { name: event.target.value, typed: {} }]); event.target.value = ""; }}>
      <option value="">${words.submit.choose}</option>
      ${own.length ? html`<optgroup label=${evaluatorWords.own}>${choices(own)}</optgroup>` : null}
      <optgroup label=${evaluatorWords.builtIn}>${choices(builtIn)}</optgroup></select></label>`;
}

/** @param {{option: string, schema: any, isNeeded: boolean, text: string, onInput: (text: string) => void}} props */
function Field({ option, schema, isNeeded, text, onInput }) {
  const on = (/** @type {any} */ event) => onInput(event.target.value);
  const choices = schema.enum ?? (schema.type === "boolean" ? ["true", "false"] : null);
  const usual = schema.default === undefined || schema.default === null ? "" : words.submit.usually(String(schema.default));
  const field = choices
    ? html`<select value=${text} required=${isNeeded} onChange=${on}><option value="">${usual}</option>${choices.map((/** @type {string} */ choice) => html`<option>${choice}</option>`)}</select>`
    : html`<input value=${text} required=${isNeeded} placeholder=${usual} list=${option === "field" ? "keys-of-the-state" : undefined} title=${schema.description} onInput=${on} />`;
  return html`<label><span class="mono">${option}</span>${field}<small class="quiet">${schema.description}</small></label>`;
}

/** What an evaluator gives for an output that is typed in. @param {{listed: Listed, picked: Picked, state: any, example: Example | null}} props */
function Trial({ listed, picked, state, example }) {
  const key = picked.typed.field?.trim() || "";
  const [output, setOutput] = useState(/** @type {string | null} */ (null));
  const [expected, setExpected] = useState(/** @type {string | null} */ (null));
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const { perform, problem, isBusy } = useAction();
  const exampleValue = example?.expected ?? null;
  const usual = exampleValue === null ? "" : typedOf(exampleValue);
  const outputText = output ?? (key ? usual : JSON.stringify(Object.fromEntries(Object.keys(state).map((name) => [name, null]))));
  const tryIt = () => perform(async () => {
    setPreview(null);
    const text = expected ?? usual;
    const body = { evaluator: declared([listed], [picked])[0], state: key ? { [key]: asKey(outputText, state[key]) } : JSON.parse(outputText), input: example?.input, expected: expected === null ? exampleValue : text.trim() ? asExpected(text, exampleValue) : null };
    setPreview(await post("/evaluators/preview", body));
  });
  return html`<details class="trial"><summary>${evaluatorWords.trial}</summary>
    <label class="wide">${key ? evaluatorWords.output(key) : evaluatorWords.state}<textarea rows="3" spellcheck=${false} value=${outputText} onInput=${(/** @type {any} */ event) => setOutput(event.target.value)}></textarea></label>
    <label class="wide">${evaluatorWords.expected(example?.id ?? null)}<textarea rows="2" spellcheck=${false} value=${expected ?? usual} onInput=${(/** @type {any} */ event) => setExpected(event.target.value)}></textarea></label>
    <div class="bar"><button type="button" disabled=${isBusy} onClick=${tryIt}>${evaluatorWords.score}</button><div role="status" class="name">${preview ? html`<${Scores} preview=${preview} />` : null}</div></div>
    <${Refused} problem=${problem} /></details>`;
}

/** @param {{preview: any}} props */
function Scores({ preview }) {
  if (preview.runs === "workers") return html`<span>${evaluatorWords.notTried(preview.reason)}</span>`;
  if (preview.needs_expected) return html`<span>${evaluatorWords.needsExpected}</span>`;
  return preview.scores.map((/** @type {any} */ score) => html`<div key=${score.metric}><span class="mono">${score.metric}</span> ${score.value === null ? html`<span class="bad">${score.error ?? score.observed}</span>` : html`<b>${figure(score.value)}</b>`}${score.scale ? html` <span class="quiet">${evaluatorWords.scale(score.scale)}</span>` : null}</div>`);
}

/** A text as a key of the state: a text unless the key has another type. @param {string} text @param {any} key */
function asKey(text, key) {
  if (!key?.type.schema?.type || key.type.schema.type === "string") return text;
  return jsonElseText(text);
}

/** @param {string} text @param {unknown} before what the case has, whose kind it is read as */
const asExpected = (text, before) => (typeof before === "string" ? text : before === null && !/^\s*[[{]/.test(text) ? text : jsonElseText(text));

/** @param {string} text */
function jsonElseText(text) {
  try {
    return written(text);
  } catch {
    return text;
  }
}

/** As a sweep file has them: what was left empty is left out. @param {Listed[]} listed @param {Picked[]} picked */
export function declared(listed, picked) {
  return picked.map(({ name, typed }) => {
    const { properties } = /** @type {Listed} */ (listed.find((evaluator) => evaluator.name === name)).options;
    const options = Object.entries(typed).filter(([, text]) => text.trim()).map(([option, text]) => [option, valueOf(text, properties[option])]);
    return options.length ? { [name]: Object.fromEntries(options) } : name;
  });
}

/** What was typed, as the type that an option has: JSON but for texts, and names between commas for a list of them. @param {string} text @param {any} schema */
function valueOf(text, schema) {
  const types = [schema.type].flat();
  if (types.includes("array") && !text.trim().startsWith("[")) return types.includes("string") ? text : text.split(",").map((part) => part.trim()).filter(Boolean);
  if (types.includes("string") && !types.includes("array")) return text;
  return jsonElseText(text); // which is refused by the server, in the words of a sweep file
}
