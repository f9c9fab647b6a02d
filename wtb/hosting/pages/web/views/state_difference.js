/** In what two states and two sets of files differ, key by key. */
import { asText, count, visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { TextDifference } from "./text_difference.js";
import { Value } from "./value.js";

/** @param {{difference: any, names: unknown[], same?: string}} props a document of what differs, what its two sides are called, and what is said where nothing does */
export function Difference({ difference, names, same = words.diff.sameState }) {
  const { state, files } = difference;
  const rows = [
    ...Object.entries(state.changed).map(([key, /** @type {any} */ change]) => [key, change.a, change.b]),
    ...Object.entries(state.only_a).map(([key, content]) => [key, content, undefined]),
    ...Object.entries(state.only_b).map(([key, content]) => [key, undefined, content]),
  ];
  return html`${rows.length
      ? html`<div class="scroll" tabindex="0"><table class="sides">
          <thead><tr><th>${words.diff.key}</th>${names.map((name) => html`<th>${name}</th>`)}</tr></thead>
          <tbody>${rows.map(([key, before, after]) => html`<tr><td class="name mono">${visible(key)}</td><${Sides} before=${before} after=${after} names=${names} /></tr>`)}</tbody></table></div>`
      : html`<p class="quiet">${same}</p>`}
    ${state.same.length ? html`<p class="quiet">${words.diff.unchanged(state.same.join(", "))}</p>` : null}
    ${files?.length
      ? html`<h3>${words.diff.files}</h3><div class="scroll" tabindex="0"><table><tbody>${files.map((/** @type {any} */ file) => html`<tr><td class="name mono">${file.path}</td><td>${file.kind}</td><td class="num">${count(file.a)}</td><td class="num">${count(file.b)}</td></tr>`)}</tbody></table></div>`
      : null}`;
}

const SHORT = 80; // characters that are seen at one look

/** A value before and after, undefined where there is none. @param {{before: unknown, after: unknown, names: unknown[]}} props */
function Sides({ before, after, names }) {
  const texts = [before, after].map((side) => (side === undefined ? null : asText(side)));
  const isText = texts.every((text) => text !== null) && texts.some((text) => /** @type {string} */ (text).length > SHORT || /** @type {string} */ (text).includes("\n"));
  if (isText) return html`<td colspan="2"><${TextDifference} before=${texts[0]} after=${texts[1]} names=${names} /></td>`;
  return html`<td>${before === undefined ? words.none : html`<${Value} value=${before} />`}</td><td>${after === undefined ? words.none : html`<${Value} value=${after} />`}</td>`;
}
