/** The texts of the views of a matrix: filters, order, groups and pivot tables. */

const whole = new Intl.NumberFormat("en");

export const matrixWords = {
  views: "Rows of the matrix",
  number: "#",
  sort: "Sort",
  evidence: "by evidence",
  asSubmitted: "as submitted",
  cost: "cost",
  latency: "latency (p50)",
  reversed: (/** @type {string} */ name) => `${name}, reversed`,
  sortBy: (/** @type {string} */ name) => `Sort by ${name}`,
  group: "Group by",
  pivot: "Pivot",
  by: "by",
  measure: "Measure",
  nothing: "–",
  levels: (/** @type {string} */ factor, /** @type {string[]} */ levels) => (levels.length ? `${factor}: ${levels.join(", ")}` : factor),
  without: "without",
  shown: (/** @type {number} */ count, /** @type {number} */ all) => `${whole.format(count)} of ${whole.format(all)} combinations. Filters change no statistic: intervals, tests and corrections are those of all rows.`,
  together: (/** @type {[string, string][][]} */ all) => `${all.map((pairs) => pairs.map(([factor, level]) => `${factor}=${level}`).join(" ")).join(" or ")}:`,
  all: "Show all",
  none: "No combination is left by the filters.",
  caption: (/** @type {string} */ metric, /** @type {string[]} */ factors, /** @type {number[]} */ counts) =>
    `${metric} by ${factors.join(" and ")}: mean over the combinations that share the levels${counts.length === 1 ? `, ${whole.format(counts[0])} in each cell` : ""}.`,
  range: (/** @type {string} */ low, /** @type {string} */ high) => `${low} to ${high}`,
  intervals: "Below each mean is its interval: at least 95%, as means of the combinations' intervals. No test is made here.",
  unbalanced: "Cells average different levels of the other factors, so differences between cells may be due to those.",
  leftOut: (/** @type {number} */ count) => `${whole.format(count)} ${count === 1 ? "combination" : "combinations"} left out: stopped, added after results were seen, or without a figure.`,
  combinations: (/** @type {number} */ count) => `${whole.format(count)} ${count === 1 ? "combination" : "combinations"}`,
  cellLeftOut: "left out",
  showRows: (/** @type {string} */ mean, /** @type {string} */ levels) => `${mean}: show the rows with ${levels}`,
  colours: "The better, the stronger the colour.",
};
