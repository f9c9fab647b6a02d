/** What waits for people: each question once, answered where it stands. */
import { get, segment } from "../lib/api.js";
import { html, useRef, useState } from "../lib/html.js";
import { useKeydown } from "../lib/keys.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";
import { Empty } from "../views/empty.js";
import { Question } from "../views/question.js";

const ASK_AGAIN_MS = 3_000;

export function InboxPage() {
  const resource = useResource((signal) => get("/approvals", {}, signal), [], ASK_AGAIN_MS);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const [answered, setAnswered] = useState(/** @type {any} */ (null));
  useKeys(list);
  const groups = resource.data?.groups ?? [];
  return html`<div class="head"><h1>${words.inbox.title}</h1></div>
    <${Waiting} resource=${resource} />
    ${answered ? html`<p class="notice" role="status">${words.inbox.answered(answered.question)} <${Link} to=${`/sweeps/${segment(answered.sweep.id)}`}>${words.inbox.outcome(answered.sweep.name)}<//></p>` : null}
    ${resource.data && !groups.length ? html`<${Empty} text=${words.inbox.empty} help="people"><${Link} class="button" to="/">${words.error.toSweeps}<//><//>` : null}
    ${groups.length ? html`<p class="quiet">${words.inbox.keys}</p>` : null}
    <div ref=${list}>${groups.map((/** @type {any} */ group) => html`<${Question} key=${group.id} group=${group} onAnswered=${() => (setAnswered(group), resource.reload())} />`)}</div>
    ${resource.data?.more_groups ? html`<p class="quiet">${words.inbox.more}</p>` : null}`;
}

/**
 * J and K go from question to question; a digit goes to an answer of the one that has the focus, or of the first, and
 * Enter gives it: two keys, of which the first alone decides nothing. @param {{current: HTMLElement | null}} list
 */
const useKeys = (list) => useKeydown("input, textarea, select, dialog", (event) => {
  const questions = /** @type {HTMLElement[]} */ ([...(list.current?.children ?? [])]);
  const at = questions.findIndex((question) => question.contains(document.activeElement));
  if (event.key === "j") questions[Math.min(at + 1, questions.length - 1)]?.focus();
  else if (event.key === "k") questions[Math.max(at - 1, 0)]?.focus();
  else if (/^[1-9]$/.test(event.key)) /** @type {HTMLElement | undefined} */ (questions[Math.max(at, 0)]?.querySelectorAll("[data-answer]")[Number(event.key) - 1])?.focus();
});
