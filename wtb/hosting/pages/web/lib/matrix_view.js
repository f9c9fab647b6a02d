/** Which rows of a matrix are shown, in which order, and pivot tables of them: what an address says, and what `wtb matrix` shows alike. */
import { differing, withoutHash } from "./combinations.js";
import { labelsOf } from "./format.js";

/**
 * @typedef {object} View
 * @property {string} sort `evidence`, `number`, `cost`, `latency`, a metric or a factor; `:asc` or `:desc` may follow
 * @property {boolean} good only rows that are shown to be within the margin
 * @property {Map<string, string[]>} where levels by factor, of which one must hold
 * @property {[string, string][][]} together factors with their levels that must hold together; of those with the same factors, one must hold
 * @property {string | null} group the factor by whose levels rows stand together
 * @property {string[]} pivot one or two factors
 * @property {string | null} measure `cost` or `latency`, of which a pivot table is made instead of the metric
 */
/** @typedef {{mean: number | null, ci: number[] | null, rows: number[], left_out: number[]}} PivotCell */
/** @typedef {{factors: string[], metric: string, lines: (string | null)[], columns: (string | null)[], cells: PivotCell[][], balanced: boolean}} Pivot */

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
export const FIGURES = ["cost", "latency"];

/** Nodes and factors in which rows differ. @param {any} matrix @returns {string[]} */
export const factorsOf = (matrix) => differing(matrix.rows.map((/** @type {any} */ row) => row.combination));

/** What an address looks at; factors that there are no longer are left out. @param {Record<string, string>} query @param {any} matrix @param {string | null} metric @returns {View} */
export function viewOf(query, matrix, metric) {
  const factors = factorsOf(matrix);
  const where = /** @type {Map<string, string[]>} */ (new Map());
  const [single, ...several] = (query.where ?? "").split(";");
  for (const [factor, level] of new URLSearchParams(single)) {
    const named = factors.includes(factor) ? levelNamed(matrix, factor, level) : null;
    if (named !== null) where.set(factor, [...(where.get(factor) ?? []), named]);
  }
  const old = /^node:(.*)$/s.exec(query.sort ?? ""); // of addresses from before rows could be grouped and sorted at once
  const fallback = metric ? "evidence" : "number";
  const sort = old || !query.sort || !isSort(query.sort, matrix, factors) ? fallback : query.sort;
  const group = query.group ?? old?.[1];
  return {
    sort,
    good: Boolean(query.good),
    where,
    together: several.map((text) => [...new URLSearchParams(text)].map(([factor, level]) => [factor, levelNamed(matrix, factor, level) ?? level])),
    group: group !== undefined && factors.includes(group) ? group : null,
    pivot: (query.pivot ?? "").split(",").filter((factor, place, all) => factors.includes(factor) && all.indexOf(factor) === place).slice(0, 2),
    measure: FIGURES.includes(query.measure) && !(query.measure in matrix.metrics) ? query.measure : null,
  };
}

/** The level of a factor that an address names; of a file its path may do without what stands after the #. @param {any} matrix @param {string} factor @param {string} level */
function levelNamed(matrix, factor, level) {
  const levels = levelsOf(matrix, everyRow(matrix), factor);
  const near = levels.filter((candidate) => candidate !== null && withoutHash(candidate) === level);
  return levels.includes(level) ? level : near.length === 1 ? near[0] : null;
}

/** Filters as they stand in an address. @param {Map<string, string[]>} where @param {[string, string][][]} together @returns {string | null} */
export function whereText(where, together) {
  const single = [...where].flatMap(([factor, levels]) => levels.map((level) => [factor, level]));
  return [single, ...together].map((pairs) => new URLSearchParams(pairs).toString()).join(";") || null;
}

/** Whether a row has levels that hold together: of those of the same factors, one. @param {Record<string, string>} labels @param {[string, string][][]} together */
function hasTogether(labels, together) {
  const holds = /** @type {Map<string, boolean>} */ (new Map());
  for (const pairs of together) {
    const factors = JSON.stringify(pairs.map(([factor]) => factor).sort());
    holds.set(factors, Boolean(holds.get(factors)) || pairs.every(([factor, level]) => labels[factor] === level));
  }
  return [...holds.values()].every(Boolean);
}

/** @param {any} matrix @returns {number[]} */
const everyRow = (matrix) => matrix.rows.map((/** @type {any} */ _, /** @type {number} */ number) => number);

/** A sort without its direction, and the direction. @param {string} sort @returns {[string, "asc" | "desc" | null]} */
export function sortParts(sort) {
  const match = /^(.+):(asc|desc)$/s.exec(sort);
  return match ? [match[1], /** @type {"asc"} */ (match[2])] : [sort, null];
}

/** @param {string} sort @param {any} matrix @param {string[]} factors */
function isSort(sort, matrix, factors) {
  const [name] = sortParts(sort);
  return ["evidence", "number", ...FIGURES].includes(name) || name in matrix.metrics || factors.includes(name);
}

/** The direction in which a sort goes, if nothing is said. @param {any} matrix @param {string} name @returns {"asc" | "desc"} */
export const usualDirection = (matrix, name) => (matrix.metrics[name]?.better === "higher" ? "desc" : "asc");

/** A row's mean of a metric with its interval; or its cost or latency, if no metric has that name. @param {any} row @param {string} metric @returns {[number | null, number[] | null]} */
function figureOf(row, metric) {
  const estimate = row.metrics[metric];
  if (estimate) return [estimate.mean, estimate.ci];
  return [metric === "cost" ? row.cost_usd : metric === "latency" ? row.latency_s.p50 : null, null];
}

/** Levels of a factor: by number if all are numbers, else as declared; null last, of rows without it. @param {any} matrix @param {number[]} rows @param {string} factor @returns {(string | null)[]} */
export function levelsOf(matrix, rows, factor) {
  const distinct = new Set([...rows].sort((a, b) => a - b).map((number) => /** @type {string | null} */ (labelsOf(matrix.rows[number].combination)[factor] ?? null)));
  const levels = /** @type {string[]} */ ([...distinct].filter((level) => level !== null));
  if (levels.every((level) => NUMBER.test(level))) levels.sort((a, b) => Number(a) - Number(b));
  return distinct.has(null) ? [...levels, null] : levels;
}

/** The numbers of the rows that a view shows, from top to bottom. @param {any} matrix @param {string | null} metric @param {View} view @returns {number[]} */
export function rowsOf(matrix, metric, { sort, good, where, together, group }) {
  const isShown = (/** @type {number} */ number) => {
    const row = matrix.rows[number];
    const labels = labelsOf(row.combination);
    return (!good || !metric || isGoodEnough(row, metric)) && [...where].every(([factor, levels]) => levels.includes(labels[factor])) && hasTogether(labels, together);
  };
  const rows = sorted(matrix, metric, sort).filter(isShown);
  if (!group) return rows;
  const levels = levelsOf(matrix, rows, group);
  return levels.flatMap((level) => rows.filter((number) => (labelsOf(matrix.rows[number].combination)[group] ?? null) === level));
}

/** All rows in order; what has no figure comes last, whatever the direction. @param {any} matrix @param {string | null} metric @param {string} sort @returns {number[]} */
function sorted(matrix, metric, sort) {
  const [name, direction] = sortParts(sort);
  if (name === "evidence") return rowsByEvidence(matrix, metric);
  const sign = (direction ?? usualDirection(matrix, name)) === "desc" ? -1 : 1;
  const rows = everyRow(matrix);
  const places = new Map(levelsOf(matrix, rows, name).map((level, place) => [level, place]));
  const isFigure = name in matrix.metrics || FIGURES.includes(name);
  const of = (/** @type {number} */ number) => {
    if (name === "number") return number;
    if (isFigure) return figureOf(matrix.rows[number], name)[0];
    const level = labelsOf(matrix.rows[number].combination)[name];
    return level === undefined ? null : (places.get(level) ?? null);
  };
  const values = rows.map(of);
  const measured = rows.filter((number) => values[number] !== null).sort((a, b) => sign * (Number(values[a]) - Number(values[b])) || a - b);
  return [...measured, ...rows.filter((number) => values[number] === null)];
}

/** Those that could be best first, then by their means. @param {any} matrix @param {string | null} metric @returns {number[]} */
export function rowsByEvidence(matrix, metric) {
  const numbers = everyRow(matrix);
  if (!metric) return numbers;
  const sign = matrix.metrics[metric]?.better === "lower" ? 1 : -1;
  const best = matrix.best[metric];
  const rank = (/** @type {number} */ number) => {
    const row = matrix.rows[number];
    const stands = standing(row, best);
    const estimate = row.metrics[metric];
    const mean = estimate?.common_mean ?? estimate?.mean;
    return [stands === "best" || stands === "leads" ? 0 : stands === "couldBeBest" ? 1 : 2, Number.isFinite(mean) ? sign * mean : Infinity];
  };
  return numbers.sort((a, b) => {
    const [first, other] = [rank(a), rank(b)];
    return first[0] - other[0] || first[1] - other[1] || a - b;
  });
}

/** @param {any} row @param {any} best @returns {"best" | "leads" | "couldBeBest" | "exploratory" | "stopped" | null} */
export function standing(row, best) {
  if (row.exploratory) return "exploratory";
  if (row.stopped) return "stopped";
  const same = (/** @type {any} */ candidate) => candidate && JSON.stringify(candidate) === JSON.stringify(row.combination);
  if (best && same(best.combination)) {
    if (best.clear) return "best";
    if (best.rival === null) return null; // it has no rival to lead
    if (best.lead > 0) return "leads"; // else others are as good
  }
  return best?.candidates.some(same) ? "couldBeBest" : null;
}

/** Whether a row, or a line of a history, is of the baseline. @param {any} matrix @param {{combination: any}} row @returns {boolean} */
export const isBaseline = ({ baseline }, { combination }) => Boolean(baseline) && JSON.stringify(combination) === JSON.stringify(baseline);

/** Whether a row is shown to be within the margin of the best. @param {any} row @param {string} metric */
export const isGoodEnough = (row, metric) => row.metrics[metric]?.within?.shown === true;

/**
 * A figure by one or two factors: each cell is the mean over the means of the rows that share both levels, with the
 * means of the ends of their intervals. Rows that were stopped, or added after results were seen, are left out.
 * @param {any} matrix @param {number[]} rows @param {string[]} factors @param {string} metric @returns {Pivot}
 */
export function pivotOf(matrix, rows, factors, metric) {
  const every = [...rows].sort((a, b) => a - b);
  const labels = new Map(every.map((number) => [number, labelsOf(matrix.rows[number].combination)]));
  const lines = levelsOf(matrix, every, factors[0]);
  const columns = factors.length > 1 ? levelsOf(matrix, every, factors[1]) : [null];
  const otherFactors = [...new Set(matrix.rows.flatMap((/** @type {any} */ row) => Object.keys(labelsOf(row.combination))))].filter((key) => !factors.includes(key)).sort();
  const averaged = new Set();
  const cells = lines.map((line) =>
    columns.map((column) => {
      const share = every.filter((number) => [line, column].slice(0, factors.length).every((level, place) => (labels.get(number)?.[factors[place]] ?? null) === level));
      const cell = cellOf(matrix, share, metric);
      if (cell.rows.length) averaged.add(JSON.stringify([...new Set(cell.rows.map((number) => JSON.stringify(otherFactors.map((key) => labels.get(number)?.[key] ?? null))))].sort()));
      return cell;
    }),
  );
  return { factors, metric, lines, columns, cells, balanced: averaged.size <= 1 };
}

/** @param {any} matrix @param {number[]} share @param {string} metric @returns {PivotCell} */
function cellOf(matrix, share, metric) {
  const figures = share.map((number) => figureOf(matrix.rows[number], metric));
  const averagedRows = share.map((number, place) => ({ number, mean: figures[place][0], ci: figures[place][1] })).filter(({ number, mean }) => mean !== null && !matrix.rows[number].exploratory && !matrix.rows[number].stopped);
  const rows = averagedRows.map(({ number }) => number);
  const mean = (/** @type {(number | null)[]} */ values) => values.reduce((/** @type {number} */ sum, number) => sum + Number(number), 0) / values.length;
  return {
    mean: averagedRows.length ? mean(averagedRows.map((row) => row.mean)) : null,
    ci: averagedRows.length && averagedRows.every((row) => row.ci) ? [0, 1].map((end) => mean(averagedRows.map((row) => /** @type {number[]} */ (row.ci)[end]))) : null,
    rows,
    left_out: share.filter((number) => !rows.includes(number)),
  };
}
