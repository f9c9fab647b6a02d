/** Parameters of nodes as a published workflow describes them, and values of them as a person types them. */
import { parameterWords } from "./parameter_words.js";
import { Written, written } from "./written.js";

/** A parameter. current: its value where nobody changes it, undefined where that is not known. @typedef {{name: string, schema: any, shown: string, required: boolean, current: unknown}} Parameter */

const TALKATIVE = /prompt|template|instruction|system|message|persona|text/i;
const LONG = 60;

/**
 * The parameters of a variant of a node. made: what a sweep has made of a registered variant.
 * @param {any} description of the workflow
 * @param {string} node
 * @param {string} variant a registered one
 * @param {Record<string, unknown>} [made]
 * @returns {Parameter[]}
 */
export function parametersOf(description, node, variant, made = {}) {
  const described = description.nodes[node]?.variants[variant]?.function.parameters ?? {};
  const registered = description.graph.nodes.find((/** @type {any} */ one) => one.name === node)?.variants.find((/** @type {any} */ one) => one.name === variant)?.params ?? {};
  const values = { ...registered, ...made };
  return Object.entries(described).map(([name, one]) => ({ name, schema: one.type.schema ?? {}, shown: choicesOf(one.type.schema ?? {})?.map(typedOf).join(", ") ?? one.type.shown, required: one.required, current: name in values ? values[name] : one.default }));
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
function takes(schema, type) {
  return (schema.anyOf ?? [schema]).some((/** @type {any} */ one) => one.type === type);
}

/** A value as it is typed. @param {unknown} value */
export function typedOf(value) {
  if (value instanceof Written) return value.text;
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/**
 * A value as the type of a parameter: a text as it is, all else as JSON, with numbers as they were typed.
 * @param {Parameter} parameter @param {string} text
 */
export function valueOf({ name, schema, shown }, text) {
  if (schema.type === "string") return text;
  try {
    return written(text);
  } catch (error) {
    if (takes(schema, "string") || !(schema.type || schema.anyOf)) return text;
    throw new Error(parameterWords.wrong(name, text, shown));
  }
}
