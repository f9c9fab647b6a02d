/** What a combination returned for a case: its score with the reason, time and cost, and its output. */
import { duration, figure, usd, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { words as general } from "../lib/words.js";
import { CommentList } from "./cell_comments.js";
import { OutputText, textOf } from "./output_value.js";

/**
 * @param {{cell: any, keys: string[], metrics: Record<string, any>, metric: string | null, against?: any, isWhole?: boolean}} props
 *     metric: the one that stands first; against: undefined, or what its outputs are compared with by key
 */
export function OutputCell({ cell, keys, metrics, metric, against, isWhole = false }) {
  if (!cell) return html`<p class="quiet">${words.notRun}</p>`;
  const names = Object.keys(metrics).filter((name) => name in cell.scores).sort((a, b) => Number(b === metric) - Number(a === metric));
  const present = keys.filter((key) => key in cell.outputs);
  return html`<p class="figures">
      ${cell.status === "succeeded" ? null : html`<span class=${`state ${cell.status}`}><i class=${`dot ${cell.status}`}></i>${general.status[/** @type {"failed"} */ (cell.status)] ?? cell.status}</span>`}
      ${names.slice(0, isWhole ? undefined : 2).map((name) => html`<span class="score" title=${cell.scores[name].reason ? `${name}: ${visible(cell.scores[name].reason)}` : name}>${names.length > 1 || isWhole ? html`<span class="quiet">${name} </span>` : null}<b>${figure(cell.scores[name].value)}</b></span>`)}
      ${cell.latency_s === null ? null : html`<span class="quiet">${duration(cell.latency_s)}</span>`}
      ${cell.cost_usd ? html`<span class="quiet">${usd(cell.cost_usd)}</span>` : null}
    </p>
    ${names.filter((name) => cell.scores[name].reason).map((name) => html`<p class="reason">${isWhole || names.length > 1 ? `${name}: ` : ""}${visible(cell.scores[name].reason)}</p>`)}
    ${isWhole ? null : html`<${CommentList} comments=${cell.comments ?? []} />`}
    ${cell.error ? html`<p class="bad error">${visible(cell.error)}</p>` : null}
    ${present.length ? present.map((key) => html`${keys.length > 1 ? html`<p class="key quiet mono">${key}</p>` : null}<${OutputText} output=${cell.outputs[key]} execution=${cell.execution} isWhole=${isWhole} against=${against === undefined ? undefined : against?.[key] ?? null} />`) : cell.error || cell.status !== "succeeded" ? null : html`<p class="quiet">${words.noOutput}</p>`}`;
}

/** The input of a case, and what is expected of it. @param {{caseRow: any, repeats: number, isWhole?: boolean}} props */
export function CaseCell({ caseRow, repeats, isWhole = false }) {
  const keys = Object.keys(caseRow.input);
  return html`<p class="figures"><b class="name">${visible(caseRow.case)}</b>${repeats > 1 ? html`<span class="quiet">${general.execution.repeat(caseRow.repeat)}</span>` : null}
      ${caseRow.tags.map((/** @type {string} */ tag) => html`<span class="tag">${visible(tag)}</span>`)}</p>
    ${keys.map((key) => html`${keys.length > 1 ? html`<p class="key quiet mono">${key}</p>` : null}<${OutputText} output=${caseRow.input[key]} isWhole=${isWhole} />`)}
    ${caseRow.expected ? html`<div class="expected"><p class="key quiet">${words.expected}</p><${OutputText} output=${caseRow.expected} isWhole=${isWhole} /></div>` : null}`;
}

/** What is seen of a cell while it is scrolled past: one score and plain text, which take a tenth of the time. @param {{cell: any, keys: string[], metric: string | null, limit: number}} props limit: letters */
export function OutputGlimpse({ cell, keys, metric, limit }) {
  if (!cell) return html`<p class="quiet">${words.notRun}</p>`;
  const text = cell.error ?? keys.filter((key) => key in cell.outputs).map((key) => textOf(cell.outputs[key])).join("\n");
  return html`<p class="figures">${metric && cell.scores[metric] ? html`<b>${figure(cell.scores[metric].value)}</b>` : null}</p><${Glimpse} text=${text} limit=${limit} />`;
}

/** The same of a case. @param {{caseRow: any, limit: number}} props */
export function CaseGlimpse({ caseRow, limit }) {
  return html`<p class="figures"><b class="name">${visible(caseRow.case)}</b></p><${Glimpse} text=${Object.values(caseRow.input).map(textOf).join("\n")} limit=${limit} />`;
}

/** @param {{text: string, limit: number}} props */
const Glimpse = ({ text, limit }) => html`<p class="glimpse" dir="auto">${visible(text.slice(0, limit))}</p>`;
