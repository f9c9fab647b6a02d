/** Why cells and scores failed, each cause once, and which combinations it concerns. */
import { differing } from "../lib/combinations.js";
import { combination, labelsOf, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { reportWords as texts } from "../lib/report_words.js";

/** @param {{failures: any, matrix: any}} props failures: of the evidence, or those of the matrix */
export function Failures({ failures, matrix }) {
  const { cells = failures.causes, scores = [], left_out: leftOut = 0, more = 0 } = failures;
  const whom = (/** @type {number[] | undefined} */ numbers) => (numbers ? concerned(matrix.rows, numbers) : null);
  return html`<ul class="causes">${cells.map((/** @type {any} */ one) => html`<li><b>${texts.cellsFailed(one.cells)}</b> <span dir="auto">${one.node ? `${visible(one.node)}: ` : ""}<b>${visible(one.type ?? texts.noError)}</b> ${visible(one.message ?? "")}</span>
      <p class="quiet">${[whom(one.combinations), one.set_aside ? texts.setAside(one.set_aside) : null, one.example?.case ? texts.suchAs(visible(one.example.case)) : null].filter(Boolean).join(", ")} ${one.example?.execution ? html`<code>wtb show ${one.example.execution}</code>` : one.example?.command ? html`<code>${one.example.command}</code>` : null}</p></li>`)}
    ${scores.map((/** @type {any} */ one) => html`<li><b>${texts.scoresFailed(one.scores)}</b> <span dir="auto">${texts.scoring(one.metric)} ${visible(one.message)}</span><p class="quiet">${whom(one.combinations)}</p></li>`)}</ul>
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
    if (isShared && labels.filter((one) => one[factor] === level).length === numbers.length) return texts.everyWith(factor, level);
  }
  const names = numbers.slice(0, 3).map((number) => combination(rows[number].combination, factors));
  return [...names, ...(numbers.length > 3 ? [texts.moreCombinations(numbers.length - 3)] : [])].join("; ");
}
