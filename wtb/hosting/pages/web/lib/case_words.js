/** What pages say about files of cases. */
import { many } from "./words.js";

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: 1 })} MB`;

export const caseWords = {
  pasted: "pasted",
  title: "Cases",
  drop: "Drop a CSV, XLSX or JSON Lines file here, choose one, or paste rows below.",
  choose: "Choose a file",
  text: "Cases, each a line of JSON, or a table",
  example: "Fill in an example",
  reading: "Reading …",
  remove: "Remove the file",
  oneFile: "Several files were dropped; expected one file of cases.",
  noTable: (/** @type {string} */ name, /** @type {string[]} */ endings) => `${name} is no file of cases; expected a name that ends with ${endings.join(", ")}.`,
  tooLarge: (/** @type {string} */ name, /** @type {number} */ size, /** @type {number} */ limit) => `${name} has ${megabytes(size)}; expected at most ${megabytes(limit)}.`,
  empty: (/** @type {string} */ name) => `${name} is empty; expected at least one case.`,
  read: (/** @type {number} */ cases, /** @type {number} */ blank) => `${many(cases, "case")}${blank ? `, ${many(blank, "blank row")} skipped` : ""}`,
  columns: "Keys of columns",
  heading: "column",
  readAs: "read as",
  values: "values",
  ignore: "(not used)",
  offered: "suggested",
  keyOf: (/** @type {string} */ heading) => `Column ${heading} is read as`,
  first: "The first cases",
  input: "input",
  expected: "expected",
};
