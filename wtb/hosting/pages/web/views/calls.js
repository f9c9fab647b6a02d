/** What nodes called: models with prompt and reply, and tools with arguments and result. */
import { count, date, duration, readable, usd } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { Conversation, isConversation } from "./conversation.js";

const SHOWN = 20; // calls of models on the page of an execution; its steps have all of them
const OPEN = 3; // of these

/** Calls of models and tools of a step. @param {{step: any}} props */
export function Calls({ step: { calls, invocations } }) {
  if (!calls.length && !invocations.length) return null;
  return html`<h3>${words.execution.calls}</h3>
    ${calls.map((/** @type {any} */ call) => html`<${ModelCall} call=${call} />`)}
    ${invocations.map(
      (/** @type {any} */ invocation) => html`<details><summary>${invocation.tool} · ${words.status[/** @type {"running"} */ (invocation.status)] ?? invocation.status} · ${duration(invocation.duration_s)}${invocation.undone_at ? ` · ${words.execution.undone(date(invocation.undone_at))}` : ""}</summary>
        <h4>${words.execution.arguments}</h4><pre tabindex="0">${readable(invocation.arguments)}</pre><h4>${words.execution.result}</h4><pre tabindex="0">${readable(invocation.error ?? invocation.result)}</pre></details>`,
    )}`;
}

/** The first calls of models of an execution, in its order: what was sent, what came back, and what it cost. @param {{path: any[]}} props */
export function ModelCalls({ path }) {
  const calls = path.flatMap(({ node, calls }) => calls.map((/** @type {any} */ call) => ({ node, call }))).slice(0, SHOWN);
  if (!calls.length) return null;
  return html`<section class="model-calls" aria-label=${words.execution.modelCalls}><h2>${words.execution.modelCalls}</h2>
    ${calls.map(({ node, call }, place) => html`<${ModelCall} call=${call} node=${node} isOpen=${place < OPEN} />`)}</section>`;
}

/** @param {{call: any, node?: string, isOpen?: boolean}} props */
function ModelCall({ call, node, isOpen = false }) {
  return html`<details open=${isOpen}><summary>${node ? `${node}: ` : ""}${call.model ?? call.tool} · ${duration(call.duration_s)} · ${words.execution.tokens(count(call.tokens_in), count(call.tokens_out))} · ${usd(call.usd)}</summary>
    <h4>${words.execution.prompt}</h4><${Text} value=${call.prompt} /><h4>${words.execution.response}</h4><${Text} value=${call.response} /></details>`;
}

/** Messages as a conversation with the settings of the call below, anything else as text. @param {{value: any}} props */
function Text({ value }) {
  const { messages, ...settings } = value && typeof value === "object" ? value : {};
  if (!isConversation(messages)) return html`<pre tabindex="0">${readable(value)}</pre>`;
  return html`<${Conversation} messages=${messages} />${Object.keys(settings).length ? html`<p class="quiet mono">${readable(settings)}</p>` : null}`;
}
