/** Other values for keys of a state, and other variants of nodes, as a person types them. */
import { asText } from "../lib/format.js";
import { html } from "../lib/html.js";
import { choicesOf, kindOf, typedOf, valueOf } from "../lib/parameters.js";
import { words } from "../lib/words.js";
import { jsonOf, written } from "../lib/written.js";

/** What is typed so far, by key: only keys that were touched. @typedef {Record<string, string>} Typed */

/** Values by key, and those of them that are text as it was typed, which a server reads as the types of their keys. @param {Typed} typed @param {Record<string, unknown>} state */
export function changesOf(typed, state) {
  const changed = Object.entries(typed).filter(([key, text]) => text !== asTyped(state[key]));
  return { set: Object.fromEntries(changed.map(([key, text]) => [key, read(key, text, state[key])])), written: Object.fromEntries(changed) };
}

/** A value as it is edited: text as it is, all else as JSON. @param {unknown} content */
const asTyped = (content) => (typeof content === "string" ? content : asText(content));

/** @param {string} key @param {string} text @param {unknown} before */
function read(key, text, before) {
  if (typeof before === "string") return text;
  try {
    return written(text);
  } catch (error) {
    throw new Error(words.changes.wrong(key, /** @type {Error} */ (error).message));
  }
}

/** @param {{state: Record<string, unknown>, typed: Typed, onChange: (typed: Typed) => void}} props */
export function StateFields({ state, typed, onChange }) {
  return html`${Object.entries(state).map(([key, content]) => {
    const text = typed[key] ?? asTyped(content);
    return html`<label key=${key}><code>${key}</code><textarea class="mono" spellcheck=${false} rows=${Math.min(12, text.split("\n").length)} value=${text}
      onInput=${(/** @type {any} */ event) => onChange({ ...typed, [key]: event.target.value })}></textarea></label>`;
  })}`;
}

/** @param {{vary: Record<string, string[]>, picked: Record<string, string>, onChange: (picked: Record<string, string>) => void}} props */
export function VariantFields({ vary, picked, onChange }) {
  return html`${Object.entries(vary).map(
    ([node, variants]) => html`<label key=${node}>${words.changes.variantOf(node)}<select value=${picked[node] ?? ""} onChange=${(/** @type {any} */ event) => onChange({ ...picked, [node]: event.target.value })}>
      <option value="">${words.changes.asItWas}</option>${variants.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`,
  )}`;
}

/** @typedef {import("../lib/parameters.js").Parameter} Parameter */

const SHORT = 40; // characters of a text in the name of a variant

/**
 * Variants to choose by node, and levels by `node.parameter`: of a node for which another variant was chosen, what a sweep file has for one with these parameters.
 * @param {Record<string, string>} picked @param {Record<string, Record<string, string>>} typed @param {Record<string, Parameter[]>} parameters of each node under the variant that is chosen
 * @returns {Record<string, unknown>}
 */
export function variantsOf(picked, typed, parameters) {
  const variants = /** @type {Record<string, unknown>} */ (Object.fromEntries(Object.entries(picked).filter(([, name]) => name)));
  for (const [node, of_node] of Object.entries(typed)) {
    const changed = (parameters[node] ?? []).filter(({ name, current }) => of_node[name] !== undefined && of_node[name] !== textOf(current));
    const values = changed.map((parameter) => /** @type {[string, unknown]} */ ([parameter.name, valueFrom(parameter, of_node[parameter.name])]));
    if (!values.length) continue;
    if (picked[node]) variants[node] = { ...Object.fromEntries(values), name: [picked[node], ...values.map(([name, setting]) => `${name}=${shortened(typedOf(setting))}`)].join(" "), of: picked[node] };
    else for (const [name, setting] of values) variants[`${node}.${name}`] = typedOf(setting); // the server reads it as the type of the parameter
  }
  return variants;
}

/** @param {unknown} current */
const textOf = (current) => (current === undefined ? "" : typedOf(current));

/** @param {Parameter} parameter @param {string} text */
const valueFrom = (parameter, text) => (choicesOf(parameter.schema) ? written(text) : valueOf(parameter, text));

/** @param {string} text */
function shortened(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > SHORT ? `${line.slice(0, SHORT)}…` : line;
}

/** Fields for the parameters of nodes, with their values filled in. @param {{parameters: Record<string, Parameter[]>, typed: Record<string, Record<string, string>>, onChange: (typed: Record<string, Record<string, string>>) => void}} props */
export function ParameterFields({ parameters, typed, onChange }) {
  const nodes = Object.entries(parameters).filter(([, of_node]) => of_node.length);
  return html`${nodes.map(([node, of_node]) => html`<fieldset key=${node} class="factors"><legend>${node}</legend>${of_node.map(
    (parameter) => html`<${ParameterField} key=${parameter.name} parameter=${parameter} text=${typed[node]?.[parameter.name]} onInput=${(/** @type {string} */ text) => onChange({ ...typed, [node]: { ...typed[node], [parameter.name]: text } })} />`,
  )}</fieldset>`)}`;
}

/** @param {{parameter: Parameter, text: string | undefined, onInput: (text: string) => void}} props */
function ParameterField({ parameter, text, onInput }) {
  const { name, schema, shown: description, current } = parameter;
  const on = (/** @type {any} */ event) => onInput(event.target.value);
  const choices = choicesOf(schema);
  if (choices) {
    const choiceText = text ?? (current === undefined ? "" : jsonOf(current));
    return html`<label class="wide"><code>${name}</code><select value=${choiceText} onChange=${on}>${current === undefined ? html`<option value=""></option>` : null}${choices.map((choice) => html`<option value=${jsonOf(choice)}>${typedOf(choice)}</option>`)}</select></label>`;
  }
  const typedText = text ?? textOf(current);
  if (kindOf(parameter) === "texts") return html`<label class="wide"><code>${name}</code><textarea rows=${Math.min(16, Math.max(4, typedText.split("\n").length + 1))} value=${typedText} onInput=${on}></textarea></label>`;
  return html`<label class="wide"><code>${name}</code><input value=${typedText} placeholder=${current === undefined ? words.changes.asItWas : description} onInput=${on} /></label>`;
}
