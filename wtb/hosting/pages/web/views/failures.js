/** Why cells and scores failed, each cause once, and which combinations it concerns. */
import { differing } from "../lib/combinations.js";
import { combination, labelsOf, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { reportWords as texts } from "../lib/report_words.js";

/** @param {{failures: any, matrix: any}} props failures: of the evidence, or those of the matrix */
export function Failures({ failures, matrix }) {
  const { cells = failures.causes, scores = [], left_out: leftOut = 0, more = 0 } = failures;
  const whom = (/** @type {number[] | undefined} */ numbers) => (numbers ? concerned(matrix.rows, numbers) : null);
  return html`<ul class="causes">${cells.map((/** @type {any} */ cause) => html`<li><b>${texts.cellsFailed(cause.cells)}</b> <span dir="auto">${cause.node ? `${visible(cause.node)}: ` : ""}<b>${visible(cause.type ?? texts.noError)}</b> ${visible(cause.message ?? "")}</span>
      <p class="quiet">${[whom(cause.combinations), cause.set_aside ? texts.setAside(cause.set_aside) : null, cause.example?.case ? texts.suchAs(visible(cause.example.case)) : null].filter(Boolean).join(", ")} ${cause.example?.execution ? html`<code>wtb show ${cause.example.execution}</code>` : cause.example?.command ? html`<code>${cause.example.command}</code>` : null}</p></li>`)}
    ${scores.map((/** @type {any} */ cause) => html`<li><b>${texts.scoresFailed(cause.scores)}</b> <span dir="auto">${texts.scoring(cause.metric)} ${visible(cause.message)}</span><p class="quiet">${whom(cause.combinations)}</p></li>`)}</ul>
    ${leftOut ? html`<p class="quiet">${texts.rarer(leftOut)}</p>` : more ? html`<p class="quiet">${texts.moreCauses(more)}</p>` : null}`;
}

/** Which rows, in words: all of them, those of one level, or by name. @param {any[]} rows of a matrix @param {number[]} numbers */
function concerned(rows, numbers) {
  if (numbers.length === rows.length) return rows.length > 1 ? texts.everyCombination : texts.theOnly;
  const labels = rows.map((row) => labelsOf(row.combination));
  const factors = differing(rows.map((row) => row.combination));
  for (const factor of factors) {
    const level = labels[numbers[0]]?.[factor];
    const isShared = level !== undefined && numbers.every((number) => labels[number][factor] === level);
    if (isShared && labels.filter((levels) => levels[factor] === level).length === numbers.length) return texts.everyWith(factor, level);
  }
  const names = numbers.slice(0, 3).map((number) => combination(rows[number].combination, factors));
  return [...names, ...(numbers.length > 3 ? [texts.moreCombinations(numbers.length - 3)] : [])].join("; ");
}
