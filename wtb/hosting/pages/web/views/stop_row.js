/** Stopping one combination of a sweep that has not ended: the others go on. */
import { Refused, useAction } from "../lib/action.js";
import { may, post, segment } from "../lib/api.js";
import { combination } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

const OPEN = ["pending", "running", "paused"];

/** @param {{matrix: any, nodes: string[]}} props */
export function StopRow({ matrix, nodes }) {
  const [selected, setSelected] = useState("");
  const { perform, problem, isBusy } = useAction(() => setSelected(""));
  const isBase = (/** @type {any} */ row) => matrix.baseline && JSON.stringify(row.combination) === JSON.stringify(matrix.baseline);
  const rows = matrix.rows.filter((/** @type {any} */ row) => !row.stopped && !isBase(row));
  if (!may("steer") || !OPEN.includes(matrix.sweep.status) || matrix.rows.length < 2 || !rows.length) return null;
  const stop = () => perform(() => post(`/sweeps/${segment(matrix.sweep.id)}/combinations/stop`, { combination: JSON.parse(selected) }));
  return html`<div class="bar"><label>${words.sweep.stopRow}
      <select value=${selected} onChange=${(/** @type {any} */ event) => setSelected(event.target.value)}>
        <option value="">${words.sweep.chooseRow}</option>
        ${rows.map((/** @type {any} */ row) => html`<option value=${JSON.stringify(row.combination)}>${combination(row.combination, nodes)}</option>`)}
      </select></label>
      <button disabled=${isBusy || !selected} onClick=${stop}>${words.sweep.stop}</button></div>
    <${Refused} problem=${problem} />`;
}
