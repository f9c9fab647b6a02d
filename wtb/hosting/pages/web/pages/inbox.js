/** What waits for people. */
import { get, may, segment } from "../lib/api.js";
import { ago, date } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { words } from "../lib/words.js";

const ASK_AGAIN_MS = 3_000;

export function InboxPage() {
  const resource = useResource((signal) => get("/approvals", {}, signal), [], ASK_AGAIN_MS);
  const groups = resource.data?.groups ?? [];
  return html`<div class="head"><h1>${words.inbox.title}</h1></div>
    <${Waiting} resource=${resource} />
    ${resource.data && !groups.length ? html`<p class="quiet">${words.inbox.empty}</p>` : null}
    ${groups.map(
      (/** @type {any} */ one) => html`<section key=${one.id} class="notice">
        <p><b>${one.node}</b> ${words.inbox.asks} <span class="quiet">(<${Link} to=${`/sweeps/${segment(one.sweep.id)}`}>${one.sweep.name}<//>${one.questions > 1 ? `, ${words.inbox.cells(one.questions)}` : one.case ? `, ${one.case}` : ""}, <span title=${date(one.asked_at)}>${ago(one.asked_at)}</span>)</span></p>
        <pre tabindex="0">${one.question}</pre>
        ${may("answer") ? html`<p class="quiet">${words.inbox.answerWith} <code>wtb answer ${one.id} ${one.options?.join(" | ") ?? "approve | reject"}</code></p>` : null}
      </section>`,
    )}`;
}
