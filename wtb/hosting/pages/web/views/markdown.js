/** Markdown that a model wrote, as elements: no HTML, no scripts, no addresses but http, https and mail, no foreign images. */
import { segment } from "../lib/api.js";
import { visible } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { parse } from "../lib/markdown.js";
import { outputWords as words } from "../lib/output_words.js";
import { isEmbedded, Link } from "../lib/router.js";

/** @param {{text: string, execution?: string | null}} props execution: whose files are the images */
export function Markdown({ text, execution = null }) {
  const nodes = useMemo(() => parse(text), [text]);
  return html`<div class="markdown" dir="auto">${nodes.map((node) => element(node, execution))}</div>`;
}

/** A page of the documentation: its links lead to others of its pages. @param {{text: string}} props */
export function Manual({ text }) {
  const nodes = useMemo(() => parse(text), [text]);
  return html`<div class="markdown">${nodes.map(ofManual)}</div>`;
}

const PAGE = /^(?:docs\/)?([a-z][\w-]*)?(?:\.md)?(#[\w-]*)?$/;

/** @param {import("../lib/markdown.js").Node} node @returns {any} */
function ofManual(node) {
  const inner = node.children?.map(ofManual);
  const to = node.kind === "text" && node.href ? PAGE.exec(node.href) : null;
  if (to) return html`<${Link} to=${`${to[1] ? `/help/${to[1]}` : ""}${to[2] ?? ""}`}>${inner}<//>`;
  if (node.kind === "text" && node.href) return inner; // a file of the repository
  if (node.kind === "heading") return html`<${`h${node.level}`} id=${slugOf(node)}>${inner}<//>`;
  if (node.kind === "image") return null;
  if (node.kind === "table") return html`<div class="scroll" tabindex="0">${element(node, null, ofManual)}</div>`;
  return element(node, null, ofManual);
}

/** @param {import("../lib/markdown.js").Node} node @returns {string} */
const textOf = (node) => node.text ?? node.children?.map(textOf).join("") ?? "";

/** What links call a heading. @param {import("../lib/markdown.js").Node} node */
const slugOf = (node) => textOf(node).toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").trim().replace(/\s/g, "-");

/** @param {import("../lib/markdown.js").Node} node @param {string | null} execution @param {(node: import("../lib/markdown.js").Node) => any} [each] what is made of the parts @returns {any} */
function element(node, execution, each = (child) => element(child, execution)) {
  const all = (/** @type {import("../lib/markdown.js").Node[]} */ nodes) => nodes.map(each);
  const inner = all(node.children ?? []);
  switch (node.kind) {
    case "heading": return html`<p class=${`heading h${node.level}`} role="heading" aria-level=${Math.min(6, (node.level ?? 1) + 3)}>${inner}</p>`;
    case "paragraph": return html`<p>${inner}</p>`;
    case "code-block": return html`<pre dir="ltr" tabindex="0">${visible(node.text ?? "")}</pre>`;
    case "quotation": return html`<blockquote>${inner}</blockquote>`;
    case "rule": return html`<hr />`;
    case "list": {
      const points = (node.items ?? []).map((point) => html`<li>${all(point)}</li>`);
      return node.ordered ? html`<ol start=${node.start}>${points}</ol>` : html`<ul>${points}</ul>`;
    }
    case "table": {
      const [head, ...rows] = node.rows ?? [];
      return html`<table><thead><tr>${head.map((cell) => html`<th>${all(cell)}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${all(cell)}</td>`)}</tr>`)}</tbody></table>`;
    }
    case "code": return html`<code>${visible(node.text ?? "")}</code>`;
    case "strong": return html`<strong>${inner}</strong>`;
    case "emphasis": return html`<em>${inner}</em>`;
    case "struck": return html`<s>${inner}</s>`;
    case "link": return html`<a href=${node.href} target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`;
    case "image": return node.src && execution && !isEmbedded
      ? html`<img loading="lazy" alt=${node.text ?? ""} src=${`/api/v1/executions/${segment(execution)}/file?path=${encodeURIComponent(node.src)}`} />`
      : html`<span class="quiet">${words.noImage(node.text ?? "")}</span>`;
    default: return visible(node.text ?? "");
  }
}
