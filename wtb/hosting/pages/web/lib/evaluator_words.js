/** What pages say about evaluators. */
export const evaluatorWords = {
  title: "Evaluators",
  pick: "Add an evaluator",
  own: "of your code, published by workers",
  builtIn: "built in",
  onWorkers: "Your own evaluators run on workers, so they cannot be tried here.",
  trial: "Try it on an output",
  output: (/** @type {string} */ key) => `Output, the key ${key} of the final state`,
  state: "Final state, in JSON",
  expected: (/** @type {string | null} */ id) => (id === null ? "Expected value" : `Expected value, of case ${id}`),
  score: "Score it",
  notTried: (/** @type {string} */ reason) => `Not tried: ${reason}.`,
  needsExpected: "No score: there is no expected value.",
  scale: (/** @type {[number, number]} */ [low, high]) => `on a scale from ${low} to ${high}`,
  others: "Other evaluators, each a line as in a sweep file: a name, or JSON",
};
