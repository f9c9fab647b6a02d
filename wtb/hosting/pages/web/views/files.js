/** The files that nodes left at a checkpoint, each to be looked at or kept. */
import { get, request, segment } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";
import { Value } from "./value.js";

const MOST_SHOWN = 200_000; // bytes

/** @param {{checkpoint: string}} props */
export function Files({ checkpoint }) {
  const found = useResource((signal) => get(`/executions/${segment(checkpoint)}/files`, {}, signal), [checkpoint]);
  const [chosen, setChosen] = useState(/** @type {string | null} */ (null));
  if (!found.data) return html`<${Waiting} resource=${found} />`;
  if (!found.data.files.length) return null;
  const path = `/executions/${segment(checkpoint)}/file`;
  return html`<h2>${words.execution.files}</h2><div class="scroll" tabindex="0"><table>
      <thead><tr><th>${words.execution.fileColumns.path}</th><th class="num">${words.execution.fileColumns.bytes}</th><th></th></tr></thead>
      <tbody>${found.data.files.map(
        (/** @type {any} */ one) => html`<tr key=${one.path}><td class="name mono">${one.path}</td><td class="num">${count(one.size)}</td>
          <td>${one.size <= MOST_SHOWN ? html`<button class="plain" aria-expanded=${chosen === one.path} onClick=${() => setChosen(chosen === one.path ? null : one.path)}>${words.execution.showFile}<span class="seen-only-by-readers"> ${one.path}</span></button>` : null}
            <a href=${`/api/v1${path}?path=${encodeURIComponent(one.path)}`} download=${one.path.split("/").at(-1)}>${words.execution.keepFile}<span class="seen-only-by-readers"> ${one.path}</span></a></td></tr>`,
      )}</tbody></table></div>
    ${chosen === null ? null : html`<${Content} path=${path} name=${chosen} />`}`;
}

/** A file as text, if it is text. @param {{path: string, name: string}} props */
function Content({ path, name }) {
  const found = useResource(
    async (signal) => {
      const data = await (await request("GET", path, { query: { path: name }, signal })).arrayBuffer();
      try {
        return new TextDecoder("utf-8", { fatal: true }).decode(data);
      } catch {
        return null;
      }
    },
    [path, name],
  );
  if (found.data === undefined) return html`<${Waiting} resource=${found} />`;
  return html`<h3 class="name mono">${name}</h3>${found.data === null ? html`<p class="quiet">${words.execution.noText}</p>` : html`<${Value} value=${found.data} />`}`;
}
