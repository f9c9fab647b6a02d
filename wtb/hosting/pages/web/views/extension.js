/** Adding cases, repeats, levels and variants to a sweep: what that adds is shown while it is filled in, then it is done. */
import { instead, Refused, useAction } from "../lib/action.js";
import { may, post, segment } from "../lib/api.js";
import { combination, labelsOf, usd } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { written } from "../lib/written.js";
import { CaseFileField } from "./case_file.js";

const PAUSE_MS = 400; // after which what is filled in is planned
const MOST_SHOWN = 6; // combinations that a plan lists

/** What is filled in. levels: lines by node or factor. @typedef {{cases: import("./case_file.js").CasesToSend | null, repeats: string, levels: Record<string, string>, others: string, newName: string}} Form */

const EMPTY = /** @type {Form} */ ({ cases: null, repeats: "", levels: {}, others: "", newName: "" });

/** @param {string} text */
const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** A variant or level in JSON: a mapping, a list, or text in quotes. Other text is typed, which the server reads as what the parameter takes. @param {string} text @returns {unknown} */
function jsonOf(text) {
  if (!/^[{["]/.test(text)) return undefined;
  try {
    return written(text);
  } catch (error) {
    throw new Error(words.extension.wrongJson(text, /** @type {Error} */ (error).message));
  }
}

/** @param {Form} form @returns {{vary?: Record<string, unknown[]>, typed?: Record<string, string[]>}} */
function varyOf({ levels, others: typedLevels }) {
  const levelsByKind = /** @type {Record<string, Record<string, any[]>>} */ ({});
  const add = (/** @type {string} */ key, /** @type {string} */ text) => {
    const json = jsonOf(text);
    const part = (levelsByKind[json === undefined ? "typed" : "vary"] ??= {});
    (part[key] ??= []).push(json === undefined ? text : json);
  };
  for (const [key, text] of Object.entries(levels)) for (const line of linesOf(text)) add(key, line);
  for (const line of linesOf(typedLevels)) {
    const [key, ...rest] = line.split("=");
    const variant = rest.join("=").trim();
    if (!variant) throw new Error(words.extension.wrongVariant(line));
    add(key.trim(), variant);
  }
  return levelsByKind;
}

/** What a request asks for; nothing while the form is empty. @param {Form} form */
function askedFor(form) {
  const { cases, columns } = form.cases ?? {};
  const change = { ...(cases ? { cases } : {}), ...(columns ? { columns } : {}), ...(form.repeats ? { repeats: Number(form.repeats) } : {}), ...varyOf(form) };
  return Object.keys(change).length ? { ...change, ...(form.newName.trim() ? { new_name: form.newName.trim() } : {}) } : null;
}

/** Nodes and factors, each with its variants or levels so far. @param {Record<string, string>[]} combinations */
function levelsOf(combinations) {
  const byFactor = /** @type {Record<string, Set<string>>} */ ({});
  for (const labels of combinations.map(labelsOf)) for (const [key, label] of Object.entries(labels)) (byFactor[key] ??= new Set()).add(label);
  return Object.entries(byFactor).map(([key, labels]) => /** @type {[string, string[]]} */ ([key, [...labels]]));
}

/**
 * @param {object} props
 * @param {{id: string, name: string}} props.sweep
 * @param {Record<string, string>[]} props.combinations those that it has
 * @param {boolean} props.isQueued whether workers run it; else it is left to who resumes it where its code is
 * @param {() => void} props.reload
 */
export function Extension({ sweep, combinations, isQueued, reload }) {
  const [isOpen, setOpen] = useState(false);
  const [form, setForm] = useState(EMPTY);
  const [round, setRound] = useState(0); // of the field of files, which empties itself no other way
  const [planned, setPlanned] = useState(/** @type {any} */ (null));
  const { perform, problem, isBusy } = useAction();
  const path = `/sweeps/${segment(sweep.id)}/extend`;
  const latest = useRef(0);
  useEffect(() => {
    const mine = (latest.current += 1);
    setPlanned(null);
    const timer = setTimeout(() => perform(async () => {
      const change = askedFor(form);
      const plan = change && (await post(`${path}/plan`, change));
      if (mine === latest.current) setPlanned(plan);
    }), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [form]);
  if (!may("submit")) return null;
  /** @param {Partial<Form>} changes */
  const change = (changes) => setForm((before) => ({ ...before, ...changes }));
  const extend = instead(async () => {
    let added = /** @type {any} */ (null);
    if (!planned?.cells || !(await perform(async () => { added = await post(path, { ...askedFor(form), run: isQueued }); }))) return;
    setForm(EMPTY);
    setRound(round + 1);
    if (added.sweep === sweep.id) reload();
    else navigate(`/sweeps/${segment(added.sweep)}`);
  });
  return html`<details class="extension" open=${isOpen} onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>${words.extension.title}</summary>
    ${isOpen ? html`<p class="quiet">${words.extension.legend}</p>
    <form class="fields" onSubmit=${extend}>
      <${CaseFileField} key=${round} sweep=${sweep.id} title=${words.extension.cases} onChange=${(/** @type {Form["cases"]} */ cases) => change({ cases })} />
      <label>${words.extension.repeats}<input type="number" min="1" value=${form.repeats} onInput=${(/** @type {any} */ event) => change({ repeats: event.target.value })} /></label>
      ${levelsOf(combinations).map(([key, levels]) => html`<label key=${key}><span>${words.extension.more} <code>${key}</code> <span class="quiet name">${words.extension.present(levels)}</span></span>
        <textarea rows="1" class="mono" spellcheck=${false} value=${form.levels[key] ?? ""} onInput=${(/** @type {any} */ event) => change({ levels: { ...form.levels, [key]: event.target.value } })}></textarea></label>`)}
      <label>${words.extension.vary}<textarea rows="1" class="mono" spellcheck=${false} value=${form.others} onInput=${(/** @type {any} */ event) => change({ others: event.target.value })} placeholder="answer=long"></textarea></label>
      <label>${words.extension.newName}<input value=${form.newName} maxlength="200" onInput=${(/** @type {any} */ event) => change({ newName: event.target.value })} placeholder=${words.extension.noNewName} /></label>
      <div role="status" class="wide">${planned ? html`<${Planned} planned=${planned} />` : null}</div>
      <${Refused} problem=${problem} />
      ${planned?.cells ? html`<div class="bar"><button class="main" disabled=${isBusy}>${form.newName.trim() ? words.extension.extendCopy(planned.cells) : words.extension.extend(planned.cells)}</button></div>` : null}
    </form>` : null}</details>`;
}

/** @param {{planned: any}} props */
function Planned({ planned }) {
  const { cells, cases, present, combinations, notes } = planned;
  return html`<p>${words.extension.planned(planned, planned.usd ? usd(planned.usd[1] ?? planned.usd[0]) : null)}</p>
    ${cases || present ? html`<p class="quiet">${words.extension.newCases(cases, present, planned.held_out)}</p>` : null}
    ${cells && combinations.length ? html`<ul class="quiet name">${combinations.slice(0, MOST_SHOWN).map((/** @type {Record<string, string>} */ variants) => html`<li key=${JSON.stringify(variants)}>${combination(variants)}</li>`)}
      ${combinations.length > MOST_SHOWN ? html`<li>${words.extension.moreCombinations(combinations.length - MOST_SHOWN)}</li>` : null}</ul>` : null}
    ${notes.map((/** @type {string} */ note) => html`<p key=${note} class="quiet">${note}</p>`)}`;
}
