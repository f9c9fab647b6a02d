/** Outputs that stand in a file, filtered as a server filters those of its database. */
import { asText } from "./format.js";

/** @param {{outputs: any, failureScores: Record<string, number | null>}} data @returns {import("./output_pages.js").Source} */
export function fromFile({ outputs, failureScores }) {
  const columnOf = new Map(outputs.rows.map((/** @type {any} */ one, /** @type {number} */ place) => [one.row, place]));
  return {
    load: async (query) => {
      const { rows, columns, failed, differ, worst, tag, text, wrong, metric, cases, offset, limit } = /** @type {any} */ (query);
      const cellOf = (/** @type {any} */ one, /** @type {number} */ row) => one.cells[/** @type {number} */ (columnOf.get(row))] ?? null;
      const needle = text?.toLowerCase();
      const found = outputs.cases.filter((/** @type {any} */ one) => {
        const cells = rows.map((/** @type {number} */ row) => cellOf(one, row)).filter(Boolean);
        return (
          (!failed || cells.some(isFailed)) &&
          (!differ.length || unlike(cellOf(one, differ[0]), cellOf(one, differ[1]))) &&
          (!wrong || isWrongIn(one.cells, wrong, metric, outputs.metrics[metric])) &&
          (!tag || one.tags.includes(tag)) &&
          (!cases.length || cases.includes(one.case)) &&
          (!needle || textsOf(one, cells).some((part) => part.toLowerCase().includes(needle)))
        );
      });
      if (worst) {
        const sign = outputs.metrics[worst]?.better === "lower" ? -1 : 1;
        const means = new Map(found.map((/** @type {any} */ one) => [one, meanOf(rows.map((/** @type {number} */ row) => cellOf(one, row)), worst, failureScores[worst] ?? null)]));
        found.sort((/** @type {any} */ a, /** @type {any} */ b) => {
          const [one, other] = [means.get(a), means.get(b)];
          return one === null || other === null ? Number(one === null) - Number(other === null) : sign * (one - other);
        });
      }
      const page = found.slice(offset, offset + limit).map((/** @type {any} */ one) => ({ ...one, cells: columns.map((/** @type {number} */ row) => cellOf(one, row)) }));
      return { ...outputs, total: found.length, offset, cases: page };
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
function isFailed(cell) {
  return cell.status === "failed" || cell.status === "set_aside";
}

/** Whether two cells ended in different ways, or with different outputs. @param {any} one @param {any} other */
function unlike(one, other) {
  return Boolean(one && other) && (one.status !== other.status || JSON.stringify(one.outputs) !== JSON.stringify(other.outputs));
}

/** @param {any} found @param {any[]} cells @returns {string[]} */
function textsOf(found, cells) {
  const values = [...Object.values(found.input), found.expected, ...cells.flatMap((cell) => Object.values(cell.outputs))];
  return [found.case, ...cells.map((cell) => cell.error ?? ""), ...values.filter(Boolean).map((/** @type {any} */ one) => asText(one.value))];
}

/** @param {any[]} cells @param {string} metric @param {number | null} failure @returns {number | null} */
function meanOf(cells, metric, failure) {
  const scores = cells.filter(Boolean).map((cell) => (isFailed(cell) && failure !== null ? failure : cell.scores[metric]?.value ?? null)).filter((score) => score !== null);
  return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
}
