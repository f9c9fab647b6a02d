/** Messages of a state as a conversation: who said what, and which tools were called. */
import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { JsonTree } from "./json_tree.js";
import { Markdown } from "./markdown.js";

/** Whether a value is a list of messages, as providers and LangChain write them. @param {unknown} content */
export function isConversation(content) {
  return Array.isArray(content) && content.length > 0 && content.every((message) => typeof message === "object" && message !== null && typeof roleOf(message) === "string" && "content" in message);
}

/** @param {any} message */
const roleOf = (message) => message.role ?? message.type;

/** @param {{messages: any[], execution?: string | null}} props */
export function Conversation({ messages, execution = null }) {
  return html`<ol class="conversation">${messages.map((message) => {
    const role = roleOf(message);
    const calls = message.tool_calls ?? [];
    return html`<li class=${`from-${/^(user|human)$/.test(role) ? "user" : /^(assistant|ai)$/.test(role) ? "assistant" : "other"}`}>
      <span class="role">${visible(words.roles[role] ?? role)}${message.name ? ` · ${visible(String(message.name))}` : ""}</span>
      <${Content} content=${message.content} execution=${execution} />
      ${Array.isArray(calls) ? calls.map((/** @type {any} */ call) => html`<div class="call"><code>${words.calls(visible(String(call?.function?.name ?? call?.name ?? "")))}</code><${JsonTree} value=${call?.function?.arguments ?? call?.args ?? null} depth=${2} /></div>`) : null}
    </li>`;
  })}</ol>`;
}

/** @param {{content: any, execution: string | null}} props */
function Content({ content, execution }) {
  if (typeof content === "string") return content ? html`<${Markdown} text=${content} execution=${execution} />` : null;
  if (!Array.isArray(content)) return content === null ? null : html`<${JsonTree} value=${content} />`;
  return content.map((part) => (typeof part?.text === "string" ? html`<${Markdown} text=${part.text} execution=${execution} />` : html`<${JsonTree} value=${part} depth=${1} />`));
}
