/** What combinations share, as an icicle: each prefix stands once, as wide as the combinations that share it. */
import { combination, count } from "../lib/format.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { address, look } from "../lib/router.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";

const SHOWN = 100; // combinations of a prefix
const MOST = 1_200; // prefixes that are drawn at a time: narrower ones are folded with their neighbours until one zooms in
const HUES = ["#7da3e8", "#76c2ad", "#e0b36a", "#c99be0", "#e08f8f", "#8fc7e0", "#b9c46f", "#d3a58a"];

/** A prefix, or neighbours that are too narrow to be drawn: from where to where in the order of combinations. @typedef {{from: number, to: number, prefix: any, folded: number}} Box */

/** @param {{tree: any, matrix: any}} props */
export function SharingTree({ tree, matrix }) {
  const [chosen, setChosen] = useState(/** @type {{depth: number, box: Box} | null} */ (null));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const isByKey = useRef(false); // zoomed
  const size = matrix.rows.length;
  const [from, to] = rangeOf(address.value.query.part, size);
  const total = useMemo(() => totalOf(tree.nodes), [tree]);
  const laidOut = useMemo(() => layOut(tree.levels ?? [], size, total), [tree, size]);
  const shown = useMemo(() => laidOut.map(({ boxes }) => folded(boxes, from, to, laidOut.length / MOST)), [laidOut, from, to]);
  // Made anew only where others are seen: which one is chosen is marked in the document, and events come to the tree.
  const levels = useMemo(() => laidOut.map((level, depth) => html`<${Level} ...${level} depth=${depth} boxes=${shown[depth]} from=${from} to=${to} />`), [laidOut, shown]);
  const nodes = useMemo(() => html`<${Nodes} nodes=${tree.nodes} />`, [tree]);
  const varied = useMemo(() => differing(matrix.rows.map((/** @type {any} */ row) => row.combination)), [matrix]);
  useLayoutEffect(() => {
    const items = list.current?.querySelectorAll(".level");
    list.current?.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
    const place = chosen && shown[chosen.depth]?.findIndex((box) => box.from === chosen.box.from && box.to === chosen.box.to);
    const item = chosen && items?.[chosen.depth]?.children[place ?? -1];
    item?.setAttribute("aria-selected", "true");
    if (isByKey.current) /** @type {HTMLElement | null | undefined} */ (item ?? list.current?.querySelector("[role=treeitem]"))?.focus(); // it was on what may have gone
    isByKey.current = false;
  }, [chosen, shown]);
  if (!tree.levels) return html`<p class="quiet">${tree.because}</p>${nodes}`;
  const zoom = (/** @type {Box | null} */ box) => look({ part: box ? `${box.from}-${box.to}` : null });

  /** @param {Event} event @returns {{depth: number, box: Box} | null} */
  function found({ target }) {
    const item = /** @type {HTMLElement} */ (target).closest("[role=treeitem]");
    if (!item) return null;
    const depth = Number(item.ariaLevel) - 1;
    return { depth, box: shown[depth][[.../** @type {HTMLElement} */ (item.parentElement).children].indexOf(item)] };
  }
  /** @param {KeyboardEvent} event */
  function onKey(event) {
    isByKey.current = ["0", "Enter", "+"].includes(event.key);
    if (isByKey.current) zoom(event.key === "0" ? null : found(event)?.box ?? null);
    else move(list.current, event);
  }
  const choose = (/** @type {Event} */ event) => setChosen((before) => found(event) ?? before);
  /** @param {Event} event */
  function tell({ target }) {
    const item = /** @type {HTMLElement} */ (target).closest("[role=treeitem]");
    if (item instanceof HTMLElement) item.title = item.ariaLabel ?? "";
  }
  return html`<p class="quiet">${words.tree.label}. ${words.tree.hint}</p>
    ${to - from < size ? html`<p class="bar"><span class="quiet">${words.tree.part(count(to - from), count(size))}</span><button onClick=${() => zoom(null)}>${words.tree.whole}</button></p>` : null}
    <div role="tree" class="icicle" aria-label=${words.tree.label} ref=${list} onKeyDown=${onKey} onFocusIn=${choose} onClick=${choose} onDblClick=${(/** @type {Event} */ event) => zoom(found(event)?.box ?? null)} onPointerOver=${tell}>${levels}</div>
    ${chosen ? html`<${Chosen} node=${laidOut[chosen.depth].node} box=${chosen.box} rows=${matrix.rows} varied=${varied} total=${total} onZoom=${() => zoom(chosen.box)} />` : null}
    ${tree.folded.map((/** @type {any} */ one) => html`<p class="quiet">${one.node}: ${count(one.prefixes)} ${words.tree.folded}</p>`)}
    ${nodes}`;
}

/** What is seen of one level. @param {{node: string, hues: Map<string, string>, told: (prefix: any) => string, depth: number, boxes: Box[], from: number, to: number}} props */
function Level({ node, hues, told, depth, boxes, from, to }) {
  const perCent = 100 / (to - from);
  return html`<small role="none" class="quiet" aria-hidden="true">${node}</small><div role="none" class="level">${boxes.map((box, place) => {
    const left = Math.max(box.from, from);
    const where = `left:${(left - from) * perCent}%;width:calc(${(Math.min(box.to, to) - left) * perCent}% - 2px)`;
    return html`<div role="treeitem" aria-level=${depth + 1} tabindex=${depth || place ? -1 : 0} aria-label=${box.folded ? words.tree.narrow(count(box.folded)) : told(box.prefix)}
      class=${box.folded ? "folded" : ""} style=${box.folded ? where : `${where};background:${hues.get(box.prefix.variant)}`}>${box.folded ? "…" : box.prefix.variant ?? node}</div>`;
  })}</div>`;
}

/** The boxes of each level from left to right; those that share most stand together. @param {any[]} levels @param {number} size @param {{seconds: number, usd: number}} total */
function layOut(levels, size, total) {
  const texts = new Map();
  const places = new Int32Array(size);
  let next = 0; // the server has prefixes of the same parent side by side
  for (const one of levels.at(-1)?.prefixes ?? []) for (const number of one.combinations) places[number] = next++;
  return levels.map(({ node, prefixes }) => {
    const boxes = prefixes.map((/** @type {any} */ prefix) => {
      const from = prefix.combinations.reduce((/** @type {number} */ least, /** @type {number} */ number) => Math.min(least, places[number]), size);
      return { from, to: from + prefix.combinations.length, prefix, folded: 0 };
    });
    const variants = [...new Set(prefixes.map((/** @type {any} */ one) => one.variant))];
    const told = (/** @type {any} */ prefix) => texts.get(prefix) ?? texts.set(prefix, toldOf(node, prefix, total)).get(prefix);
    return { node, told, hues: new Map(variants.map((variant, index) => [variant, HUES[index % HUES.length]])), boxes: /** @type {Box[]} */ (boxes.sort((/** @type {Box} */ a, /** @type {Box} */ b) => a.from - b.from)) };
  });
}

/** What is seen of a level; neighbours narrower than a share of that are one box. @param {Box[]} boxes @param {number} from @param {number} to @param {number} least @returns {Box[]} */
function folded(boxes, from, to, least) {
  const seen = /** @type {Box[]} */ ([]);
  for (const box of boxes) {
    if (box.to <= from || box.from >= to) continue;
    const last = seen.at(-1);
    if (box.to - box.from >= least * (to - from)) seen.push(box);
    else if (last?.folded && last.to - last.from < 2 * least * (to - from)) seen[seen.length - 1] = { ...last, to: box.to, prefix: null, folded: last.folded + 1 };
    else seen.push({ ...box, folded: 1 });
  }
  return seen.map((box) => (box.folded === 1 ? { ...box, folded: 0 } : box));
}

/** The part that an address names; all of it where there is no such part. @param {string | undefined} text @param {number} size */
function rangeOf(text, size) {
  const [from, to] = (text ?? "").split("-").map(Number);
  return from >= 0 && to <= size && from < to ? [from, to] : [0, size];
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

/** For whom a prefix ran once. @param {{node: string, box: Box, rows: any[], varied: string[], total: any, onZoom: () => void}} props */
function Chosen({ node, box, rows, varied, total, onZoom }) {
  const zoom = html`<button onClick=${onZoom}>${words.tree.zoom}</button>`;
  if (box.folded) return html`<section class="notice" role="status"><p>${words.tree.narrow(count(box.folded))} ${zoom}</p></section>`;
  const { combinations } = box.prefix;
  const whom = combinations.slice(0, SHOWN).map((/** @type {number} */ number) => rows[number]).filter(Boolean);
  return html`<section class="notice" role="status"><p>${toldOf(node, box.prefix, total)} ${zoom}</p>
    <ul class="whom">${whom.map((/** @type {any} */ row) => html`<li class="mono">${combination(row.combination, varied)}</li>`)}</ul>
    ${combinations.length > SHOWN ? html`<p class="quiet">${words.execution.more(combinations.length - SHOWN)}</p>` : null}</section>`;
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

/** @param {{nodes: any[]}} props */
function Nodes({ nodes }) {
  const total = totalOf(nodes);
  return html`<div class="scroll" tabindex="0"><table>
    <thead><tr><th>${words.tree.node}</th><th class="num">${words.tree.nodeRuns}</th><th class="num">${words.tree.unshared}</th><th class="num">${words.tree.saved}</th><th class="num">${words.tree.failed}</th><th class="num">${words.tree.time}</th><th class="num">${words.tree.cost}</th></tr></thead>
    <tbody>${nodes.map((one) => html`<tr><td>${one.node}</td><td class="num">${count(one.executed)}</td><td class="num">${count(one.unshared)}</td><td class="num">${one.unshared ? `${Math.round(100 * (1 - one.executed / one.unshared))}%` : ""}</td><td class="num">${count(one.failed)}</td><td class="num">${share(one.seconds, total.seconds) ?? words.unknown}</td><td class="num">${share(one.usd, total.usd) ?? words.unknown}</td></tr>`)}</tbody>
  </table></div>`;
}
