/** Adding cases, repeats and variants to a sweep: first what that adds, then it is done. */
import { Refused, useAction } from "../lib/action.js";
import { may, post } from "../lib/api.js";
import { usd } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

/** @param {string} text cases as JSON Lines */
function casesOf(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line, place) => {
    try {
      return JSON.parse(line);
    } catch (error) {
      throw new Error(words.extension.wrongLine(place + 1, /** @type {Error} */ (error).message));
    }
  });
}

/** @param {string} text NODE=VARIANT, one a line */
function varyOf(text) {
  const vary = /** @type {Record<string, unknown[]>} */ ({});
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const [node, ...rest] = line.split("=");
    const variant = rest.join("=").trim();
    if (!variant) throw new Error(words.extension.wrongVariant(line));
    (vary[node.trim()] ??= []).push(variant.startsWith("{") ? JSON.parse(variant) : variant);
  }
  return vary;
}

/**
 * @param {object} props
 * @param {string} props.path of the sweep, below `/api/v1`
 * @param {boolean} props.isQueued whether workers run it; else it is left to who resumes it where its code is
 * @param {() => void} props.reload
 */
export function Extension({ path, isQueued, reload }) {
  const [cases, setCases] = useState("");
  const [repeats, setRepeats] = useState("");
  const [vary, setVary] = useState("");
  const [planned, setPlanned] = useState(/** @type {any} */ (null));
  const { perform, problem, isBusy } = useAction();
  if (!may("submit")) return null;
  const given = () => ({
    ...(cases.trim() ? { cases: casesOf(cases) } : {}),
    ...(repeats ? { repeats: Number(repeats) } : {}),
    ...(vary.trim() ? { vary: varyOf(vary) } : {}),
  });
  /** @param {(text: string) => void} set */
  const changed = (set) => (/** @type {any} */ event) => {
    set(event.target.value);
    setPlanned(null);
  };
  /** @param {any} event */
  const read = async (event) => {
    const [file] = event.target.files;
    if (file) changed(setCases)({ target: { value: await file.text() } });
  };
  /** @param {Event} event */
  const plan = (event) => {
    event.preventDefault();
    return perform(async () => setPlanned(await post(`${path}/extend/plan`, given())));
  };
  const extend = async () => {
    if (await perform(() => post(`${path}/extend`, { ...given(), run: isQueued }))) {
      setPlanned(null);
      reload();
    }
  };
  return html`<details class="extension"><summary>${words.extension.title}</summary>
    <p class="quiet">${words.extension.legend}</p>
    <form class="fields" onSubmit=${plan}>
      <label>${words.extension.cases}<textarea rows="4" spellcheck="false" value=${cases} onInput=${changed(setCases)} placeholder='{"id": "q61", "input": {"question": "…"}, "expected": "…"}'></textarea></label>
      <label>${words.extension.file}<input type="file" accept=".jsonl,.ndjson" onChange=${read} /></label>
      <label>${words.extension.repeats}<input type="number" min="1" value=${repeats} onInput=${changed(setRepeats)} /></label>
      <label>${words.extension.vary}<textarea rows="2" spellcheck="false" value=${vary} onInput=${changed(setVary)} placeholder="answer=long"></textarea></label>
      <div class="bar"><button disabled=${isBusy}>${words.extension.plan}</button>
        ${planned?.cells ? html`<button type="button" class="main" disabled=${isBusy} onClick=${extend}>${words.extension.extend(planned.cells)}</button>` : null}</div>
    </form>
    <div role="status">${planned ? html`<p>${words.extension.planned(planned, planned.usd ? usd(planned.usd[1] ?? planned.usd[0]) : null)}</p>
      ${planned.notes.map((/** @type {string} */ note) => html`<p key=${note} class="quiet">${note}</p>`)}` : null}</div>
    <${Refused} problem=${problem} /></details>`;
}
