/** What of the outputs is seen: combinations, keys, filters, order, and what words are compared with. */
import { html, useEffect, useState } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { look } from "../lib/router.js";

const TYPED_MS = 350; // after the last letter

/** Look at it otherwise, from the first case. @param {Record<string, string | null>} changes */
function filter(changes) {
  look({ ...changes, at: null });
}

/** @param {any} props */
export function OutputFilters({ about, matrix, rows, every, names, filters, against, total, wrong, metric }) {
  const [first = "", other = ""] = filters.differ.map(String);
  /** @param {string} first @param {string} second */
  const differ = (first, second) => filter({ differ: first && second && first !== second ? `${first}-${second}` : null });
  const columns = rows.map((/** @type {number} */ row, /** @type {number} */ place) => html`<option value=${String(row)}>${names[place]}</option>`);
  return html`<div class="bar output-filters">
      <${Search} text=${filters.text ?? ""} />
      <label><input type="checkbox" checked=${Boolean(filters.failed)} onChange=${(/** @type {any} */ event) => filter({ failed: event.target.checked ? "1" : null })} />${words.failed}</label>
      ${wrong ? html`<label title=${words.wrongMeans(metric)}>${words.wrong}<select value=${filters.wrong ?? ""} onChange=${(/** @type {any} */ event) => filter({ wrong: event.target.value })}><option value="">${words.any}</option><option value="all">${words.wrongInAll(wrong.all)}</option><option value="none">${words.wrongInNone(wrong.none)}</option></select></label>` : null}
      ${rows.length > 1 ? html`<span class="pair"><label>${words.differ}
        <select value=${first} onChange=${(/** @type {any} */ event) => differ(event.target.value, other || String(rows.find((/** @type {number} */ row) => String(row) !== event.target.value) ?? ""))}><option value="">${words.any}</option>${columns}</select></label>
        ${first ? html`<label>${words.and}<select value=${other} onChange=${(/** @type {any} */ event) => differ(first, event.target.value)}>${columns}</select></label>` : null}</span>` : null}
      ${about?.tags.length ? html`<label>${words.tag}<select value=${filters.tag ?? ""} onChange=${(/** @type {any} */ event) => filter({ tag: event.target.value })}><option value="">${words.any}</option>${about.tags.map((/** @type {string} */ tag) => html`<option value=${tag}>${tag}</option>`)}</select></label>` : null}
      <label>${words.order}<select value=${filters.worst ?? ""} onChange=${(/** @type {any} */ event) => filter({ worst: event.target.value })}><option value="">${words.asCases}</option>${Object.keys(matrix.metrics).map((name) => html`<option value=${name}>${words.worst(name)}</option>`)}</select></label>
      <label>${words.against}<select value=${against} onChange=${(/** @type {any} */ event) => look({ against: event.target.value })}><option value="">${words.nothing}</option><option value="expected">${words.expectedValue}</option>${columns}</select></label>
    </div>
    ${filters.wrong ? html`<p class="quiet">${words.wrongMeans(metric)}</p>` : null}
    <div class="bar output-filters">
      <${Choices} label=${words.chooseColumns(rows.length, every.length)} all=${every.map((/** @type {string} */ name, /** @type {number} */ number) => [String(number), name])} selected=${rows.map(String)} onChange=${(/** @type {string[]} */ selected) => look({ rows: selected.join("-"), differ: null, against: null, at: null })} />
      ${about ? html`<${Choices} label=${words.chooseKeys(about.keys)} all=${[...about.keys, ...about.other_keys].map((key) => [key, key])} selected=${about.keys} onChange=${(/** @type {string[]} */ selected) => look({ keys: selected.map(encodeURIComponent).join(",") })} />` : null}
      <span class="grow"></span><span class="quiet" role="status">${total === null || !about ? "" : words.count(total, about.repeats)}</span>
    </div>`;
}

/** @param {{text: string}} props */
function Search({ text }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => filter({ text: typed }), TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<label>${words.text}<input type="search" data-filter value=${typed} placeholder=${words.textHint} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></label>`;
}

/** Some of several, one at least. @param {{label: string, all: [string, string][], selected: string[], onChange: (selected: string[]) => void}} props */
function Choices({ label, all, selected, onChange }) {
  /** @param {string} name @param {boolean} isOn */
  function change(name, isOn) {
    const next = isOn ? [...selected, name] : selected.filter((other) => other !== name);
    if (next.length) onChange(next);
  }
  return html`<details class="choices"><summary>${label}</summary><div class="choice-list">
    ${all.length > 2 ? html`<button class="plain" onClick=${() => onChange(all.slice(0, 64).map(([name]) => name))}>${words.all}</button>` : null}
    ${all.map(([name, title]) => html`<label key=${name}><input type="checkbox" checked=${selected.includes(name)} onChange=${(/** @type {any} */ event) => change(name, event.target.checked)} />${title}</label>`)}</div></details>`;
}
