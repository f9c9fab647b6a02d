/** What pages say about parameters of nodes. */
import { many } from "./words.js";

export const parameterWords = {
  title: "Factors",
  legend: "Choose variants of nodes, and levels of their parameters: every combination of them runs.",
  variants: "Variants",
  none: "takes no parameters",
  by: (/** @type {string} */ type, /** @type {string | null} */ current) => (current === null ? type : `${type}, now ${current}`),
  vary: "Vary",
  keep: "Keep as it is",
  levels: (/** @type {string} */ name) => `Levels of ${name}, one a line`,
  level: (/** @type {string} */ name, /** @type {number} */ number) => `Level ${number} of ${name}`,
  add: "Add a level",
  remove: (/** @type {string} */ name, /** @type {number} */ number) => `Remove level ${number} of ${name}`,
  wrong: (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ type) => `${name}: “${text.length > 60 ? `${text.slice(0, 60)}…` : text}” is no ${type}`,
  twice: (/** @type {string} */ name, /** @type {string} */ text) => `${name}: level “${text.length > 60 ? `${text.slice(0, 60)}…` : text}” a second time`,
  combinations: (/** @type {number[]} */ factors, /** @type {number} */ total) => `${factors.length > 1 ? `${factors.join(" × ")} = ` : ""}${many(total, "combination")}`,
};
