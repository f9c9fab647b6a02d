/** Other values for keys of a state, and other variants of nodes, as a person types them. */
import { asText } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";

/** What is typed so far, by key: only keys that were touched. @typedef {Record<string, string>} Typed */

/**
 * Values by key, and those of them that are text as it was typed, which a server reads as the types of their keys.
 * @param {Typed} typed @param {Record<string, unknown>} state
 */
export function changesOf(typed, state) {
  const changed = Object.entries(typed).filter(([key, text]) => text !== asTyped(state[key]));
  return { set: Object.fromEntries(changed.map(([key, text]) => [key, read(key, text, state[key])])), written: Object.fromEntries(changed) };
}

/** A value as it is edited: text as it is, all else as JSON. @param {unknown} value */
function asTyped(value) {
  return typeof value === "string" ? value : asText(value);
}

/** @param {string} key @param {string} text @param {unknown} before */
function read(key, text, before) {
  if (typeof before === "string") return text;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(words.changes.wrong(key, /** @type {Error} */ (error).message));
  }
}

/** @param {{state: Record<string, unknown>, typed: Typed, onChange: (typed: Typed) => void}} props */
export function StateFields({ state, typed, onChange }) {
  return html`${Object.entries(state).map(([key, value]) => {
    const text = typed[key] ?? asTyped(value);
    return html`<label key=${key}><code>${key}</code><textarea class="mono" spellcheck=${false} rows=${Math.min(12, text.split("\n").length)} value=${text}
      onInput=${(/** @type {any} */ event) => onChange({ ...typed, [key]: event.target.value })}></textarea></label>`;
  })}`;
}

/** @param {{vary: Record<string, string[]>, chosen: Record<string, string>, onChange: (chosen: Record<string, string>) => void}} props */
export function VariantFields({ vary, chosen, onChange }) {
  return html`${Object.entries(vary).map(
    ([node, variants]) => html`<label key=${node}>${words.changes.variantOf(node)}<select value=${chosen[node] ?? ""} onChange=${(/** @type {any} */ event) => onChange({ ...chosen, [node]: event.target.value })}>
      <option value="">${words.changes.asItWas}</option>${variants.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`,
  )}`;
}

/** What is typed for parameters of a node, by their names. @typedef {Record<string, string>} Parameters */

/**
 * Variants to choose, by node: names, and where parameters were typed what a sweep file has for a variant with them.
 * @param {Record<string, string>} chosen @param {Record<string, Parameters>} typed @param {Record<string, string>} usual the variant of each node where none was chosen
 * @returns {Record<string, unknown>}
 */
export function variantsOf(chosen, typed, usual) {
  const found = /** @type {Record<string, unknown>} */ (Object.fromEntries(Object.entries(chosen).filter(([, name]) => name)));
  for (const [node, parameters] of Object.entries(typed)) {
    const given = Object.entries(parameters).filter(([, text]) => text.trim());
    const of = chosen[node] || usual[node];
    const name = [of, ...given.map(([parameter, text]) => `${parameter}=${text.trim()}`)].join(" ");
    if (given.length) found[node] = { ...Object.fromEntries(given.map(([parameter, text]) => [parameter, valueOf(text)])), name, of };
  }
  return found;
}

/** A value as it is typed: JSON, else the text itself. @param {string} text */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Fields for the parameters of nodes. @param {{parameters: Record<string, string[]>, typed: Record<string, Parameters>, onChange: (typed: Record<string, Parameters>) => void}} props */
export function ParameterFields({ parameters, typed, onChange }) {
  const nodes = Object.entries(parameters).filter(([, names]) => names.length);
  if (!nodes.length) return null;
  return html`<details><summary>${words.changes.parameters}</summary><p class="quiet">${words.changes.parametersLegend}</p>
    ${nodes.map(([node, names]) => html`<fieldset key=${node}><legend>${node}</legend>${names.map(
      (name) => html`<label key=${name}><code>${name}</code><input value=${typed[node]?.[name] ?? ""} placeholder=${words.changes.asItWas}
        onInput=${(/** @type {any} */ event) => onChange({ ...typed, [node]: { ...typed[node], [name]: event.target.value } })} /></label>`,
    )}</fieldset>`)}</details>`;
}
