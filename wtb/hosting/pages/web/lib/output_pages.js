/** Pages of outputs, loaded as they come into view: so many cases by so many combinations at a time. */
import { get, segment } from "./api.js";

export const CASES = 20; // of a page
export const COLUMNS = 6;
const KEPT = 80; // pages
const AT_ONCE = 4; // requests

/** What loads pages. @typedef {{load: (query: Record<string, unknown>, signal: AbortSignal) => Promise<any>}} Source */

/** The server's. @param {string} sweep @returns {Source} */
export const fromServer = (sweep) => ({ load: (query, signal) => get(`/sweeps/${segment(sweep)}/outputs`, query, signal) });

/** Pages of one view of the outputs of a sweep. */
export class OutputPages {
  /** @param {Source} source @param {Record<string, unknown>} filters @param {number[]} rows combinations that are columns @param {() => void} onChange */
  constructor(source, filters, rows, onChange) {
    this.source = source;
    this.filters = filters;
    this.rows = rows;
    this.onChange = onChange;
    this.pages = /** @type {Map<string, any>} */ (new Map());
    this.loading = /** @type {Map<string, AbortController>} */ (new Map());
    this.problem = /** @type {unknown} */ (null);
    this.total = /** @type {number | null} */ (null);
  }

  /** A case with the cell in a column, if its page is there. @param {number} index @param {number} column */
  at(index, column) {
    const page = this.pages.get(`${Math.floor(index / CASES)}.${Math.floor(column / COLUMNS)}`);
    const outputs = page?.cases[index % CASES];
    return outputs ? { caseRow: outputs, cell: outputs.cells[column % COLUMNS] } : null;
  }

  /** Replace the comments on a cell, after somebody wrote or deleted one. @param {number} index @param {number} column @param {any[]} comments */
  setComments(index, column, comments) {
    const loaded = this.at(index, column);
    if (!loaded) return;
    loaded.caseRow.cells[column % COLUMNS] = { ...loaded.cell, comments };
    this.onChange();
  }

  /** Have what is seen loaded, and stop loading what is not. @param {[number, number]} cases first and last @param {[number, number]} columns @param {number} [also] a column besides */
  see(cases, columns, also = -1) {
    const keys = /** @type {string[]} */ ([]);
    const last = this.total === null ? 0 : Math.max(0, this.total - 1);
    for (let casesPage = Math.floor(cases[0] / CASES); casesPage <= Math.floor(Math.min(cases[1], last) / CASES); casesPage++) {
      for (let other = Math.floor(columns[0] / COLUMNS); other <= Math.floor(Math.min(columns[1], this.rows.length - 1) / COLUMNS); other++) keys.push(`${casesPage}.${other}`);
      const besides = `${casesPage}.${Math.floor(also / COLUMNS)}`;
      if (also >= 0 && !keys.includes(besides)) keys.push(besides);
    }
    for (const [key, ending] of this.loading) if (!keys.includes(key)) [ending.abort(), this.loading.delete(key)];
    this.wanted = keys;
    this.fill();
  }

  fill() {
    for (const key of this.wanted ?? []) if (!this.pages.has(key) && !this.loading.has(key) && this.loading.size < AT_ONCE) this.load(key);
  }

  /** @param {string} key */
  async load(key) {
    const ending = new AbortController();
    const [place, part] = key.split(".").map(Number);
    this.loading.set(key, ending);
    try {
      const columns = this.rows.slice(part * COLUMNS, (part + 1) * COLUMNS);
      const page = await this.source.load({ ...this.filters, rows: this.rows, columns, offset: place * CASES, limit: CASES }, ending.signal);
      this.total = page.total;
      this.pages.set(key, page);
      this.problem = null;
      if (this.pages.size > KEPT) for (const old of this.pages.keys()) if (!this.wanted?.includes(old)) { this.pages.delete(old); break; }
    } catch (error) {
      if (ending.signal.aborted) return;
      this.problem = error;
    } finally {
      if (this.loading.get(key) === ending) this.loading.delete(key);
    }
    if (!this.problem) this.fill();
    this.onChange();
  }

  end() {
    for (const ending of this.loading.values()) ending.abort();
    this.loading.clear();
  }
}
