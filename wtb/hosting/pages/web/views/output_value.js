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

/** A value as text, as it is compared. @param {OutputValue | null | undefined} one */
export function textOf(one) {
  return one ? asText(one.value) : "";
}

/** @param {{one: OutputValue, execution?: string | null, against?: OutputValue | null, isWhole?: boolean}} props isWhole: whether all of it can be asked for here */
export function OutputText({ one, execution = null, against, isWhole = false }) {
  const [isAsked, setAsked] = useState(false);
  const wanted = isWhole && !isEmbedded && (isAsked || against !== undefined);
  const full = useResource((signal) => whole(one, wanted, signal), [one.whole, one.value, wanted]);
  const other = useResource((signal) => whole(against ?? null, wanted, signal), [against?.whole, against?.value, wanted]);
  const shown = wanted ? full.data : one;
  const compared = wanted ? other.data : against;
  if (shown === undefined || (against !== undefined && compared === undefined)) return html`<${Waiting} resource=${full} />`;
  return html`${against !== undefined ? html`<${Difference} one=${textOf(compared)} other=${textOf(shown)} />` : html`<${Shown} one=${shown} execution=${execution} />`}
    ${shown?.cut ? html`<p class="quiet">${words.more(one.bytes)} ${isWhole && !isEmbedded ? html`<button class="plain" onClick=${() => setAsked(true)}>${words.wholeValue}</button>` : null}</p>` : null}`;
}

/** All of a value, where there is more than its page has. @param {OutputValue | null} one @param {boolean} isWanted @param {AbortSignal} signal @returns {Promise<OutputValue | null>} */
async function whole(one, isWanted, signal) {
  if (!one?.whole || !isWanted) return one;
  const text = await (await request("GET", one.whole, { signal })).text();
  return { ...one, cut: false, value: one.kind === "text" ? text : JSON.parse(text) };
}

/** @param {{one: OutputValue | null, execution: string | null}} props */
function Shown({ one, execution }) {
  if (one === null) return null;
  if (typeof one.value !== "string") return isConversation(one.value) ? html`<${Conversation} messages=${one.value} execution=${execution} />` : html`<div class="json"><${JsonTree} value=${one.value} /></div>`;
  if (one.kind === "json" || one.value.length > MOST_DRAWN) return html`<${LongText} text=${one.value} />`;
  return html`<${Markdown} text=${one.value} execution=${execution} />`;
}

/** @param {{text: string}} props */
function LongText({ text }) {
  const [shown, setShown] = useState(MOST_DRAWN);
  return html`<pre dir="auto" tabindex="0">${visible(text.slice(0, shown))}</pre>
    ${text.length > shown ? html`<p class="quiet">${words.beginning(shown)} <button class="plain" onClick=${() => setShown(shown * 4)}>${words.wholeValue}</button></p>` : null}`;
}

/** What is in one of two texts only, marked within the other. @param {{one: string, other: string}} props */
function Difference({ one, other }) {
  const [shown, setShown] = useState(MOST_DRAWN);
  const pieces = useMemo(() => compareTexts(one, other), [one, other]);
  if (pieces.every(({ kind }) => kind === "same")) return html`<p class="quiet">= ${words.same}</p><div class="compared" dir="auto">${visible(other.slice(0, MOST_DRAWN))}</div>`;
  let left = shown;
  const drawn = pieces.slice(0, MOST_PIECES).map(({ kind, text }) => {
    const part = visible(text.slice(0, Math.min(left, kind === "same" ? left : Math.max(left >> 1, 1_000))));
    left = Math.max(0, left - part.length);
    if (kind === "same" || !part) return part;
    const label = html`<span class="seen-only-by-readers"> ${kind === "removed" ? words.removed : words.added} </span>`;
    return kind === "removed" ? html`<del>${label}${part}</del>` : html`<ins>${label}${part}</ins>`;
  });
  return html`<div class="compared" dir="auto">${drawn}</div>${left ? null : html`<p class="quiet">${words.beginning(shown)} <button class="plain" onClick=${() => setShown(shown * 4)}>${words.wholeValue}</button></p>`}`;
}
