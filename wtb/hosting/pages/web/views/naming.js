/** A name and a note for the checkpoint after a step, by which people, rollbacks and forks find it again. */
import { instead, Refused, useAction } from "../lib/action.js";
import { post, segment } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

/** @param {{step: any, origin: import("./step_actions.js").Origin}} props */
export function Naming({ step, origin }) {
  const [name, setName] = useState(step.name ?? "");
  const [note, setNote] = useState(step.note ?? "");
  const { perform, problem, isBusy } = useAction(origin.reload);
  const submit = instead(() => perform(() => post(`/executions/${segment(origin.id)}/checkpoints`, { name, at: step.checkpoint, ...(note.trim() ? { note } : {}) })));
  return html`<details class="naming"><summary>${step.name ? words.naming.rename : words.naming.title}</summary>
    <form class="fields" onSubmit=${submit}>
      <p class="quiet">${words.naming.legend}</p>
      <label>${words.naming.name}<input required maxlength="200" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
      <label>${words.naming.note}<input value=${note} onInput=${(/** @type {any} */ event) => setNote(event.target.value)} /></label>
      <${Refused} problem=${problem} />
      <div class="bar"><button disabled=${isBusy}>${words.naming.save}</button></div>
    </form></details>`;
}
