/** The graph of a workflow: what has run, runs and comes next. Layers follow the edges; edges that lead back are dashed. */
import { html, useMemo } from "../lib/html.js";
import { words } from "../lib/words.js";

const WIDTH = 132; // of a node, in units of the picture
const HEIGHT = 34;
const ACROSS = 52; // between layers
const DOWN = 16; // between the nodes of a layer
const END = "END";
const LETTERS = 15; // of a name that fit
const ROOM = 12; // letters of a condition that fit
const MOST = 200; // nodes that are drawn

/** @typedef {{from: string, to: string, label: string | null}} Edge */
/** @typedef {{x: number, y: number}} Point */

/**
 * @param {object} props
 * @param {{entries: string[], nodes: string[], edges: Edge[]}} props.graph
 * @param {Record<string, string> | null} [props.statuses] by node; those without have not run; null if it is not the graph of an execution
 */
export function Graph({ graph, statuses = null }) {
  const { places, back, width, height } = useMemo(() => layOut(graph), [graph]);
  if (graph.nodes.length < 2 || graph.nodes.length > MOST) return null;
  const description = (/** @type {string} */ node) => (statuses ? `${node}: ${words.graph.statuses[statuses[node]] ?? words.graph.statuses.pending}` : node);
  const summary = graph.nodes.map(description).join(", ");
  return html`<h2>${words.graph.title}</h2><div class="scroll" tabindex="0"><svg class="graph" role="img" aria-label=${summary} viewBox=${`0 0 ${width} ${height}`} style=${{ width: `${width}px` }}>
    <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" /></marker></defs>
    ${graph.edges.filter(({ from, to }) => places.has(from) && places.has(to)).map((edge) => html`<path class=${back.has(edge) ? "edge back" : "edge"} d=${way(edge, places, back.has(edge), height)} marker-end="url(#arrow)"><title>${`${edge.from} → ${edge.to}${edge.label ? `: ${edge.label}` : ""}`}</title></path>`)}
    ${graph.edges.filter(({ label }) => label).map((edge) => html`<${Condition} edge=${edge} places=${places} isBack=${back.has(edge)} height=${height} />`)}
    ${[...places].map(([node, { x, y }]) => (node === END ? html`<circle class="end" cx=${x + 8} cy=${y + HEIGHT / 2} r="7"><title>${words.graph.end}</title></circle>` : html`<g class=${`node ${statuses?.[node] ?? ""}`} transform=${`translate(${x} ${y})`}>
      <title>${description(node)}</title>
      <rect width=${WIDTH} height=${HEIGHT} rx="6" />${statuses ? html`<circle cx="14" cy=${HEIGHT / 2} r="5" />` : null}<text x=${statuses ? 26 : 12} y=${HEIGHT / 2 + 4}>${node.length > LETTERS ? `${node.slice(0, LETTERS - 1)}…` : node}</text></g>`))}
  </svg></div>`;
}

/** When an edge is followed. @param {{edge: Edge, places: Map<string, Point>, isBack: boolean, height: number}} props */
function Condition({ edge, places, isBack, height }) {
  const [start, end] = [places.get(edge.from), places.get(edge.to)];
  if (!start || !end || !edge.label) return null;
  const y = isBack ? height - 2 : (start.y + end.y + HEIGHT) / 2 - 4;
  const x = isBack ? (start.x + end.x + WIDTH) / 2 : (start.x + WIDTH + end.x) / 2;
  return html`<text class="when" x=${x} y=${y} text-anchor="middle">${edge.label.length > ROOM ? `${edge.label.slice(0, ROOM - 1)}…` : edge.label}</text>`;
}

/**
 * Where each node is drawn: its layer is one more than the last of those that lead to it, edges back left out.
 * @param {{entries: string[], nodes: string[], edges: Edge[]}} graph
 * @returns {{places: Map<string, Point>, back: Set<Edge>, width: number, height: number}}
 */
export function layOut({ entries, nodes, edges }) {
  const out = new Map(/** @type {[string, Edge[]][]} */ ([...nodes, END].map((node) => [node, edges.filter((edge) => edge.from === node)])));
  const back = new Set(/** @type {Edge[]} */ ([]));
  const order = /** @type {string[]} */ ([]); // children before parents
  const state = new Map(/** @type {[string, "open" | "done"][]} */ ([]));
  /** @param {string} node */
  const visit = (node) => {
    state.set(node, "open");
    for (const edge of out.get(node) ?? []) {
      if (state.get(edge.to) === "open") back.add(edge);
      else if (!state.has(edge.to) && out.has(edge.to)) visit(edge.to);
    }
    state.set(node, "done");
    order.push(node);
  };
  for (const node of [...entries, ...nodes]) if (!state.has(node) && out.has(node)) visit(node);
  const layer = new Map(/** @type {[string, number][]} */ (order.map((node) => [node, 0])));
  for (const node of [...order].reverse())
    for (const edge of out.get(node) ?? []) if (!back.has(edge) && layer.has(edge.to)) layer.set(edge.to, Math.max(layer.get(edge.to) ?? 0, (layer.get(node) ?? 0) + 1));
  const layers = /** @type {string[][]} */ ([]);
  for (const node of [...nodes, END]) if (layer.has(node)) (layers[layer.get(node) ?? 0] ??= []).push(node);
  const widest = Math.max(1, ...layers.map((nodesOfLayer) => nodesOfLayer.length));
  const height = widest * (HEIGHT + DOWN) + (back.size ? 28 : DOWN);
  const places = new Map(/** @type {[string, Point][]} */ ([]));
  layers.forEach((nodesOfLayer, across) => nodesOfLayer.forEach((node, down) => {
    const first = ((widest - nodesOfLayer.length) * (HEIGHT + DOWN)) / 2 + DOWN / 2;
    places.set(node, { x: across * (WIDTH + ACROSS) + 4, y: first + down * (HEIGHT + DOWN) });
  }));
  return { places, back, width: layers.length * (WIDTH + ACROSS), height };
}

/** The line of an edge: forward from side to side, back below all nodes. @param {Edge} edge @param {Map<string, Point>} places @param {boolean} isBack @param {number} height */
function way({ from, to }, places, isBack, height) {
  const [start, end] = [/** @type {Point} */ (places.get(from)), /** @type {Point} */ (places.get(to))];
  if (isBack) return `M${start.x + WIDTH / 2} ${start.y + HEIGHT}C${start.x + WIDTH / 2} ${height} ${end.x + WIDTH / 2} ${height} ${end.x + WIDTH / 2} ${end.y + HEIGHT + 2}`;
  const [y, z] = [start.y + HEIGHT / 2, end.y + HEIGHT / 2];
  return `M${start.x + WIDTH} ${y}C${start.x + WIDTH + ACROSS / 2} ${y} ${end.x - ACROSS / 2} ${z} ${end.x - 2} ${z}`;
}
