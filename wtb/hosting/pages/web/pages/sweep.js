/** One sweep: the answer first, then what it rests on. While it runs, it is kept up to date by its events. */
import { Refused } from "../lib/action.js";
import { get, may, segment } from "../lib/api.js";
import { getColumns, withOutcomes } from "../lib/columns.js";
import { between, combination, duration, usd } from "../lib/format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { rowsByEvidence, rowsOf, viewOf } from "../lib/matrix_view.js";
import { useChange, useResource, Waiting } from "../lib/resource.js";
import { address, addressWith, Link, look, navigate, useTitle } from "../lib/router.js";
import { follow } from "../lib/stream.js";
import { outputWords } from "../lib/output_words.js";
import { asking, words } from "../lib/words.js";
import { Causes } from "../views/causes.js";
import { CellRepeats, repeatsOf } from "../views/cell_repeats.js";
import { Effects, Pairs } from "../views/effects.js";
import { Decision, Notes } from "../views/decision.js";
import { Empty } from "../views/empty.js";
import { Extension } from "../views/extension.js";
import { differing, HeatMap, scoreEnds } from "../views/heat_map.js";
import { Log } from "../views/log.js";
import { Filtered, MatrixControls, MetricChoice, ViewedRows } from "../views/matrix_controls.js";
import { Outputs, outputsHere } from "../views/outputs.js";
import { People } from "../views/people.js";
import { SharingTree } from "../views/sharing_tree.js";
import { PriceChart } from "../views/price_chart.js";
import { Slices } from "../views/slices.js";
import { Announced, Progress, Status } from "../views/status.js";
import { mayRetry, Steering, StopRow } from "../views/steering.js";
import { WhatWasRun } from "../views/what_was_run.js";

const TABS = /** @type {const} */ (["matrix", "outputs", "effects", "tree", "failures", "log", "run"]);
const OF_REPORT = ["effects", "tree", "run"]; // tabs that show what a report has
const ENDED = ["completed", "failed", "cancelled"];
const STATUS_MS = 700; // between two looks at how far it is, and at cells where events do not tell their outcomes
const FIGURES_MS = 5_000; // between two of the figures, which cost a server more, and of all cells
const MOST_BEHIND = 50_000; // events, of which many are not asked for; behind by more, reading all cells again is less

/** @param {{parts: string[]}} props */
export function SweepPage({ parts: [ref] }) {
  const { tab = "matrix", metric, baseline } = address.value.query;
  const status = useResource((signal) => get(`/sweeps/${segment(ref)}/status`, {}, signal), [ref]);
  const figures = useResource((signal) => get(`/sweeps/${segment(ref)}/figures`, { baseline }, signal), [ref]);
  useChange(baseline, figures.reload); // figures stay, and with them the focus, until there are others
  const matrix = figures.data?.matrix;
  const isWrong = matrix && metric && !(metric in matrix.metrics); // an address of before a metric was renamed
  const currentMetric = (isWrong ? null : metric) ?? matrix?.primary ?? null;
  const events = useRef(/** @type {any[]} */ ([])); // since cells were asked for, which may not have it yet
  const isMetricKnown = Boolean(matrix ?? figures.error);
  const columns = useResource(async (signal) => {
    if (!isMetricKnown) return new Promise(() => {}); // they would be asked for twice
    const meanwhile = /** @type {any[]} */ ([]);
    events.current = meanwhile;
    return withOutcomes(await getColumns(ref, currentMetric, signal), meanwhile).columns;
  }, [ref, isMetricKnown]);
  useEffect(() => {
    if (columns.data && columns.data.metric !== currentMetric) columns.reload(); // cells stay, and with them the focus, until there are others
  }, [columns.data, currentMetric]);
  const sweep = status.data?.sweep;
  const isAgain = sweep?.status === "completed" && status.data.cells.pending + status.data.cells.running > 0; // a retry that begins in a moment
  const isLive = sweep !== undefined && (!ENDED.includes(sweep.status) || isAgain);
  const isConnected = useLive(ref, isLive, { status, figures, columns, events });
  useTitle(sweep?.name);
  const isSingle = status.data && !sweep;
  useEffect(() => {
    if (isSingle) navigate(`/executions/${segment(ref)}`, { replace: true });
  }, [isSingle]);

  if (!sweep) return html`<h1>${ref}</h1><${Waiting} resource=${status} />`;
  return html`<${Heading} status=${status.data} reload=${status.reload} />
    ${isLive && !isConnected ? html`<p class="notice" role="status">${words.reconnecting}</p>` : null}
    ${figures.data?.decision ? html`<${Decision} decision=${figures.data.decision} />` : null}
    <${Standing} status=${status.data} combinations=${(matrix?.rows ?? []).map((/** @type {any} */ row) => row.combination)} reload=${status.reload} />
    ${matrix?.as_of ? html`<p class="quiet">${words.sweep.asOf(matrix.as_of)}</p>` : null}
    ${matrix ? html`<${Notes} matrix=${matrix} answers=${figures.data.answers} />` : null}
    <nav class="tabs" aria-label=${sweep.name}>
      ${TABS.map((name) => html`<${Link} to=${addressWith({ tab: name })} aria-current=${tab === name ? "page" : undefined}>${words.sweep.tabs[name]}<//>`)}
    </nav>
    <${Tab} tab=${tab} sweep=${ref} figures=${figures} columns=${columns} metric=${currentMetric} status=${status.data} />`;
}

/** @param {any} props */
function Tab({ tab, sweep, figures, columns, metric, status }) {
  const isReported = OF_REPORT.includes(tab);
  const report = useResource((signal) => (isReported ? get(`/sweeps/${segment(sweep)}/report`, {}, signal) : Promise.resolve(null)), [sweep, isReported]);
  if (tab === "failures") return html`<${Causes} sweep=${sweep} failures=${status.failures} />`;
  if (tab === "log") return html`<${Log} sweep=${sweep} />`;
  if (isReported) {
    if (!report.data) return html`<${Waiting} resource=${report} />`;
    if (tab === "run") return html`<${WhatWasRun} provenance=${report.data.provenance} />`;
    if (tab === "tree") return html`<${SharingTree} tree=${report.data.tree} matrix=${report.data.matrix} />`;
    if (!metric) return html`<${NoScores} />`;
    return html`<div class="bar"><${MetricChoice} matrix=${report.data.matrix} metric=${metric} /></div>
      <${Effects} attribution=${report.data.attribution[metric]} />
      <${Pairs} comparisons=${report.data.pairs[metric]} matrix=${report.data.matrix} better=${report.data.matrix.metrics[metric].better} />`;
  }
  if (!figures.data) return html`<${Waiting} resource=${figures} />`;
  if (tab === "outputs") return html`<${Outputs} sweep=${sweep} matrix=${figures.data.matrix} metric=${metric} order=${rowsByEvidence(figures.data.matrix, metric)} />`;
  return html`<${Figures} sweep=${sweep} matrix=${figures.data.matrix} columns=${columns} metric=${metric} />`;
}

/** Of a sweep that scores nothing: what there is to read instead. */
function NoScores() {
  return html`<${Empty} text=${words.sweep.noScores} help="evaluators"><${Link} class="button" to=${outputsHere({})}>${words.sweep.toOutputs}<//><//>`;
}

/** From which row differences are taken: of those that the sweep was submitted with any. @param {{matrix: any, nodes: string[]}} props */
function BaselineChoice({ matrix, nodes }) {
  const { baseline = "" } = address.value.query;
  return html`<label>${words.sweep.differencesFrom}
    <select value=${baseline} onChange=${(/** @type {any} */ event) => look({ baseline: event.target.value })}>
      <option value="">${words.sweep.asTheSweepSays}</option>
      ${matrix.rows.map((/** @type {any} */ row, /** @type {number} */ number) => (row.exploratory ? null : html`<option value=${String(number)}>${combination(row.combination, nodes)}</option>`))}
    </select></label>`;
}

/** The table of rows, if anything is scored, and every cell. @param {any} props */
function Figures({ sweep, matrix, columns, metric }) {
  const { query } = address.value;
  const { differ = "", row, case: cell } = query;
  const [problem, setProblem] = useState(/** @type {unknown} */ (""));
  const [isChoosing, setChoosing] = useState(false);
  const nodes = useMemo(() => differing(matrix.rows.map((/** @type {any} */ row) => row.combination)), [matrix]);
  const view = useMemo(() => viewOf(query, matrix, metric), [matrix, metric, query.sort, query.group, query.where, query.good, query.pivot, query.measure]);
  const { group, good } = view;
  const margin = metric ? matrix.rows[0]?.metrics[metric]?.within?.margin : undefined;
  const order = useMemo(() => rowsOf(matrix, metric, view), [matrix, metric, view]);
  // Made anew with the figures only, not with every outcome.
  const table = useMemo(() => html`<${ViewedRows} matrix=${matrix} metric=${metric} order=${order} view=${view} />`, [matrix, metric, order, view]);
  const more = useMemo(
    () => html`<${People} matrix=${matrix} metric=${metric} order=${order} /><${PriceChart} matrix=${matrix} metric=${metric} />${matrix.slices?.metric === metric ? html`<${Slices} matrix=${matrix} order=${order} nodes=${nodes} />` : null}`,
    [matrix, metric, order],
  );
  const seen = useMemo(() => measuredRows(order, columns.data), [order, columns.data?.combinations.length]);
  const drawnColumns = useMemo(() => (columns.data && differ ? onlyDiffering(columns.data) : columns.data), [columns.data, differ]);
  const measure = matrix.metrics[columns.data?.metric ?? metric];
  const mark = drawnColumns ? markIn(drawnColumns) : null;
  const markCell = (/** @type {number} */ number, /** @type {number} */ column) => showOutcome(setProblem, compareWith(sweep, drawnColumns, mark, number, column));
  const openCell = (/** @type {number} */ number, /** @type {number} */ column) => showOutcome(setProblem, open(sweep, drawnColumns, number, column));
  return html`${metric ? null : html`<${NoScores} />`}
    <div class="bar">
      ${metric ? html`<${MetricChoice} matrix=${matrix} metric=${metric} />` : null}
      ${metric && matrix.rows.length > 1 ? html`<${BaselineChoice} matrix=${matrix} nodes=${nodes} />` : null}
      <${MatrixControls} matrix=${matrix} metric=${metric} view=${view} />
      <label><input type="checkbox" checked=${differ !== ""} onChange=${(/** @type {any} */ event) => look({ differ: event.target.checked ? "1" : null })} />${words.sweep.onlyDiffering}</label>
    </div>
    <${Filtered} matrix=${matrix} order=${order} view=${view} />
    <div class=${metric ? "halves" : ""}><div>
    <h2>${words.sweep.tabs.cells}</h2>
    ${columns.data
      ? html`<div class="bar"><label><input type="checkbox" checked=${isChoosing} onChange=${(/** @type {any} */ event) => setChoosing(event.target.checked)} />${words.matrix.choose}</label></div>
          ${mark ? html`<p class="notice" role="status">${words.matrix.compareWith(`${drawnColumns.cases[mark.column]} · ${combination(drawnColumns.combinations[mark.row])}`)} <button onClick=${() => look(UNMARKED)}>${words.matrix.drop}</button></p>` : null}
          <${Refused} problem=${problem} />
          <${HeatMap} columns=${drawnColumns} order=${seen} group=${group} scale=${scoreEnds(measure, columns.data)} mark=${mark} onMark=${markCell}
          onOpen=${(/** @type {number} */ row, /** @type {number} */ column) => (isChoosing ? markCell(row, column) : openCell(row, column))} />
          ${row && cell ? html`<${CellRepeats} sweep=${sweep} combination=${columns.data.combinations[Number(row)]} id=${cell} />` : null}`
      : html`<${Waiting} resource=${columns} />`}</div>${metric ? html`<div>
    <h2>${words.sweep.tabs.matrix}</h2>
    ${good && !order.length ? html`<${Empty} text=${words.sweep.noneGoodEnough} help="statistics"><button onClick=${() => look({ good: null })}>${words.sweep.showAllRows}</button><//>` : null}
    ${table}
    <${StopRow} matrix=${matrix} nodes=${nodes} />
    <p class="quiet">${view.pivot.length ? "" : words.sweep.legend}${margin === undefined || view.pivot.length ? "" : ` ${words.sweep.withinLegend(margin)}`}${order.length > 1 ? html` <${Link} to=${`/sweeps/${segment(sweep)}/compare?row=${order[0]}&other=${order[1]}&metric=${encodeURIComponent(metric)}`}>${words.sweep.besideNext}<//>` : null}${may("answer") ? html` <${Link} to=${`/sweeps/${segment(sweep)}/label?metric=${encodeURIComponent(metric)}`}>${words.label.link}<//>` : null} <${Link} to=${outputsHere({ worst: metric })}>${outputWords.worstCase}<//></p>
    ${more}
    </div>` : null}</div>`;
}

/** Outcomes are shown as events tell them; else look again whenever something happens, but not more often than it is worth. @param {string} ref @param {boolean} isLive @param {any} resources */
function useLive(ref, isLive, resources) {
  const [isConnected, setConnected] = useState(true);
  const latest = useRef(resources);
  latest.current = resources;
  useEffect(() => {
    if (!isLive) return;
    let looked = 0;
    let requested = 0;
    let drawn = 0;
    let isWhole = true;
    const waiting = /** @type {any[]} */ ([]); // events, until the next frame draws what they tell
    const end = follow(ref, { after: "now", max_behind: MOST_BEHIND, kinds: ["cell", "sweep", "execution.waiting", "score"] }, onMessage, onState);
    /** @param {boolean} isNow */
    function onState(isNow) {
      setConnected(isNow);
      if (isNow) onMessage(); // what came while nobody listened, from no position
    }
    /** @param {import("../lib/stream.js").Message} [message] */
    function onMessage(message) {
      if (message?.events) {
        latest.current.events.current.push(...message.events);
        waiting.push(...message.events);
        drawn ||= requestAnimationFrame(draw);
      } else isWhole = false;
      looked ||= setTimeout(() => {
        looked = 0;
        latest.current.status.reload();
        if (!isWhole) latest.current.columns.reload();
        isWhole = true;
      }, STATUS_MS);
      requested ||= setTimeout(() => {
        requested = 0;
        latest.current.figures.reload();
        latest.current.columns.reload();
      }, FIGURES_MS);
    }
    function draw() {
      drawn = 0;
      const { columns } = latest.current;
      const events = waiting.splice(0);
      isWhole &&= columns.data !== undefined;
      columns.change((/** @type {any} */ before) => {
        const after = withOutcomes(before, events);
        isWhole &&= after.isWhole;
        return after.columns;
      });
    }
    return () => {
      end();
      cancelAnimationFrame(drawn);
      clearTimeout(looked);
      clearTimeout(requested);
      latest.current.figures.reload(); // what it came to
      latest.current.columns.reload();
    };
  }, [ref, isLive]);
  return isConnected;
}

/** @param {any} props */
function Heading({ status, reload }) {
  const { sweep, cells, next } = status;
  const kind = status.queue ? "queued" : "sweep";
  const failed = cells.failed + cells.set_aside + cells.cancelled;
  const isButton = status.queue || (next?.command.startsWith("wtb retry ") && mayRetry(kind, failed));
  return html`<div class="head">
      <h1>${sweep.name}</h1><span class="quiet mono">${sweep.id}</span><${Status} status=${sweep.status} reason=${sweep.reason} />
      <span class="grow"></span>
      <${Steering} kind=${kind} path=${`/sweeps/${segment(sweep.id)}`} status=${sweep.status} failed=${failed} reload=${reload} />
    </div>
    ${next ? html`<p class="notice">${next.why}${isButton ? "" : html`: <code>${next.command}</code>`}</p>` : null}`;
}

/** How far a sweep is, what it took, and what can be added to it. @param {any} props */
function Standing({ status, combinations, reload }) {
  const { sweep, cells, cost, node_runs: runs } = status;
  const isLive = !ENDED.includes(sweep.status);
  const done = cells.total - (cells.pending + cells.running + cells.waiting);
  return html`<${Announced} text=${words.sweep.announced(words.status[/** @type {"running"} */ (sweep.status)], done, cells.total, cells.failed)} isLive=${isLive} />
    <div class="bar"><${Progress} cells=${cells} />
      <span class="quiet">${words.sweep.nodeRuns(runs.executed, runs.unshared)}</span>
      ${cost.unknown?.length ? html`<span class="quiet">${words.sweep.costUnknown(usd(cost.usd))}</span>` : cost.usd ? html`<span class="quiet">${usd(cost.usd)}</span>` : null}
      <span class="quiet">${sweep.started_at ? duration(between(sweep.started_at, sweep.finished_at ?? new Date().toISOString())) : ""}</span>
      ${asking(status.approval) ? html`<span class="quiet">${words.steering.approval(asking(status.approval))}</span>` : null}
      ${cells.failed + cells.set_aside ? html`<${Link} to=${outputsHere({ failed: "1", rows: failedRows(status.failures) })}>${outputWords.failures(cells.failed + cells.set_aside)}<//>` : null}
      ${cells.waiting ? html`<${Link} to="/inbox">${words.sweeps.wait(cells.waiting)}<//>` : null}
      <span class="grow"></span>
      <a href=${`/api/v1/sweeps/${segment(sweep.id)}/report.html`} download>${words.sweep.save}</a>
    </div>
    ${sweep.status === "cancelled" ? null : html`<${Extension} sweep=${sweep} combinations=${combinations} isQueued=${Boolean(status.queue)} reload=${reload} />`}`;
}

/** The combinations of which cells failed, as an address has them; all if there is no cause yet. @param {any} failures */
function failedRows({ causes }) {
  const rows = [...new Set(causes.flatMap((/** @type {any} */ cause) => cause.combinations))].sort((a, b) => a - b);
  return rows.slice(0, 64).join("-") || "all";
}

/** Show why something cannot be done, or nothing. @param {(problem: unknown) => void} show @param {Promise<string>} doing */
async function showOutcome(show, doing) {
  show(await doing.catch((error) => error));
}

/**
 * Open the execution behind a cell, or show its repeats where each has one of its own.
 * @param {string} sweep @param {any} columns @param {number} row @param {number} column
 * @returns {Promise<string>} why there is none, or nothing
 */
async function open(sweep, columns, row, column) {
  if (columns.repeats > 1) look({ row: String(row), case: columns.cases[column] });
  else {
    const [cell] = await repeatsOf(sweep, columns.combinations[row], columns.cases[column]);
    if (!cell?.execution) return words.matrix.nothingRanHere;
    navigate(`/executions/${segment(cell.execution)}`);
  }
  return "";
}

const UNMARKED = { mark: null, markCase: null };

/** The cell that the address says is to be compared, unless it is not shown. @param {any} columns */
function markIn({ cases, combinations }) {
  const { mark, markCase } = address.value.query;
  const column = cases.indexOf(markCase);
  return mark && column >= 0 && combinations[Number(mark)] ? { row: Number(mark), column } : null;
}

/**
 * Mark the first of two cells, or compare what is marked with the second; by their first repeats. The same one again is unmarked.
 * @param {string} sweep @param {any} columns @param {{row: number, column: number} | null} mark @param {number} row @param {number} column
 * @returns {Promise<string>} why they cannot be compared, or nothing
 */
async function compareWith(sweep, columns, mark, row, column) {
  if (!mark) look({ mark: String(row), markCase: columns.cases[column] });
  else if (mark.row === row && mark.column === column) look(UNMARKED);
  else {
    const cells = await Promise.all([mark, { row, column }].map((cell) => repeatsOf(sweep, columns.combinations[cell.row], columns.cases[cell.column])));
    const [first, second] = cells.map(([cell]) => cell?.execution);
    if (!first || !second) return words.matrix.nothingRan;
    navigate(`/executions/${segment(first)}/diff/${segment(second)}`);
  }
  return "";
}

/** Rows that cells are known of: one that was added a moment ago may not be there yet. @param {number[]} order @param {any} columns */
const measuredRows = (order, columns) => order.filter((number) => number < (columns?.combinations.length ?? 0));

/** Cases in which combinations differ. @param {any} columns */
function onlyDiffering(columns) {
  const { combinations, cases, repeats } = columns;
  const differing = cases.map((/** @type {string} */ _, /** @type {number} */ index) => index).filter((/** @type {number} */ column) => {
    const first = columns.score.subarray(column * repeats, (column + 1) * repeats);
    return combinations.some((/** @type {any} */ _, /** @type {number} */ row) => {
      const start = (row * cases.length + column) * repeats;
      return first.some((/** @type {number} */ score, /** @type {number} */ index) => !Object.is(score, columns.score[start + index]));
    });
  });
  const size = combinations.length * differing.length * repeats;
  const [status, score] = [new Uint8Array(size), new Float32Array(size)];
  combinations.forEach((/** @type {any} */ _, /** @type {number} */ row) =>
    differing.forEach((/** @type {number} */ column, /** @type {number} */ place) => {
      const [from, to] = [(row * cases.length + column) * repeats, (row * differing.length + place) * repeats];
      status.set(columns.status.subarray(from, from + repeats), to);
      score.set(columns.score.subarray(from, from + repeats), to);
    }),
  );
  return { ...columns, cases: differing.map((/** @type {number} */ column) => cases[column]), status, score };
}
