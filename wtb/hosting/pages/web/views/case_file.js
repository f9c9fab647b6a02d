/** A file of cases: dropped, chosen or pasted, read by the server as a sweep would read it, with the key of each column to choose. */
import { post } from "../lib/api.js";
import { caseWords } from "../lib/case_words.js";
import { readable } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ENDINGS, nameOf, problemOf, upload } from "../lib/upload.js";
import { words } from "../lib/words.js";

const PAUSE_MS = 400; // after which what is typed is read

/** What a request that submits or extends a sweep takes of it, beside how many cases can be read and the first of them. @typedef {{cases: import("../lib/upload.js").Upload, columns?: Record<string, string | string[]>, count: number, first: {id: string, input: Record<string, unknown>, expected: unknown}}} CasesToSend */
/** As the server read it: see the operation `cases`. @typedef {{name: string, cases: number, blank_rows: number, columns: Column[] | null, mapping: Record<string, string | string[]>, keys: string[], takes_any: boolean, problems: string[], preview: {id: string, input: Record<string, unknown>, expected: unknown}[]}} Read */
/** What the field holds. @typedef {{text: string, sent: import("../lib/upload.js").Upload | null, read: Read | null, problem: string, isBusy: boolean}} State */
/** @typedef {{heading: string, key: string | null, offered: boolean, examples: string[]}} Column */

const NOTHING = /** @type {State} */ ({ text: "", sent: null, read: null, problem: "", isBusy: false });

/**
 * @param {object} props
 * @param {string} [props.workflow] its published name, whose inputs the cases are
 * @param {string} [props.sweep] to which they are to be added, instead of a workflow
 * @param {string} [props.title] of the group
 * @param {string} [props.example] a case in JSON, which a button fills in
 * @param {(cases: CasesToSend | null) => void} props.onChange called with null while there are none that can be read
 */
export function CaseFileField({ workflow, sweep, title = caseWords.title, example = "", onChange }) {
  const [{ text, sent, read, problem, isBusy }, setState] = useState(NOTHING);
  /** @param {Partial<State>} changes */
  const change = (changes) => setState((before) => ({ ...before, ...changes }));
  const latest = useRef(/** @type {AbortController | null} */ (null)); // an earlier file does not overtake a later one
  const timer = useRef(0);
  const isFile = sent !== null && text === "";

  /** @param {() => Promise<import("../lib/upload.js").Upload>} send @param {Record<string, string | string[]>} [columns] */
  async function take(send, columns) {
    latest.current?.abort();
    const mine = (latest.current = new AbortController());
    change({ problem: "", isBusy: true, ...(columns ? {} : { read: null }) });
    onChange(null);
    try {
      const cases = await send();
      const answer = /** @type {Read} */ (await post("/case-files", { cases, ...(sweep ? { sweep } : { workflow }), ...(columns ? { columns } : {}) }, mine.signal));
      if (mine !== latest.current) return;
      change({ sent: cases, read: answer });
      if (!answer.problems.length) onChange({ cases, ...(answer.columns && Object.keys(answer.mapping).length ? { columns: answer.mapping } : {}), count: answer.cases, first: answer.preview[0] });
    } catch (error) {
      if (mine === latest.current) change({ problem: error instanceof TypeError ? words.offline : /** @type {Error} */ (error).message });
    }
    if (mine === latest.current) change({ isBusy: false });
  }
  function clear() {
    latest.current?.abort();
    latest.current = null;
    clearTimeout(timer.current);
    setState(NOTHING);
    onChange(null);
  }
  /** @param {FileList | null | undefined} files */
  function takeFile(files) {
    if (!files?.length) return;
    const [file] = files;
    clear();
    const wrong = files.length > 1 ? caseWords.oneFile : problemOf(file);
    if (wrong) change({ problem: wrong });
    else take(() => upload(file.name, file));
  }
  /** @param {string} typed @param {number} [pause] */
  function type(typed, pause = PAUSE_MS) {
    clear();
    change({ text: typed });
    if (typed.trim()) timer.current = window.setTimeout(() => take(() => upload(nameOf(typed), new Blob([typed]))), pause);
  }
  useEffect(() => () => { clearTimeout(timer.current); latest.current?.abort(); }, []);
  useEffect(stopBrowserFromOpening, []);
  const [isOver, setOver] = useState(false);
  /** @param {DragEvent} event */
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    takeFile(event.dataTransfer?.files);
  };
  return html`<fieldset class="case-file${isOver ? " over" : ""}" onDragOver=${(/** @type {Event} */ event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <legend>${title}</legend>
    <div class="bar"><label class="grow">${caseWords.drop}
      <input type="file" aria-label=${caseWords.choose} accept=${ENDINGS.join(",")} onChange=${(/** @type {any} */ event) => { takeFile(event.target.files); event.target.value = ""; }} /></label>
      ${isFile || problem ? html`<button type="button" onClick=${clear}>${caseWords.remove}</button>` : null}</div>
    ${isFile ? null : html`<label class="wide">${caseWords.text}<textarea rows="6" class="mono" spellcheck=${false} value=${text} placeholder=${example} onInput=${(/** @type {any} */ event) => type(event.target.value)}></textarea></label>`}
    ${example && !text && !isFile ? html`<button type="button" class="plain" onClick=${() => type(example, 0)}>${caseWords.example}</button>` : null}
    <div role="status" class="wide">${isBusy ? caseWords.reading : read ? html`<b class="name">${read.name}</b>: ${caseWords.read(read.cases, read.blank_rows)}` : null}</div>
    ${problem ? html`<p class="bad refused wide" role="alert">${problem}</p>` : null}
    ${read?.problems.length ? html`<ul class="bad refused wide" role="alert">${read.problems.map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul>` : null}
    ${read?.columns && sent ? html`<${Columns} read=${read} onChange=${(/** @type {Record<string, string | string[]>} */ columns) => take(async () => sent, columns)} />` : null}
    ${read?.preview.length ? html`<${Preview} read=${read} />` : null}
  </fieldset>`;
}

/** A file that is dropped beside the field would replace the page. */
function stopBrowserFromOpening() {
  const stop = (/** @type {Event} */ event) => event.preventDefault();
  for (const kind of ["dragover", "drop"]) addEventListener(kind, stop);
  return () => { for (const kind of ["dragover", "drop"]) removeEventListener(kind, stop); };
}

/** @param {{read: Read, onChange: (columns: Record<string, string | string[]>) => void}} props */
function Columns({ read, onChange }) {
  const columns = /** @type {Column[]} */ (read.columns);
  /** The mapping once a column is another key: a key that another column was is free then. @param {Column} changed @param {string} key */
  function mapped(changed, key) {
    const ignored = /** @type {string[]} */ ([]);
    const mapping = /** @type {Record<string, string | string[]>} */ ({});
    for (const column of columns) {
      const of = column === changed ? key : column.key === key ? "ignore" : column.key;
      if (of === "ignore") ignored.push(column.heading);
      else if (of !== null) mapping[of] = column.heading;
    }
    return ignored.length ? { ...mapping, ignore: [...new Set(ignored)] } : mapping;
  }
  return html`<div class="scroll wide" tabindex="0"><table><caption>${caseWords.columns}</caption><thead><tr><th>${caseWords.heading}</th><th>${caseWords.readAs}</th><th>${caseWords.values}</th></tr></thead>
    <tbody>${columns.map((column, place) => html`<tr key=${place}><td class="name">${column.heading}</td>
      <td>${column.key === null ? null : html`<select aria-label=${caseWords.keyOf(column.heading)} value=${column.key} onChange=${(/** @type {any} */ event) => onChange(mapped(column, event.target.value))}>
        ${choicesOf(read, column).map((key) => html`<option value=${key}>${key === "ignore" ? caseWords.ignore : key}</option>`)}</select>${column.offered ? html` <span class="tag">${caseWords.offered}</span>` : null}`}</td>
      <td class="name">${column.examples.filter(Boolean).map((text) => text.slice(0, 80)).join(" · ")}</td></tr>`)}</tbody></table></div>`;
}

/** @param {Read} read @param {Column} column */
function choicesOf(read, column) {
  const ownHeading = read.takes_any ? [column.heading] : [];
  return [...new Set([...read.keys, .../** @type {string[]} */ ([column.key]), ...ownHeading, "ignore"])];
}

/** @param {{read: Read}} props */
function Preview({ read }) {
  return html`<details class="wide" open><summary>${caseWords.first}</summary><div class="scroll" tabindex="0"><table><thead><tr><th>id</th><th>${caseWords.input}</th><th>${caseWords.expected}</th></tr></thead>
    <tbody>${read.preview.map((caseRow) => html`<tr key=${caseRow.id}><td class="name mono">${caseRow.id}</td><td class="name">${Object.entries(caseRow.input).map(([key, content]) => html`<div key=${key}><code>${key}</code> ${preview(content)}</div>`)}</td>
      <td class="name">${caseRow.expected === null ? "" : preview(caseRow.expected)}</td></tr>`)}</tbody></table></div></details>`;
}

/** @param {unknown} content */
function preview(content) {
  const text = readable(content);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
