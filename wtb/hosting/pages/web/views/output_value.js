/** A value of a page of outputs: text as Markdown, messages as a conversation, all else as a tree; the whole on request. */
import { request } from "../lib/api.js";
import { asText, visible } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { useResource, Waiting } from "../lib/resource.js";
import { isEmbedded } from "../lib/router.js";
import { compareTexts } from "../lib/text_diff.js";
import { Conversation, isConversation } from "./conversation.js";
import { JsonTree } from "./json_tree.js";
import { Markdown } from "./markdown.js";

const MOST_PIECES = 4_000; // of two texts
const MOST_DRAWN = 100_000; // characters that are read as Markdown, and shown before somebody asks for more

/** @typedef {{value: any, kind: "text" | "json", cut: boolean, bytes: number, whole: string | null}} OutputValue */

/** A value as text, as it is compared. @param {OutputValue | null | undefined} output */
export const textOf = (output) => (output ? asText(output.value) : "");

/** @param {{output: OutputValue, execution?: string | null, against?: OutputValue | null, isWhole?: boolean}} props isWhole: whether all of it can be asked for here */
export function OutputText({ output, execution = null, against, isWhole = false }) {
  const [isAsked, setAsked] = useState(false);
  const isWanted = isWhole && !isEmbedded && (isAsked || against !== undefined);
  const full = useResource((signal) => whole(output, isWanted, signal), [output.whole, output.value, isWanted]);
  const other = useResource((signal) => whole(against ?? null, isWanted, signal), [against?.whole, against?.value, isWanted]);
  const shownOutput = isWanted ? full.data : output;
  const compared = isWanted ? other.data : against;
  if (shownOutput === undefined || (against !== undefined && compared === undefined)) return html`<${Waiting} resource=${full} />`;
  return html`${against !== undefined ? html`<${Difference} before=${textOf(compared)} other=${textOf(shownOutput)} />` : html`<${Shown} output=${shownOutput} execution=${execution} />`}
    ${shownOutput?.cut ? html`<p class="quiet">${words.more(output.bytes)} ${isWhole && !isEmbedded ? html`<button class="plain" onClick=${() => setAsked(true)}>${words.wholeValue}</button>` : null}</p>` : null}`;
}

/** All of a value, where there is more than its page has. @param {OutputValue | null} output @param {boolean} isWanted @param {AbortSignal} signal @returns {Promise<OutputValue | null>} */
async function whole(output, isWanted, signal) {
  if (!output?.whole || !isWanted) return output;
  const text = await (await request("GET", output.whole, { signal })).text();
  return { ...output, cut: false, value: output.kind === "text" ? text : JSON.parse(text) };
}

/** @param {{output: OutputValue | null, execution: string | null}} props */
function Shown({ output, execution }) {
  if (output === null) return null;
  if (typeof output.value !== "string") return isConversation(output.value) ? html`<${Conversation} messages=${output.value} execution=${execution} />` : html`<div class="json"><${JsonTree} value=${output.value} /></div>`;
  if (output.kind === "json" || output.value.length > MOST_DRAWN) return html`<${LongText} text=${output.value} />`;
  return html`<${Markdown} text=${output.value} execution=${execution} />`;
}

/** @param {{text: string}} props */
function LongText({ text }) {
  const [limit, setLimit] = useState(MOST_DRAWN);
  return html`<pre dir="auto" tabindex="0">${visible(text.slice(0, limit))}</pre>
    ${text.length > limit ? html`<p class="quiet">${words.beginning(limit)} <button class="plain" onClick=${() => setLimit(limit * 4)}>${words.wholeValue}</button></p>` : null}`;
}

/** What is in one of two texts only, marked within the other. @param {{before: string, other: string}} props */
function Difference({ before, other }) {
  const [limit, setLimit] = useState(MOST_DRAWN);
  const pieces = useMemo(() => compareTexts(before, other), [before, other]);
  if (pieces.every(({ kind }) => kind === "same")) return html`<p class="quiet">= ${words.same}</p><div class="compared" dir="auto">${visible(other.slice(0, MOST_DRAWN))}</div>`;
  let room = limit;
  const drawn = pieces.slice(0, MOST_PIECES).map(({ kind, text }) => {
    const part = visible(text.slice(0, Math.min(room, kind === "same" ? room : Math.max(room >> 1, 1_000))));
    room = Math.max(0, room - part.length);
    if (kind === "same" || !part) return part;
    const label = html`<span class="seen-only-by-readers"> ${kind === "removed" ? words.removed : words.added} </span>`;
    return kind === "removed" ? html`<del>${label}${part}</del>` : html`<ins>${label}${part}</ins>`;
  });
  return html`<div class="compared" dir="auto">${drawn}</div>${room ? null : html`<p class="quiet">${words.beginning(limit)} <button class="plain" onClick=${() => setLimit(limit * 4)}>${words.wholeValue}</button></p>`}`;
}
