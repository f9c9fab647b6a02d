/** All cells of a sweep as columns of numbers: what a server sends as `application/vnd.wtb.columns`. */
import { request, segment } from "./api.js";

/**
 * @typedef {object} Columns
 * @property {Record<string, string>[]} combinations
 * @property {string[]} cases their ids
 * @property {number} repeats
 * @property {string | null} metric
 * @property {string[]} statuses what the numbers of `status` mean
 * @property {Uint8Array} status of each cell: combination by combination, then case, then repeat; 255 for none
 * @property {Float32Array} score NaN where there is none
 */

/** @param {string} ref @param {string | null} metric @param {AbortSignal} [signal] @returns {Promise<Columns>} */
export async function getColumns(ref, metric, signal) {
  const answer = await request("GET", `/sweeps/${segment(ref)}/columns`, { query: { metric }, signal });
  return decode(await answer.arrayBuffer());
}

/**
 * Cells with the outcomes that events tell of, so that they need not be asked for.
 * @param {Columns} columns @param {any[]} events
 * @returns {{columns: Columns, isWhole: boolean}} isWhole: whether nothing was told of cells but their outcomes
 */
export function withOutcomes(columns, events) {
  const { cases, combinations, repeats, statuses, metric } = columns;
  const numbers = new Map(cases.map((id, number) => [id, number]));
  const [status, score] = [columns.status.slice(), columns.score.slice()];
  let isWhole = true;
  for (const { kind, data } of events) {
    if (kind.startsWith("sweep.")) continue;
    const [place, column] = [statuses.indexOf(kind.replace("cell.", "")), numbers.get(data?.case)];
    if (place < 0 || column === undefined || !combinations[data.combination] || !(data.repeat < repeats)) isWhole = false;
    else {
      const index = (data.combination * cases.length + column) * repeats + data.repeat;
      const cellScore = metric === null ? null : data.scores?.[metric];
      status[index] = place;
      score[index] = typeof cellScore === "number" ? cellScore : NaN;
    }
  }
  return { columns: { ...columns, status, score }, isWhole };
}

/** @param {ArrayBuffer} buffer @returns {Columns} */
export function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const cells = head.combinations.length * head.cases.length * head.repeats;
  const status = new Uint8Array(buffer, 4 + size, cells);
  const score = new Float32Array(buffer, 4 + size + cells + ((4 - (cells % 4)) % 4), cells);
  return { ...head, status, score };
}
