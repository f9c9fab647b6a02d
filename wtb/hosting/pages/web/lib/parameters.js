/** Parameters of nodes as a published workflow describes them, and values of them as a person types them. */
import { parameterWords } from "./parameter_words.js";
import { Written, written } from "./written.js";

/** A parameter. current: its value where nobody changes it, undefined where that is not known. @typedef {{name: string, schema: any, shown: string, required: boolean, current: unknown}} Parameter */

const TALKATIVE = /prompt|template|instruction|system|message|persona|text/i;
const LONG = 60;

/**
 * The parameters of a variant of a node. current: what a sweep has made of a registered variant.
 * @param {any} description of the workflow
 * @param {string} node
 * @param {string} variant a registered one
 * @param {Record<string, unknown>} [current]
 * @returns {Parameter[]}
 */
export function parametersOf(description, node, variant, current = {}) {
  const described = description.nodes[node]?.variants[variant]?.function.parameters ?? {};
  const registered = description.graph.nodes.find((/** @type {any} */ declared) => declared.name === node)?.variants.find((/** @type {any} */ declared) => declared.name === variant)?.params ?? {};
  const values = { ...registered, ...current };
  return Object.entries(described).map(([name, parameter]) => ({ name, schema: parameter.type.schema ?? {}, shown: choicesOf(parameter.type.schema ?? {})?.map(typedOf).join(", ") ?? parameter.type.shown, required: parameter.required, current: name in values ? values[name] : parameter.default }));
}

/** How values of a parameter are entered: texts one after the other in boxes, choices, or lines. @param {Parameter} parameter @returns {"texts" | "choices" | "lines"} */
export function kindOf({ name, schema, current }) {
  if (choicesOf(schema)) return "choices";
  const isLong = typeof current === "string" && (current.includes("\n") || current.length > LONG);
  return isLong || (takes(schema, "string") && TALKATIVE.test(name)) ? "texts" : "lines";
}

/** The only values that there are. @param {any} schema @returns {unknown[] | null} */
export function choicesOf(schema) {
  if (schema.enum) return schema.enum;
  return schema.type === "boolean" ? [true, false] : null;
}

/** @param {any} schema @param {string} type */
const takes = (schema, type) => (schema.anyOf ?? [schema]).some((/** @type {any} */ alternative) => alternative.type === type);

/** A value as it is typed. @param {unknown} content */
export function typedOf(content) {
  if (content instanceof Written) return content.text;
  return typeof content === "string" ? content : JSON.stringify(content) ?? "";
}

/** A value as the type of a parameter: a text as it is, all else as JSON, with numbers as they were typed. @param {Parameter} parameter @param {string} text */
export function valueOf({ name, schema, shown: description }, text) {
  if (schema.type === "string") return text;
  try {
    return written(text);
  } catch (error) {
    if (takes(schema, "string") || !(schema.type || schema.anyOf)) return text;
    throw new Error(parameterWords.wrong(name, text, description));
  }
}
