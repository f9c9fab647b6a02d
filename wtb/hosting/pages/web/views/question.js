/** A question to people, with the ways to answer it. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, may, post, segment } from "../lib/api.js";
import { ago, date, visible } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { modeText, words } from "../lib/words.js";
import { changesOf, StateFields } from "./changes.js";
import { Value } from "./value.js";

/** Answer the questions that ask the same as one. @param {any} group @param {Record<string, unknown>} reply */
async function send(group, reply) {
  if (group.questions === 1) return post(`/approvals/${segment(group.id)}/answer`, reply);
  const { rows } = await get("/answers", { action: reply.action, question: group.id, sweep: group.sweep.id, node: group.node });
  return post("/answers", { ...reply, questions: rows.map((/** @type {any} */ question) => question.id) });
}

/** @param {{group: any, onAnswered: () => void}} props a group of questions, which may be one */
export function Question({ group, onAnswered }) {
  const [feedback, setFeedback] = useState("");
  const { perform, problem, isBusy } = useAction(onAnswered);
  const ways = group.options?.length ? [...group.options, "reject"] : ["approve", "reject"];
  const isText = group.kind === "action" && !group.options?.length; // it is answered by what is written
  /** @param {Record<string, unknown>} reply */
  const answer = (reply) => perform(() => send(group, feedback.trim() ? { ...reply, feedback } : reply));
  return html`<section class="question" tabindex="-1" aria-label=${visible(group.question)}>
    <p><b>${group.node}</b> ${group.mode ? words.inbox.asksBy(modeText(group.mode)) : words.inbox.asks} <span class="quiet">(<${Link} to=${`/sweeps/${segment(group.sweep.id)}`}>${group.sweep.name}<//>${group.questions > 1 ? `, ${words.inbox.cells(group.questions)}` : group.case ? `, ${group.case}` : ""}, <span title=${date(group.asked_at)}>${ago(group.asked_at)}</span>)</span></p>
    <pre tabindex="0">${visible(group.question)}</pre>
    ${may("answer")
      ? html`<label class="wide">${isText ? words.inbox.response : words.inbox.feedback}<input value=${feedback} onInput=${(/** @type {any} */ event) => setFeedback(event.target.value)} /></label>
          <div class="bar">${ways.map(
            (way, place) => html`<button key=${way} data-answer class=${place ? "" : "main"} disabled=${isBusy} onClick=${() => answer({ action: way })}>${nameOf(way, group)} ${place < 9 ? html`<kbd aria-hidden="true">${place + 1}</kbd>` : null}</button>`,
          )}</div>
          <${Refused} problem=${problem} />`
      : html`<p class="quiet">${words.inbox.notAllowed}</p>`}
    ${group.questions === 1 ? html`<${Context} group=${group} perform=${perform} isBusy=${isBusy} />` : null}
  </section>`;
}

/** An option is called what the node calls it. @param {string} way @param {any} group */
function nameOf(way, group) {
  if (group.options?.includes(way)) return way;
  return words.inbox.ways[/** @type {"approve"} */ (way)];
}

/** What there is to look at before one answers; of a step also to correct. @param {{group: any, perform: any, isBusy: boolean}} props */
function Context({ group, perform, isBusy }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>${words.inbox.look}</summary>
    ${isOpen ? html`<${Whole} group=${group} perform=${perform} isBusy=${isBusy} />` : null}</details>`;
}

/** @param {{group: any, perform: any, isBusy: boolean}} props */
function Whole({ group, perform, isBusy }) {
  const resource = useResource((signal) => get("/approvals", { ref: group.id }, signal), [group.id]);
  const [typed, setTyped] = useState({});
  const state = resource.data?.context;
  const isOfStep = group.kind === "before" || group.kind === "after";
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  if (state === null || state === undefined) return html`<p class="quiet">${words.inbox.nothingToSee}</p>`;
  if (!isOfStep || !may("answer")) return html`<${Value} value=${state} />`;
  const modify = instead(() => perform(() => post(`/approvals/${segment(group.id)}/answer`, { action: "modify", ...changesOf(typed, state) })));
  return html`<form class="fields" onSubmit=${modify}><${StateFields} state=${state} typed=${typed} onChange=${setTyped} />
    <div class="bar"><button disabled=${isBusy}>${words.inbox.modify}</button></div></form>`;
}
