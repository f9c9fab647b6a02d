/** One output in full, with its case: what was asked, what is expected, what came, and how it is scored. */
import { segment } from "../lib/api.js";
import { html, useEffect, useLayoutEffect, useRef } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { isEmbedded, Link } from "../lib/router.js";
import { CellComments } from "./cell_comments.js";
import { CaseCell, OutputCell } from "./output_cell.js";
import { comparedWith } from "./outputs_table.js";

/** @param {any} props those of the table, isWriting and onWriting of a comment, and onClose */
export function OutputDetails({ sweep, isWriting, onWriting, pages, version, about, titles, metric, against, at, onMove, onKey, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [index, column] = at;
  const loaded = pages.at(index, column);
  const other = comparedWith(pages, against, index, column, about);
  useLayoutEffect(() => {
    const shownDialog = /** @type {HTMLDialogElement} */ (dialog.current);
    shownDialog.showModal();
    return () => shownDialog.close();
  }, []);
  useEffect(() => {
    dialog.current?.scrollTo(0, 0);
    pages.see([index, index], [column, column], pages.rows.indexOf(Number(against)));
  }, [pages, version === 0, index, column]);
  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.metaKey || event.ctrlKey || event.altKey || (event.target instanceof HTMLTextAreaElement)) return;
    const moves = /** @type {Record<string, [number, number]>} */ ({ j: [1, 0], k: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] });
    if (event.key in moves) move(...moves[event.key]);
    else if (!onKey(event.key)) return;
    event.preventDefault();
  }
  /** @param {number} down @param {number} right */
  function move(down, right) {
    onMove(Math.max(0, Math.min((pages.total ?? 1) - 1, index + down)), Math.max(0, Math.min(titles.length - 1, column + right)));
  }
  const execution = isEmbedded ? null : loaded?.cell?.execution;
  const beside = titles.map((/** @type {string} */ _, /** @type {number} */ place) => pages.at(index, place)?.cell?.execution).find((/** @type {string} */ other, /** @type {number} */ place) => other && place !== column && other !== execution);
  return html`<dialog ref=${dialog} class="output-details" aria-label=${`${loaded?.caseRow.case ?? ""} · ${titles[column]}`} onClose=${onClose} onKeyDown=${key}>
    <div class="bar"><button autofocus onClick=${() => move(-1, 0)} disabled=${index === 0}>${words.previous} <kbd aria-hidden="true">k</kbd></button><button onClick=${() => move(1, 0)} disabled=${index + 1 >= (pages.total ?? 0)}>${words.next} <kbd aria-hidden="true">j</kbd></button>
      <span class="quiet" role="status">${index + 1} / ${pages.total}</span><span class="grow"></span><button onClick=${() => dialog.current?.close()}>${words.close} <kbd aria-hidden="true">Esc</kbd></button></div>
    ${loaded
      ? html`<div class="details-parts" key=${`${index}.${column}`}><section><h2>${words.input}</h2><${CaseCell} caseRow=${loaded.caseRow} repeats=${about.repeats} isWhole /></section>
        <section><h2 class="name">${titles[column]}</h2><${OutputCell} cell=${loaded.cell} keys=${about.keys} metrics=${about.metrics} metric=${metric} against=${other?.values} isWhole />
        ${loaded.cell ? html`<${CellComments} key=${`${index}.${column}`} sweep=${sweep} caseRow=${loaded.caseRow} cell=${loaded.cell} isWriting=${isWriting} onWriting=${onWriting} onChange=${(/** @type {any[]} */ comments) => pages.setComments(index, column, comments)} />` : null}
        ${execution ? html`<p><${Link} to=${`/executions/${segment(execution)}`}>${words.execution}<//>${beside ? html` · <${Link} to=${`/executions/${segment(execution)}/diff/${segment(beside)}`}>${words.compare(titles[titles.findIndex((/** @type {string} */ _, /** @type {number} */ place) => pages.at(index, place)?.cell?.execution === beside)])}<//>` : null}</p>` : null}</section></div>`
      : html`<p class="quiet">${words.loading}</p>`}
  </dialog>`;
}
