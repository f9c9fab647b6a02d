/** What somebody varies, as a sweep file has it: variants of nodes, and levels of their parameters. */
import { choicesOf, kindOf, parametersOf, valueOf } from "./parameters.js";
import { parameterWords } from "./parameter_words.js";
import { written } from "./written.js";

/** What is varied of a node. levels: typed, by parameter. @typedef {{variants: string[], levels: Record<string, string[]>}} Varied */
/** By node. @typedef {Record<string, Varied>} Vary */

/** Nothing varied yet. @param {any} description @returns {Vary} */
export function nothingVaried(description) {
  return Object.fromEntries(description.graph.nodes.map((/** @type {any} */ node) => [node.name, { variants: [node.default], levels: {} }]));
}

/** The levels of a node that are filled in. @param {any} description @param {string} node @param {Varied} varied @returns {Record<string, unknown[]>} */
function levelsOf(description, node, { levels }) {
  const { default: usual } = description.graph.nodes.find((/** @type {any} */ candidate) => candidate.name === node);
  const chosenLevels = /** @type {Record<string, unknown[]>} */ ({});
  for (const parameter of parametersOf(description, node, usual)) {
    const isLines = kindOf(parameter) === "lines";
    const typed = (levels[parameter.name] ?? []).flatMap((text) => (isLines ? text.split("\n").map((line) => line.trim()) : [text])).filter((text) => text.trim());
    const values = typed.map((text) => (choicesOf(parameter.schema) ? written(text) : valueOf(parameter, text)));
    const seen = new Set();
    for (const [place, value] of values.entries()) {
      const key = JSON.stringify(value);
      if (seen.has(key)) throw new Error(parameterWords.twice(`${node}.${parameter.name}`, typed[place]));
      seen.add(key);
    }
    if (values.length) chosenLevels[parameter.name] = values;
  }
  return chosenLevels;
}

/** `vary` of a sweep file. @param {any} description @param {Vary} vary @returns {Record<string, unknown>} */
export function varyOf(description, vary) {
  const factors = /** @type {Record<string, unknown>} */ ({});
  for (const { name, default: usual } of description.graph.nodes) {
    const levels = levelsOf(description, name, vary[name]);
    const variants = vary[name].variants.length ? vary[name].variants : [usual];
    const isUsual = variants.length === 1 && variants[0] === usual;
    if (!Object.keys(levels).length) {
      if (!isUsual) factors[name] = variants;
    } else {
      factors[name] = isUsual ? levels : variants.map((variant) => (variant === usual ? levels : { of: variant, ...levels }));
    }
  }
  const [first] = description.graph.nodes;
  return Object.keys(factors).length ? factors : { [first.name]: [first.default] }; // a sweep has a row at least
}

/** How many variants of each node there are that has several. @param {any} description @param {Vary} vary @returns {number[]} */
export function factorsOf(description, vary) {
  const sizes = description.graph.nodes.map((/** @type {any} */ node) => {
    const levels = Object.values(levelsOf(description, node.name, vary[node.name])).map((values) => values.length);
    return [Math.max(1, vary[node.name].variants.length), ...levels];
  });
  return sizes.flat().filter((/** @type {number} */ size) => size > 1);
}
