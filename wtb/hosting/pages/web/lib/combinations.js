/** Combinations, which are a variant for each node. */
import { labelsOf } from "./format.js";

/** Nodes and factors in which combinations differ. @param {Record<string, string>[]} combinations @param {string | null} [first] which of them is named first */
export function differing(combinations, first = null) {
  const labels = combinations.map(labelsOf);
  const nodes = Object.keys(combinations[0] ?? {});
  const known = [...new Set(labels.flatMap(Object.keys))];
  const inOrder = nodes.flatMap((node) => [node, ...known.filter((key) => key.startsWith(`${node}.`) && !nodes.includes(key))]);
  const keys = [...new Set(inOrder)].filter((key) => known.includes(key)).sort((a, b) => Number(b === first) - Number(a === first));
  const varied = keys.filter((key) => labels.some((one) => one[key] !== labels[0][key]));
  return varied.length ? varied : keys;
}
