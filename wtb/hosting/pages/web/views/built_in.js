/** Built-in evaluators of a form: picked from a list, each with the options that it takes. */
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";

/** A built-in evaluator: its options as the JSON Schema of an object. @typedef {{name: string, options: {properties: Record<string, any>, required: string[]}}} BuiltIn */
/** One that was picked, with what was typed for its options. @typedef {{name: string, typed: Record<string, string>}} Picked */

/** @param {{builtIn: BuiltIn[], picked: Picked[], keys: string[], onChange: (picked: Picked[]) => void}} props keys: of the state */
export function BuiltInFields({ builtIn, picked, keys, onChange }) {
  /** @param {number} place @param {Record<string, string>} typed */
  const type = (place, typed) => onChange(picked.map((one, number) => (number === place ? { ...one, typed: { ...one.typed, ...typed } } : one)));
  return html`<datalist id="keys-of-the-state">${keys.map((key) => html`<option value=${key} />`)}</datalist>
    ${picked.map(({ name, typed }, place) => {
      const { properties, required } = /** @type {BuiltIn} */ (builtIn.find((one) => one.name === name)).options;
      return html`<fieldset key=${place}><legend>${name}</legend>
        ${Object.entries(properties).map(([option, schema]) => html`<${Field} option=${option} schema=${schema} isNeeded=${required.includes(option)} text=${typed[option] ?? ""} onInput=${(/** @type {string} */ text) => type(place, { [option]: text })} />`)}
        <button type="button" class="plain" onClick=${() => onChange(picked.filter((_, number) => number !== place))}>${words.steering.remove}<span class="seen-only-by-readers"> ${name}</span></button>
      </fieldset>`;
    })}
    <label>${words.submit.pick}<select value="" onChange=${(/** @type {any} */ event) => { onChange([...picked, { name: event.target.value, typed: {} }]); event.target.value = ""; }}>
      <option value="">${words.submit.choose}</option>${builtIn.map(({ name }) => html`<option>${name}</option>`)}</select></label>`;
}

/** @param {{option: string, schema: any, isNeeded: boolean, text: string, onInput: (text: string) => void}} props */
function Field({ option, schema, isNeeded, text, onInput }) {
  const on = (/** @type {any} */ event) => onInput(event.target.value);
  const choices = schema.enum ?? (schema.type === "boolean" ? ["true", "false"] : null);
  const usual = schema.default === undefined || schema.default === null ? "" : words.submit.usually(String(schema.default));
  const field = choices
    ? html`<select value=${text} required=${isNeeded} onChange=${on}><option value="">${usual}</option>${choices.map((/** @type {string} */ one) => html`<option>${one}</option>`)}</select>`
    : html`<input value=${text} required=${isNeeded} placeholder=${usual} list=${option === "field" ? "keys-of-the-state" : undefined} title=${schema.description} onInput=${on} />`;
  return html`<label><span class="mono">${option}</span>${field}<small class="quiet">${schema.description}</small></label>`;
}

/** As a sweep file has them: what was left empty is left out. @param {BuiltIn[]} builtIn @param {Picked[]} picked */
export function declared(builtIn, picked) {
  return picked.map(({ name, typed }) => {
    const { properties } = /** @type {BuiltIn} */ (builtIn.find((one) => one.name === name)).options;
    const options = Object.entries(typed).filter(([, text]) => text.trim()).map(([option, text]) => [option, valueOf(text, properties[option])]);
    return options.length ? { [name]: Object.fromEntries(options) } : name;
  });
}

/** What was typed, as the type that an option has: JSON but for texts, and names between commas for a list of them. @param {string} text @param {any} schema */
function valueOf(text, schema) {
  const types = [schema.type].flat();
  if (types.includes("array") && !text.trim().startsWith("[")) return types.includes("string") ? text : text.split(",").map((one) => one.trim()).filter(Boolean);
  if (types.includes("string") && !types.includes("array")) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text; // which is refused by the server, in the words of a sweep file
  }
}
