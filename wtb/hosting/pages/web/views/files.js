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
  const resource = useResource((signal) => get(`/executions/${segment(checkpoint)}/files`, {}, signal), [checkpoint]);
  const [opened, setOpened] = useState(/** @type {string | null} */ (null));
  if (!resource.data) return html`<${Waiting} resource=${resource} />`;
  if (!resource.data.files.length) return null;
  const path = `/executions/${segment(checkpoint)}/file`;
  return html`<h2>${words.execution.files}</h2><div class="scroll" tabindex="0"><table>
      <thead><tr><th>${words.execution.fileColumns.path}</th><th class="num">${words.execution.fileColumns.bytes}</th><th></th></tr></thead>
      <tbody>${resource.data.files.map(
        (/** @type {any} */ file) => html`<tr key=${file.path}><td class="name mono">${file.path}</td><td class="num">${count(file.size)}</td>
          <td>${file.size <= MOST_SHOWN ? html`<button class="plain" aria-expanded=${opened === file.path} onClick=${() => setOpened(opened === file.path ? null : file.path)}>${words.execution.showFile}<span class="seen-only-by-readers"> ${file.path}</span></button>` : null}
            <a href=${`/api/v1${path}?path=${encodeURIComponent(file.path)}`} download=${file.path.split("/").at(-1)}>${words.execution.keepFile}<span class="seen-only-by-readers"> ${file.path}</span></a></td></tr>`,
      )}</tbody></table></div>
    ${opened === null ? null : html`<${Content} path=${path} name=${opened} />`}`;
}

/** A file as text, if it is text. @param {{path: string, name: string}} props */
function Content({ path, name }) {
  const resource = useResource(
    async (signal) => {
      const encoded = await (await request("GET", path, { query: { path: name }, signal })).arrayBuffer();
      try {
        return new TextDecoder("utf-8", { fatal: true }).decode(encoded);
      } catch {
        return null;
      }
    },
    [path, name],
  );
  if (resource.data === undefined) return html`<${Waiting} resource=${resource} />`;
  return html`<h3 class="name mono">${name}</h3>${resource.data === null ? html`<p class="quiet">${words.execution.noText}</p>` : html`<${Value} value=${resource.data} />`}`;
}
