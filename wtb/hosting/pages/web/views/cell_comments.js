/** What people wrote about a cell, and a form to write more. */
import { instead, Refused, useAction } from "../lib/action.js";
import { identity, may, post, segment } from "../lib/api.js";
import { date, visible } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { isEmbedded } from "../lib/router.js";

const MOST = 4096; // characters of a comment

/** @param {{comments: any[], onDelete?: (number: number) => void}} props */
export function CommentList({ comments, onDelete }) {
  if (!comments.length) return null;
  const isMine = (/** @type {any} */ comment) => identity.value && (identity.value.name === null || identity.value.name === comment.by);
  return html`<ul class="comments" aria-label=${words.comments}>${comments.map((comment) => html`<li key=${comment.number}><span class="quiet">${words.writtenBy(visible(comment.by), date(comment.at))}</span>
    ${onDelete && may("answer") && isMine(comment) ? html`<button class="plain" aria-label=${words.removeComment(visible(comment.by))} onClick=${() => onDelete(comment.number)}>${words.remove}</button>` : null}
    <p dir="auto">${visible(comment.text)}</p></li>`)}</ul>`;
}

/**
 * @param {object} props
 * @param {string} props.sweep
 * @param {any} props.caseRow the case
 * @param {any} props.cell
 * @param {boolean} props.isWriting whether the form is open
 * @param {(isWriting: boolean) => void} props.onWriting
 * @param {(comments: any[]) => void} props.onChange
 */
export function CellComments({ sweep, caseRow, cell, isWriting, onWriting, onChange }) {
  const [text, setText] = useState("");
  const { perform, problem, isBusy } = useAction();
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const comments = cell.comments ?? [];
  const mayWrite = !isEmbedded && may("answer");
  const path = `/sweeps/${segment(sweep)}/comments`;
  useEffect(() => {
    if (isWriting) field.current?.focus();
  }, [isWriting]);
  const save = instead(async () => {
    if (isBusy || !text.trim()) return;
    let comment = /** @type {any} */ (null);
    if (!(await perform(async () => (comment = await post(path, { case: caseRow.case, text, row: cell.row, repeat: caseRow.repeat }))))) return;
    setText("");
    onWriting(false);
    onChange([...comments, comment]);
  });
  /** @param {number} number */
  async function remove(number) {
    if (!isBusy && (await perform(() => post(`${path}/${number}/delete`, {})))) onChange(comments.filter((/** @type {any} */ comment) => comment.number !== number));
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    event.stopPropagation(); // letters are text here
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(event);
    else if (event.key === "Escape") {
      event.preventDefault();
      onWriting(false);
    }
  }
  if (!comments.length && !mayWrite) return null;
  return html`<section class="cell-comments"><h3>${words.comments}</h3><${CommentList} comments=${comments} onDelete=${isEmbedded ? undefined : remove} />
    ${mayWrite && !isWriting ? html`<button onClick=${() => onWriting(true)}>${words.comment} <kbd aria-hidden="true">m</kbd></button>` : null}
    ${mayWrite && isWriting ? html`<form onSubmit=${save}><label>${words.comment} <span class="quiet">${words.commentHint}</span>
      <textarea ref=${field} rows="3" maxlength=${MOST} value=${text} onKeyDown=${key} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label>
      <div class="bar"><button class="main" disabled=${isBusy || !text.trim()}>${words.save}</button><button type="button" onClick=${() => onWriting(false)}>${words.cancel}</button></div></form>` : null}
    <${Refused} problem=${problem} /></section>`;
}
