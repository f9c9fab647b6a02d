/** What combinations share, as an icicle: each prefix stands once, as wide as the combinations that share it. */
import { count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

const HUES = ["#7da3e8", "#76c2ad", "#e0b36a", "#c99be0", "#e08f8f", "#8fc7e0", "#b9c46f", "#d3a58a"];

/** @param {{tree: any, matrix: any}} props */
export function SharingTree({ tree, matrix }) {
  const [told, setTold] = useState("");
  if (!tree.levels) return html`<p class="quiet">${tree.because}</p><${Nodes} nodes=${tree.nodes} />`;
  const order = inOrder(tree.levels, matrix.rows.length);
  return html`<p class="quiet" role="status">${told || words.tree.label}</p>
    <div role="tree" aria-label=${words.tree.label}>
      ${tree.levels.map((/** @type {any} */ level, /** @type {number} */ depth) => {
        const hues = new Map(level.prefixes.map((/** @type {any} */ one) => [one.variant, 0]));
        [...hues.keys()].forEach((variant, index) => hues.set(variant, index));
        const sorted = [...level.prefixes].sort((a, b) => order.indexOf(a.combinations[0]) - order.indexOf(b.combinations[0]));
        return html`<div style=${{ display: "flex", gap: "2px", marginBottom: "2px" }}>
          ${sorted.map((one) => {
            const text = `${level.node}${one.variant === null ? "" : `=${one.variant}`}: ${count(one.executed)} ${words.tree.nodeRuns}, ${count(one.unshared)} ${words.tree.unshared}, ${words.tree.combinations(one.combinations.length)}`;
            return html`<div role="treeitem" aria-level=${depth + 1} tabindex="0" aria-label=${text} title=${text} onFocus=${() => setTold(text)} onMouseEnter=${() => setTold(text)}
              style=${{ flex: `${one.combinations.length} 1 0`, minWidth: 0, height: "2rem", lineHeight: "2rem", padding: "0 .4rem", overflow: "hidden", whiteSpace: "nowrap", textOverflow: "ellipsis", borderRadius: "4px", color: "#10161d", background: HUES[(hues.get(one.variant) ?? 0) % HUES.length] }}>
              ${one.variant ?? level.node}</div>`;
          })}
        </div>`;
      })}
    </div>
    ${tree.folded.map((/** @type {any} */ one) => html`<p class="quiet">${one.node}: ${count(one.prefixes)} ${words.tree.folded}</p>`)}
    <${Nodes} nodes=${tree.nodes} />`;
}

/** Combinations so that those which share most stand together. @param {any[]} levels @param {number} size */
function inOrder(levels, size) {
  const keys = Array.from({ length: size }, () => /** @type {number[]} */ ([]));
  for (const level of levels) {
    level.prefixes.forEach((/** @type {any} */ one, /** @type {number} */ place) => one.combinations.forEach((/** @type {number} */ number) => keys[number]?.push(place)));
  }
  return keys.map((_, number) => number).sort((a, b) => keys[a].findIndex((place, index) => place !== keys[b][index]) < 0 ? a - b : compare(keys[a], keys[b]));
}

/** @param {number[]} a @param {number[]} b */
function compare(a, b) {
  const at = a.findIndex((place, index) => place !== b[index]);
  return at < 0 ? 0 : a[at] - b[at];
}

/** @param {{nodes: any[]}} props */
function Nodes({ nodes }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>${words.tree.node}</th><th class="num">${words.tree.nodeRuns}</th><th class="num">${words.tree.unshared}</th></tr></thead>
    <tbody>${nodes.map((one) => html`<tr><td>${one.node}</td><td class="num">${count(one.executed)}</td><td class="num">${count(one.unshared)}</td></tr>`)}</tbody>
  </table></div>`;
}
