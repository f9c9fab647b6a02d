/** Combinations, which are a variant for each node. */
import { combination, labelsOf } from "./format.js";

/** Nodes and factors in which combinations differ. @param {Record<string, string>[]} combinations @param {string | null} [first] which of them is named first */
export function differing(combinations, first = null) {
  const labels = combinations.map(labelsOf);
  const nodes = Object.keys(combinations[0] ?? {});
  const everyKey = [...new Set(labels.flatMap(Object.keys))];
  const inOrder = nodes.flatMap((node) => [node, ...everyKey.filter((key) => key.startsWith(`${node}.`) && !nodes.includes(key))]);
  const keys = [...new Set(inOrder)].filter((key) => everyKey.includes(key)).sort((a, b) => Number(b === first) - Number(a === first));
  const varied = keys.filter((key) => labels.some((levels) => levels[key] !== labels[0][key]));
  return varied.length ? varied : keys;
}

/** The label of a level without the hash that ends a long one. @param {string} label */
export const withoutHash = (label) => label.replace(/#[0-9a-f]{8}$/, "");

/**
 * Combinations by the labels that differ, such as `cited.md · medium · 0`; where one node or factor differs, with its name.
 * A long level is named without its hash where no other level has the same name.
 * @param {Record<string, string>[]} combinations @param {string | null} [first] which node or factor is named first
 * @returns {string[]}
 */
export function shortNames(combinations, first = null) {
  const keys = differing(combinations, first);
  if (keys.length < 2) return combinations.map((variants) => combination(variants, keys.length ? keys : undefined));
  const labels = combinations.map(labelsOf);
  const short = new Map(keys.map((key) => [key, withoutHashes(new Set(labels.map((levels) => levels[key])))]));
  return labels.map((levels) => keys.flatMap((key) => (key in levels ? [short.get(key)?.get(levels[key])] : [])).join(" · "));
}

/** Each label of a factor, and how it is named. @param {Set<string>} labels @returns {Map<string, string>} */
function withoutHashes(labels) {
  const bare = [...labels].filter((label) => label !== undefined).map((label) => /** @type {[string, string]} */ ([label, withoutHash(label)]));
  return new Map(bare.map(([label, name]) => [label, bare.filter(([, other]) => other === name).length > 1 ? label : name]));
}
