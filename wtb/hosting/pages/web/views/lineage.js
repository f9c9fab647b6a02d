/** The tree around an execution: what it shares with others, where they forked, and lines that rollbacks left. */
import { get, segment } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Status } from "./status.js";

/** @param {{id: string}} props of the execution */
export function Lineage({ id }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>${words.lineage.title}</summary>${isOpen ? html`<${Around} id=${id} />` : null}</details>`;
}

/** @param {{id: string}} props */
function Around({ id }) {
  const resource = useResource((signal) => get(`/executions/${segment(id)}/tree`, {}, signal), [id]);
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  const { trees, executions, left_out: leftOut } = resource.data;
  return html`${trees.map((/** @type {any} */ tree) => {
      const ids = new Set(tree.segments.map((/** @type {any} */ part) => part.id));
      const roots = tree.segments.filter((/** @type {any} */ part) => !ids.has(part.parent));
      return html`<ul class="lineage">${roots.map((/** @type {any} */ part) => html`<${Branch} part=${part} parts=${tree.segments} executions=${executions} id=${id} />`)}
        ${tree.not_begun.map((/** @type {string} */ head) => html`<li><${Head} head=${head} executions=${executions} id=${id} /></li>`)}</ul>`;
    })}
    ${leftOut ? html`<p class="quiet">${words.execution.more(leftOut)}</p>` : null}`;
}

/** Nodes between two places where lines part, who stands at their end, and what follows. @param {{part: any, parts: any[], executions: Record<string, any>, id: string}} props */
function Branch({ part, parts, executions, id }) {
  const path = part.nodes.map((/** @type {any} */ node) => (node.varied ? `${node.node}=${node.variant}` : node.node)).join(" → ");
  const children = parts.filter((child) => child.parent === part.id);
  return html`<li class=${part.left ? "quiet" : ""}><span class="mono">${path || (part.input ? words.lineage.input : words.lineage.byHand)}</span>
    ${part.left ? ` · ${words.lineage.left(part.left_by ?? "")}` : null}
    ${part.heads.map((/** @type {string} */ head) => html` · <${Head} head=${head} executions=${executions} id=${id} />`)}
    ${children.length ? html`<ul>${children.map((child) => html`<${Branch} part=${child} parts=${parts} executions=${executions} id=${id} />`)}</ul>` : null}</li>`;
}

/** @param {{head: string, executions: Record<string, any>, id: string}} props */
function Head({ head, executions, id }) {
  const status = executions[head]?.status ?? "pending";
  return html`${head === id ? html`<b class="mono">${head}</b>` : html`<${Link} class="mono" to=${`/executions/${segment(head)}`}>${head}<//>`} <${Status} status=${status} />`;
}
