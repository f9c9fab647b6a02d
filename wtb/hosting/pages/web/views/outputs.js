/** Outputs side by side: what combinations returned for each case, filtered, compared word by word, and opened one by one. */
import { may, Problem, segment } from "../lib/api.js";
import { combination } from "../lib/format.js";
import { shortNames } from "../lib/combinations.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { fromServer, OutputPages } from "../lib/output_pages.js";
import { outputWords as words } from "../lib/output_words.js";
import { useChange, useResource, Waiting } from "../lib/resource.js";
import { address, addressWith, isEmbedded, look, navigate } from "../lib/router.js";
import { OutputDetails } from "./output_details.js";
import { OutputFilters } from "./output_filters.js";
import { OutputsTable } from "./outputs_table.js";

const MOST_COLUMNS = 64;
const FIRST_COLUMNS = 6; // before somebody chooses

/** The numbers of an address, such as 0-3-5. @param {string | undefined} text @returns {number[]} */
export function numbersOf(text) {
  return [...new Set((text ?? "").split("-").filter(Boolean).map(Number))].filter((number) => Number.isInteger(number) && number >= 0);
}

/** Keys of an address, which may have any character. @param {string | undefined} text @returns {string[]} */
const keysOf = (text) => (text ?? "").split(",").filter(Boolean).map(decodeURIComponent);

/** What an address looks at. @param {Record<string, string>} query @param {any} matrix @param {number[]} order @param {string | null} metric */
function seenBy(query, matrix, order, metric) {
  const every = query.rows === "all" ? /** @type {number[]} */ ([...matrix.rows.keys()]) : numbersOf(query.rows);
  const rowsOfMatrix = every.filter((row) => row < matrix.rows.length);
  const rows = (rowsOfMatrix.length ? rowsOfMatrix : order.slice(0, FIRST_COLUMNS)).slice(0, MOST_COLUMNS);
  const differ = numbersOf(query.differ).filter((row) => row < matrix.rows.length);
  const filters = {
    keys: keysOf(query.keys),
    failed: query.failed ? "true" : undefined,
    differ: differ.length === 2 ? differ : [],
    worst: query.worst,
    ...(["all", "none"].includes(query.wrong) && hasScale(matrix, metric) ? { wrong: query.wrong, metric } : {}),
    tag: query.tag,
    text: query.text,
    cases: query.only ? [query.only] : [],
  };
  const [row = 0, column = 0] = (query.at ?? "0.0").split(".").map((text) => Math.max(0, Number(text) || 0));
  return { rows, filters, at: /** @type {[number, number]} */ ([row, Math.min(column, rows.length - 1)]), against: query.against ?? "", isOpen: Boolean(query.open) };
}

/** Whether a metric has a best score, so that others are wrong. @param {any} matrix @param {string | null} metric */
const hasScale = (matrix, metric) => typeof matrix.metrics[metric ?? ""]?.low === "number";

/** How many cases all combinations get wrong, and how many none does; null while that is not known. @param {import("../lib/output_pages.js").Source} source @param {any} matrix @param {string | null} metric */
function useWrong(source, matrix, metric) {
  const isScaled = hasScale(matrix, metric);
  const count = async (/** @type {string} */ wrong, /** @type {AbortSignal} */ signal) => (await source.load({ keys: [], differ: [], cases: [], rows: [0], columns: [0], wrong, metric, offset: 0, limit: 1 }, signal)).total;
  const wrongCounts = useResource(async (signal) => (isScaled ? { all: await count("all", signal), none: await count("none", signal) } : null), [metric, isScaled]);
  useChange(matrix, wrongCounts.reload); // there are more outcomes
  return isScaled ? { all: wrongCounts.data?.all ?? null, none: wrongCounts.data?.none ?? null } : null;
}

/** @param {{sweep: string, matrix: any, metric: string | null, order: number[], source?: import("../lib/output_pages.js").Source}} props */
export function Outputs({ sweep, matrix, metric, order, source }) {
  const { query } = address.value;
  const { rows, filters, at, against, isOpen } = seenBy(query, matrix, order, metric);
  const key = JSON.stringify([sweep, rows, filters]);
  const [version, setVersion] = useState(0);
  const from = useMemo(() => source ?? fromServer(sweep), [source, sweep]);
  const wrong = useWrong(from, matrix, metric);
  const pages = useMemo(() => new OutputPages(from, filters, rows, () => setVersion((before) => before + 1)), [key]);
  const about = useRef(/** @type {any} */ (null));
  const focus = useRef(false);
  const view = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    pages.load(`${Math.floor(at[0] / 20)}.0`);
    return () => pages.end();
  }, [pages]);
  const first = pages.pages.values().next().value;
  if (first && about.current?.of !== pages) about.current = { of: pages, document: first };
  const outputsDocument = about.current?.document ?? null;
  const every = useMemo(() => shortNames(matrix.rows.map((/** @type {any} */ row) => row.combination)), [matrix]);
  const names = useMemo(() => rows.map((row) => every[row]), [every, rows.join()]);
  const titles = useMemo(() => rows.map((row) => combination(matrix.rows[row].combination)), [matrix, rows.join()]);
  useEffect(() => {
    if (!isOpen && focus.current) view.current?.focus();
    focus.current = isOpen;
  }, [isOpen]);
  useEffect(() => {
    // The link that led here is gone, and the focus with it: the keys of the table work at once.
    if (!isEmbedded && navigator.userActivation?.hasBeenActive && document.activeElement === document.body) view.current?.focus({ preventScroll: true });
  }, [outputsDocument === null]);

  /** @param {number} row @param {number} column */
  const move = (row, column) => look({ at: row || column ? `${row}.${column}` : null });
  /** @param {string} pressed */
  function onKey(pressed) {
    const number = String(rows[at[1]]);
    if (pressed === "c") look({ against: against === number ? null : number });
    else if (pressed === "e") look({ against: against === "expected" ? null : "expected" });
    else if (pressed === "l" && metric && may("answer")) navigate(`/sweeps/${segment(sweep)}/label?metric=${encodeURIComponent(metric)}`);
    else if (pressed === "m" && !isEmbedded && may("answer")) look({ open: "comment" });
    else return false;
    return true;
  }
  const problem = pages.problem;
  const bars = useMemo(() => html`<${OutputFilters} about=${outputsDocument} matrix=${matrix} rows=${rows} every=${every} names=${names} filters=${filters} against=${against} total=${pages.total} wrong=${wrong} metric=${metric} />`, [outputsDocument, matrix, key, against, pages.total, metric, wrong?.all, wrong?.none]); // not made anew whenever a page of outputs arrives
  return html`${bars}
    ${problem ? (problem instanceof Problem ? html`<p class="bad" role="alert">${problem.message}</p>` : html`<${Waiting} resource=${{ error: problem, reload: () => pages.fill() }} />`) : null}
    ${outputsDocument === null ? (problem ? null : html`<${Waiting} resource=${{}} />`) : pages.total === 0
      ? html`<p class="notice" role="status">${words.none} <button onClick=${() => look({ failed: null, differ: null, tag: null, text: null, wrong: null, only: null, at: null })}>${words.clear}</button></p>`
      : html`<${OutputsTable} view=${view} pages=${pages} version=${version} names=${names} titles=${titles} about=${outputsDocument} metric=${metric} against=${against} at=${at} onMove=${move} onOpen=${() => look({ open: "1" })} onKey=${onKey} />
        <p class="quiet" id="outputs-hint"><span class="seen-only-by-readers">${words.hint}</span><span aria-hidden="true">${words.short}</span></p>`}
    ${outputsDocument && isOpen ? html`<${OutputDetails} sweep=${sweep} isWriting=${query.open === "comment"} onWriting=${(/** @type {boolean} */ is) => look({ open: is ? "comment" : "1" })} pages=${pages} version=${version} about=${outputsDocument} titles=${titles} metric=${metric} against=${against} at=${at} onMove=${move} onKey=${onKey} onClose=${() => look({ open: null })} />` : null}`;
}

/** Where the outputs of a sweep are seen, looked at in a way. @param {string} sweep @param {Record<string, string>} query */
export const addressOfOutputs = (sweep, query) => `/sweeps/${segment(sweep)}?${new URLSearchParams({ tab: "outputs", ...query })}`;

/** The same on this page. @param {Record<string, string | null>} query */
export function outputsHere(query) {
  return addressWith({ tab: "outputs", rows: null, failed: null, worst: null, differ: null, text: null, tag: null, wrong: null, only: null, at: null, open: null, against: null, ...query });
}
