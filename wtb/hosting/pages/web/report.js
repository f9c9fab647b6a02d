/** The report: the views of the pages in one file, with the evidence that they show. Nothing is requested from a server. */
import { html, render, useMemo } from "./lib/html.js";
import { factorsOf, isBaseline, rowsByEvidence, rowsOf, viewOf } from "./lib/matrix_view.js";
import { fromFile } from "./lib/output_file.js";
import { reportWords as texts } from "./lib/report_words.js";
import { address, look } from "./lib/router.js";
import { theme } from "./lib/theme.js";
import { words } from "./lib/words.js";
import { DriftChart } from "./views/drift_chart.js";
import { Effects, Pairs } from "./views/effects.js";
import { Failures } from "./views/failures.js";
import { HardCases } from "./views/hard_cases.js";
import { HeatMap, scoreEnds } from "./views/heat_map.js";
import { IntervalsTable } from "./views/intervals_table.js";
import { Filtered, MatrixControls, MetricChoice, ViewedRows } from "./views/matrix_controls.js";
import { MetricsTable } from "./views/metrics_table.js";
import { NodeRuns } from "./views/node_runs.js";
import { anchorsOf, OpenedCases } from "./views/opened_cases.js";
import { Outputs } from "./views/outputs.js";
import { People } from "./views/people.js";
import { marksOf, PriceChart } from "./views/price_chart.js";
import { SharingTree } from "./views/sharing_tree.js";
import { Slices } from "./views/slices.js";
import { WhatWasRun } from "./views/what_was_run.js";

const PLOTS = 3; // metrics that are drawn against cost
const CHANGES = 10; // of code that are listed

const { evidence, outputs, graph, shown: sections } = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("evidence")).textContent ?? "");
const metrics = Object.keys(evidence.matrix.metrics); // those that the file shows, which others may be of
const labelled = (evidence.people ?? evidence.matrix.people ?? []).filter((/** @type {any} */ rating) => metrics.includes(rating.metric));
const matrix = { ...evidence.matrix, people: labelled };
const factors = factorsOf(matrix);
const isCompared = matrix.rows.length > 1;

/** Rows that the file has figures of, best first. @param {string | null} metric @returns {number[]} */
const orderBy = (metric) => rowsByEvidence(matrix, metric).filter((number) => sections?.includes(number) ?? true);

/** A view of each metric below its name. @param {(metric: string) => any} view @param {string[]} [of] */
function each(view, of = metrics) {
  return of.map((metric) => html`<section key=${metric}><h3>${metric} ${matrix.metrics[metric].better === "lower" ? "↓" : "↑"}</h3>${view(metric)}</section>`);
}

/** The rows with all ways to see them, by the metric that the address names, and below all metrics at a glance. */
function Matrix() {
  const { query } = address.value;
  const metric = query.metric in matrix.metrics ? query.metric : matrix.primary;
  const view = viewOf(query, matrix, metric);
  const order = rowsOf(matrix, metric, view).filter((number) => sections?.includes(number) ?? true);
  const isEnough = metrics.length === 1 && !matrix.rows.some((/** @type {any} */ row) => row.cost_failed_usd); // the table of one metric
  return html`<div class="bar">${metric ? html`<${MetricChoice} matrix=${matrix} metric=${metric} />` : null}<${MatrixControls} matrix=${matrix} metric=${metric} view=${view} /></div>
    <${Filtered} matrix=${matrix} order=${order} view=${view} />
    ${sections ? html`<p class="quiet">${texts.bestShown(sections.length, matrix.rows.length)}</p>` : null}
    ${metric ? html`<${ViewedRows} matrix=${matrix} metric=${metric} order=${order} view=${view} /><p class="quiet">${words.sweep.legend}</p>` : null}
    ${isEnough ? null : html`${metric ? html`<h3>${texts.allMetrics}</h3>` : null}<${MetricsTable} matrix=${matrix} order=${order} />`}`;
}

/** Every cell by one metric. */
function Cells() {
  const { cells } = evidence;
  const scored = metrics.filter((metric) => metric in cells.scores);
  const metric = scored.includes(address.value.query.metric) ? address.value.query.metric : scored.includes(matrix.primary) ? matrix.primary : (scored[0] ?? null);
  const columns = useMemo(
    () => ({
      ...cells,
      combinations: matrix.rows.map((/** @type {any} */ row) => row.combination),
      metric,
      status: Uint8Array.from(cells.status, (/** @type {number | null} */ code) => code ?? 255),
      score: Float32Array.from(metric ? cells.scores[metric] : cells.status, (/** @type {number | null} */ score) => (metric ? (score ?? NaN) : NaN)),
    }),
    [metric],
  );
  const open = (/** @type {number} */ row, /** @type {number} */ column) => look({ rows: String(row), only: cells.cases[column], at: null, open: "1" });
  return html`${scored.length > 1 ? html`<div class="bar"><${MetricChoice} matrix=${{ metrics: Object.fromEntries(scored.map((name) => [name, matrix.metrics[name]])) }} metric=${metric} /></div>` : null}
    <${HeatMap} columns=${columns} order=${orderBy(metric)} group=${null} scale=${scoreEnds(matrix.metrics[metric], columns)} mark=${null} onMark=${() => {}} onOpen=${outputs ? open : () => {}} />`;
}

/** The outputs, in the order of the rows by the metric that the address has. */
function SideBySide() {
  const { metric: named } = address.value.query;
  const metric = named in matrix.metrics ? named : matrix.primary;
  const failureScores = Object.fromEntries(metrics.map((name) => [name, matrix.metrics[name].on_failure]));
  const source = useMemo(() => fromFile({ outputs, failureScores }), []);
  return html`<${Outputs} sweep=${matrix.sweep.id} matrix=${matrix} metric=${metric} order=${orderBy(metric)} source=${source} />`;
}

/** A metric from sweep to sweep, as the page of schedules draws it from night to night. @param {{metric: string}} props */
function History({ metric }) {
  const { sweeps, metrics: measured } = evidence.history;
  const { better, series, reference } = measured[metric];
  const leader = series.find((/** @type {any} */ line) => !isBaseline(matrix, line)) ?? series[0];
  const base = series.find((/** @type {any} */ line) => isBaseline(matrix, line) && line !== leader);
  const fires = sweeps.map((/** @type {any} */ sweep, /** @type {number} */ place) => ({
    ...(leader?.points[place] ?? { mean: null, ci: null }),
    fire_at: sweep.at,
    verdict: sweep.verdict,
    status: null,
    code_changed: sweep.code_changed,
    baseline_mean: base?.points[place]?.mean ?? null,
  }));
  if (fires.filter((/** @type {any} */ fire) => Number.isFinite(fire.mean)).length < 2) return html`<p class="quiet">${texts.oneSweep(metric)}</p>`;
  return html`<${DriftChart} history=${{ fires, metric, better, reference: reference ?? null, schedule: matrix.sweep.name }} bad=${["worse", "failed"]} />`;
}

function Changes() {
  const { sweeps, left_out: leftOut } = evidence.history;
  const changed = sweeps.filter((/** @type {any} */ sweep) => sweep.code_changed.length).slice(-CHANGES);
  return html`${changed.length ? html`<ul>${changed.map((/** @type {any} */ sweep) => html`<li>${texts.changedIn(sweep.at.slice(0, 16).replace("T", " "), sweep.sweep, sweep.code_changed.join(", "))}</li>`)}</ul>` : html`<p class="quiet">${texts.noChange}</p>`}
    ${leftOut ? html`<p class="quiet">${texts.otherCases(leftOut)}</p>` : null}`;
}

/** A price has to be known of two rows to be drawn. */
function Prices() {
  const drawn = metrics.filter((metric) => marksOf(matrix, metric).length > 1).slice(0, PLOTS);
  return drawn.length ? drawn.map((metric) => html`<${PriceChart} matrix=${matrix} metric=${metric} />`) : html`<p class="quiet">${texts.noPrices}</p>`;
}

/** What the file shows: the name of each part, and its view, or null if there is nothing to show. */
const { history, failures = matrix.failures, opened, tree, worst, attribution, pairs } = evidence;
const paired = metrics.filter((metric) => pairs?.[metric].rows.length > 1);
const PARTS = /** @type {[keyof typeof texts.sections, any][]} */ ([
  ["matrix", matrix.rows.length && html`<${Matrix} />`],
  ["cells", evidence.cells && html`<${Cells} />`],
  ["intervals", matrix.rows.length && metrics.length && each((metric) => html`<${IntervalsTable} matrix=${matrix} metric=${metric} order=${orderBy(metric)} />`)],
  ["people", labelled.length && labelled.map((/** @type {any} */ rating) => html`<${People} matrix=${matrix} metric=${rating.metric} order=${orderBy(rating.metric)} />`)],
  ["slices", metrics.includes(matrix.slices?.metric) && html`<${Slices} matrix=${matrix} order=${orderBy(matrix.slices.metric)} nodes=${factors} />`],
  ["cost", isCompared && metrics.length && html`<${Prices} />`],
  ["effects", attribution && isCompared && metrics.length && each((metric) => html`<${Effects} attribution=${attribution[metric]} /><p class="quiet">${texts.overCases(attribution[metric].cases, attribution[metric].missing)}</p>`)],
  ["pairs", paired.length && each((metric) => html`<${Pairs} comparisons=${pairs[metric]} matrix=${matrix} better=${matrix.metrics[metric].better} />`, paired)],
  ["tree", tree && html`<${SharingTree} tree=${tree} matrix=${matrix} />`],
  ["cases", worst && html`<${HardCases} cases=${worst} matrix=${matrix} anchors=${anchorsOf(opened)} />`],
  ["outputs", outputs && html`<${SideBySide} />`],
  ["opened", opened?.cases.length && html`<${OpenedCases} opened=${opened} matrix=${matrix} />`],
  ["failures", (failures.causes ?? [...failures.cells, ...failures.scores]).length && html`<${Failures} failures=${failures} matrix=${matrix} />`],
  ["history", history && metrics.length && (history.because ? html`<p class="quiet">${texts.noHistory(history.because)}</p>` : html`${metrics.map((metric) => html`<${History} metric=${metric} />`)}<${Changes} />`)],
  ["nodes", !tree && Object.keys(matrix.node_runs.by_node).length && html`<${NodeRuns} nodes=${matrix.node_runs.by_node} />`],
  ["origins", evidence.provenance && html`<${WhatWasRun} provenance=${evidence.provenance} graph=${graph} />`],
]).filter(([, view]) => view);

/** The other of light and dark than what is seen. */
function toggleTheme() {
  const isDark = theme.value === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme.value === "dark";
  theme.value = isDark ? "light" : "dark";
}

function Navigation() {
  return html`<nav class="parts" aria-label=${texts.navigation}><div>${PARTS.map(([id]) => html`<a href=${`#${id}`}>${texts.sections[id]}</a>`)}</div>
    <button class="plain" id="theme" aria-label=${texts.theme} onClick=${toggleTheme}>◐</button></nav>`;
}

const Parts = () => PARTS.map(([id, view]) => html`<section id=${id}><h2>${texts.sections[id]}</h2>${view}</section>`);

const place = /** @type {HTMLElement} */ (document.getElementById("views"));
const bar = document.createElement("div");
document.body.prepend(bar);
render(html`<${Navigation} />`, bar);
place.replaceChildren(); // what stands there for those without scripts
render(html`<${Parts} />`, place);

/** Show the part that the address names, and open it if it is closed. */
function follow() {
  const part = location.hash.startsWith("#?") ? null : document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (part instanceof HTMLDetailsElement) part.open = true;
  part?.scrollIntoView();
}
addEventListener("hashchange", follow);
follow();
