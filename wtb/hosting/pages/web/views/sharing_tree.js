/** What combinations share, as an icicle: each prefix stands once, as wide as the combinations that share it. */
import { combination, count } from "../lib/format.js";
import { html, useRef, useState } from "../lib/html.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";

const SHOWN = 100; // combinations of a prefix
const HUES = ["#7da3e8", "#76c2ad", "#e0b36a", "#c99be0", "#e08f8f", "#8fc7e0", "#b9c46f", "#d3a58a"];

/** @param {{tree: any, matrix: any}} props */
export function SharingTree({ tree, matrix }) {
  const [chosen, setChosen] = useState(/** @type {{node: string, prefix: any} | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  if (!tree.levels) return html`<p class="quiet">${tree.because}</p><${Nodes} nodes=${tree.nodes} />`;
  const total = totalOf(tree.nodes);
  const order = inOrder(tree.levels, matrix.rows.length);
  return html`<p class="quiet">${words.tree.label}. ${words.tree.hint}</p>
    <div role="tree" class="icicle" aria-label=${words.tree.label} ref=${list} onKeyDown=${(/** @type {KeyboardEvent} */ event) => move(list.current, event)}>
      ${tree.levels.map((/** @type {any} */ level, /** @type {number} */ depth) => {
        const hues = new Map([...new Set(level.prefixes.map((/** @type {any} */ one) => one.variant))].map((variant, index) => [variant, HUES[index % HUES.length]]));
        const sorted = [...level.prefixes].sort((a, b) => order.indexOf(a.combinations[0]) - order.indexOf(b.combinations[0]));
        return html`<small role="none" class="quiet" aria-hidden="true">${level.node}</small><div role="none" class="level">
          ${sorted.map((prefix, place) => {
            const text = toldOf(level.node, prefix, total);
            const choose = () => setChosen({ node: level.node, prefix });
            return html`<div role="treeitem" aria-level=${depth + 1} aria-selected=${chosen?.prefix === prefix} tabindex=${depth || place ? -1 : 0} aria-label=${text} title=${text} onFocus=${choose} onClick=${choose}
              style=${{ flex: `${prefix.combinations.length} 1 0`, background: hues.get(prefix.variant) }}>${prefix.variant ?? level.node}</div>`;
          })}
        </div>`;
      })}
    </div>
    ${chosen ? html`<${Chosen} chosen=${chosen} matrix=${matrix} total=${total} />` : null}
    ${tree.folded.map((/** @type {any} */ one) => html`<p class="quiet">${one.node}: ${count(one.prefixes)} ${words.tree.folded}</p>`)}
    <${Nodes} nodes=${tree.nodes} />`;
}

/** Time and money of all nodes. @param {any[]} nodes */
function totalOf(nodes) {
  return nodes.reduce((sum, one) => ({ seconds: sum.seconds + one.seconds, usd: sum.usd + one.usd }), { seconds: 0, usd: 0 });
}

/** A share in per cent, or null of nothing. @param {number} part @param {number} whole */
function share(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)}%` : null;
}

/** @param {string} node @param {any} prefix @param {{seconds: number, usd: number}} total */
function toldOf(node, { variant, executed, unshared, combinations, failed, seconds, usd }, total) {
  const ran = words.tree.ran(variant === null ? node : `${node}=${variant}`, count(executed), words.tree.combinations(combinations.length), count(unshared));
  const shares = words.tree.shares(failed, share(seconds, total.seconds), share(usd, total.usd));
  return shares ? `${ran}; ${shares}` : ran;
}

/** For whom a prefix ran once. @param {{chosen: {node: string, prefix: any}, matrix: any, total: any}} props */
function Chosen({ chosen: { node, prefix }, matrix, total }) {
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination));
  const whom = prefix.combinations.map((/** @type {number} */ number) => matrix.rows[number]).filter(Boolean);
  return html`<section class="notice" role="status"><p>${toldOf(node, prefix, total)}</p>
    <ul class="whom">${whom.slice(0, SHOWN).map((/** @type {any} */ row) => html`<li class="mono">${combination(row.combination, nodes)}</li>`)}</ul>
    ${whom.length > SHOWN ? html`<p class="quiet">${words.execution.more(whom.length - SHOWN)}</p>` : null}</section>`;
}

/** Arrow keys go to neighbours, and to what is above or below. @param {HTMLElement | null} tree @param {KeyboardEvent} event */
function move(tree, event) {
  const from = /** @type {HTMLElement} */ (event.target).getBoundingClientRect();
  const items = /** @type {HTMLElement[]} */ ([...(tree?.querySelectorAll("[role=treeitem]") ?? [])]);
  const place = items.indexOf(/** @type {HTMLElement} */ (event.target));
  const [level, middle] = [Number(event.target instanceof HTMLElement && event.target.ariaLevel), from.left + 1];
  const at = (/** @type {number} */ depth) => items.find((one) => Number(one.ariaLevel) === depth && one.getBoundingClientRect().right > middle);
  const targets = /** @type {Record<string, HTMLElement | undefined>} */ ({ ArrowLeft: items[place - 1], ArrowRight: items[place + 1], ArrowUp: at(level - 1), ArrowDown: at(level + 1), Home: items[0], End: items.at(-1) });
  if (!targets[event.key]) return;
  event.preventDefault();
  targets[event.key]?.focus();
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
  const total = totalOf(nodes);
  return html`<div class="scroll"><table>
    <thead><tr><th>${words.tree.node}</th><th class="num">${words.tree.nodeRuns}</th><th class="num">${words.tree.unshared}</th><th class="num">${words.tree.saved}</th><th class="num">${words.tree.failed}</th><th class="num">${words.tree.time}</th><th class="num">${words.tree.cost}</th></tr></thead>
    <tbody>${nodes.map((one) => html`<tr><td>${one.node}</td><td class="num">${count(one.executed)}</td><td class="num">${count(one.unshared)}</td><td class="num">${one.unshared ? `${Math.round(100 * (1 - one.executed / one.unshared))}%` : ""}</td><td class="num">${count(one.failed)}</td><td class="num">${share(one.seconds, total.seconds) ?? words.unknown}</td><td class="num">${share(one.usd, total.usd) ?? words.unknown}</td></tr>`)}</tbody>
  </table></div>`;
}
