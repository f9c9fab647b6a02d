/** Outputs that stand in a file, filtered as a server filters those of its database. */
import { asText } from "./format.js";

/** @param {{outputs: any, failureScores: Record<string, number | null>}} data @returns {import("./output_pages.js").Source} */
export function fromFile({ outputs, failureScores }) {
  const columnOf = new Map(outputs.rows.map((/** @type {any} */ row, /** @type {number} */ place) => [row.row, place]));
  return {
    load: async (query) => {
      const { rows, columns, failed, differ, worst, tag, text, wrong, metric, cases, offset, limit } = /** @type {any} */ (query);
      const cellOf = (/** @type {any} */ caseRow, /** @type {number} */ row) => caseRow.cells[/** @type {number} */ (columnOf.get(row))] ?? null;
      const needle = text?.toLowerCase();
      const matching = outputs.cases.filter((/** @type {any} */ caseRow) => {
        const cells = rows.map((/** @type {number} */ row) => cellOf(caseRow, row)).filter(Boolean);
        return (
          (!failed || cells.some(isFailed)) &&
          (!differ.length || unlike(cellOf(caseRow, differ[0]), cellOf(caseRow, differ[1]))) &&
          (!wrong || isWrongIn(caseRow.cells, wrong, metric, outputs.metrics[metric])) &&
          (!tag || caseRow.tags.includes(tag)) &&
          (!cases.length || cases.includes(caseRow.case)) &&
          (!needle || textsOf(caseRow, cells).some((part) => part.toLowerCase().includes(needle)))
        );
      });
      if (worst) {
        const sign = outputs.metrics[worst]?.better === "lower" ? -1 : 1;
        const means = new Map(matching.map((/** @type {any} */ caseRow) => [caseRow, meanOf(rows.map((/** @type {number} */ row) => cellOf(caseRow, row)), worst, failureScores[worst] ?? null)]));
        matching.sort((/** @type {any} */ a, /** @type {any} */ b) => {
          const [first, other] = [means.get(a), means.get(b)];
          return first === null || other === null ? Number(first === null) - Number(other === null) : sign * (first - other);
        });
      }
      const page = matching.slice(offset, offset + limit).map((/** @type {any} */ caseRow) => ({ ...caseRow, cells: columns.map((/** @type {number} */ row) => cellOf(caseRow, row)) }));
      return { ...outputs, total: matching.length, offset, cases: page };
    },
  };
}

/** Whether all combinations are wrong, or none is: those that failed, or have another score than the best one. @param {any[]} cells @param {"all" | "none"} which @param {string} metric @param {{better: string, best: number}} measure */
function isWrongIn(cells, which, metric, { better, best }) {
  const gap = (/** @type {number} */ score) => (better === "lower" ? score - best : best - score);
  const judged = cells.filter((cell) => cell && (isFailed(cell) || typeof cell.scores[metric]?.value === "number"));
  const wrong = judged.filter((cell) => isFailed(cell) || gap(cell.scores[metric].value) > 1e-9);
  return judged.length > 0 && wrong.length === (which === "all" ? judged.length : 0);
}

/** @param {any} cell */
const isFailed = (cell) => cell.status === "failed" || cell.status === "set_aside";

/** Whether two cells ended in different ways, or with different outputs. @param {any} cell @param {any} other */
function unlike(cell, other) {
  return Boolean(cell && other) && (cell.status !== other.status || JSON.stringify(cell.outputs) !== JSON.stringify(other.outputs));
}

/** @param {any} caseRow @param {any[]} cells @returns {string[]} */
function textsOf(caseRow, cells) {
  const values = [...Object.values(caseRow.input), caseRow.expected, ...cells.flatMap((cell) => Object.values(cell.outputs))];
  return [caseRow.case, ...cells.map((cell) => cell.error ?? ""), ...values.filter(Boolean).map((/** @type {any} */ output) => asText(output.value))];
}

/** @param {any[]} cells @param {string} metric @param {number | null} failure @returns {number | null} */
function meanOf(cells, metric, failure) {
  const scores = cells.filter(Boolean).map((cell) => (isFailed(cell) && failure !== null ? failure : cell.scores[metric]?.value ?? null)).filter((score) => score !== null);
  return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
}
