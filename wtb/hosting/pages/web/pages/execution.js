/** One execution: what can be done with it, its steps on one axis of time, and the state that it came to. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, may, post, segment } from "../lib/api.js";
import { combination, count, duration, figure, usd, visible } from "../lib/format.js";
import { html, useEffect, useMemo, useState } from "../lib/html.js";
import { useChange, useResource, Waiting } from "../lib/resource.js";
import { address, Link, look, useTitle } from "../lib/router.js";
import { asking, words } from "../lib/words.js";
import { ModelCalls } from "../views/calls.js";
import { CaseOfExecution } from "../views/case_of_execution.js";
import { changesOf, StateFields } from "../views/changes.js";
import { Files } from "../views/files.js";
import { Graph } from "../views/graph.js";
import { Lineage } from "../views/lineage.js";
import { Messages } from "../views/messages.js";
import { OtherCells } from "../views/other_cells.js";
import { Question } from "../views/question.js";
import { Status } from "../views/status.js";
import { Breakpoints, Steering } from "../views/steering.js";
import { axisOf, Step } from "../views/step.js";
import { Value } from "../views/value.js";

const SHOWN = 200; // steps that are shown before somebody asks for more
const NEXT = 1_000; // steps that are shown then: some at a time, since each takes a moment to draw
const ENDED = ["completed", "failed", "cancelled", "forked"];
const ASK_AGAIN_MS = 1_000;
const SHORTEST_WAIT_S = 0.001; // without work, of which an axis of time says something

/** @param {{parts: string[]}} props */
export function ExecutionPage({ parts: [ref] }) {
  const path = `/executions/${segment(ref)}`;
  const [isLive, setLive] = useState(false);
  const standing = useResource((signal) => get(`${path}/status`, {}, signal), [ref], isLive ? ASK_AGAIN_MS : null);
  const at = place(standing.data);
  const resource = useResource((signal) => get(path, { calls: true }, signal), [ref]);
  useChange(at, (before) => before && resource.reload());
  const status = standing.data?.execution.status;
  useTitle(resource.data ? titleOf(resource.data.execution) : undefined);
  useEffect(() => setLive(status !== undefined && !ENDED.includes(status)), [status]);
  if (!resource.data || !standing.data) return html`<h1>${words.execution.title} <span class="mono">${ref}</span></h1><${Waiting} resource=${resource} />`;
  const reload = () => {
    standing.reload();
    resource.reload();
  };
  const document = resource.data;
  const { execution, cells, state } = document;
  return html`<${Heading} document=${document} standing=${standing.data} path=${path} reload=${reload} />
    ${standing.error ? html`<p class="notice" role="status">${words.reconnecting}</p>` : null}
    ${execution.error ? html`<div class="problem"><p>${execution.error}</p><pre tabindex="0">${execution.trace}</pre></div>` : null}
    <${CaseOfExecution} execution=${execution} version=${status} />
    <${ModelCalls} path=${document.path} />
    <${Questions} count=${standing.data.questions.length} path=${ref} reload=${reload} />
    <${Cells} cells=${cells} />
    <${OtherCells} execution=${execution} />
    <${Lineage} id=${execution.id} />
    ${document.graph ? html`<${Graph} graph=${document.graph} statuses=${statusesOf(document, standing.data)} />` : null}
    <${Printed} nodes=${standing.data.nodes} />
    <${Messages} sweep=${execution.sweep.id} execution=${execution.id} isLive=${isLive} />
    <div class="halves"><div><${Steps} document=${document} reload=${reload} /></div><div>
    <h2>${words.execution.state}</h2>
    ${status === "paused" && may("steer") ? html`<${Edited} path=${path} state=${state} reload=${reload} />` : html`<${Values} values=${state} />`}
    ${execution.head ? html`<${Files} checkpoint=${execution.head} />` : null}</div></div>`;
}

/** An execution by its case and combination; a single one by its workflow's run. @param {any} execution its heading */
function titleOf({ sweep, case: id, repeat, combinations }) {
  if (sweep.kind === "single") return `${words.execution.title}: ${sweep.name}`;
  const [first, ...further] = combinations;
  const which = first ? combination(first) : "";
  return `${id}${repeat ? `, ${words.execution.repeat(repeat)}` : ""}${which ? ` · ${which}` : ""}${further.length ? ` ${words.execution.more(further.length)}` : ""}`;
}

/** The end of what runs just now has printed. @param {{nodes: any[]}} props */
function Printed({ nodes }) {
  return html`${nodes.filter((node) => node.printed).map((node) => html`<section key=${node.node + node.task} aria-label=${words.execution.prints(node.node)}>
    <h3>${words.execution.prints(node.node)}</h3><pre tabindex="0">${visible(node.printed)}</pre></section>`)}`;
}

/** How each node of the graph stands. @param {any} document @param {any} standing @returns {Record<string, string>} */
function statusesOf({ path }, { next, nodes, questions }) {
  /** @param {any[]} all @param {(part: any) => string} status */
  const by = (all, status) => Object.fromEntries(all.map((part) => [part.node ?? part, status(part)]));
  return { ...by(path, (step) => step.status), ...by(next, () => "next"), ...by(nodes, () => "running"), ...by(questions, () => "waiting") };
}

/** What changes whenever there is more to see of an execution. @param {any} standing */
function place(standing) {
  if (!standing) return "";
  const { execution, checkpoint, nodes, questions } = standing;
  return JSON.stringify([execution.status, checkpoint, nodes.map((/** @type {any} */ node) => [node.node, node.task, node.attempt]), questions]);
}

/** @param {any} props */
function Heading({ document: { execution, path: steps, next, totals, cells }, standing, path, reload }) {
  const { status, reason } = standing.execution;
  const failed = cells.filter((/** @type {any} */ cell) => ["failed", "cancelled", "set_aside"].includes(cell.status)).length;
  const metadata = Object.entries(execution.metadata ?? {});
  const nodes = [...new Set([...next, ...steps.map((/** @type {any} */ step) => step.node)])];
  return html`<div class="head">
      <h1>${titleOf(execution)}</h1><span class="quiet mono">${execution.id}</span><${Status} status=${status} reason=${reason} /><span class="grow"></span>
      <${Steering} kind="execution" path=${path} status=${status} failed=${failed} reload=${reload} />
    </div>
    ${reason ? html`<p class="notice">${visible(reason)}</p>` : null}
    <dl>
      <dt>${words.execution.sweep}</dt><dd><${Link} to=${`/sweeps/${segment(execution.sweep.id)}`}>${execution.sweep.name}<//></dd>
      <dt>${words.execution.case}</dt><dd>${execution.case}${execution.repeat ? `, ${words.execution.repeat(execution.repeat)}` : ""}</dd>
      ${execution.parent ? html`<dt>${words.execution.parent}</dt><dd><${Link} class="mono" to=${`/executions/${segment(execution.parent)}`}>${execution.parent}<//> · <${Link} to=${`/executions/${segment(execution.parent)}/diff/${segment(execution.id)}`}>${words.compare.look}<//></dd>` : null}
      ${execution.children.length ? html`<dt>${words.execution.children}</dt><dd>${execution.children.map((/** @type {string} */ id) => html`<${Link} class="mono" to=${`/executions/${segment(id)}`}>${id}<//> `)}</dd>` : null}
      ${asking(standing.approval) ? html`<dt>${words.execution.approval}</dt><dd>${asking(standing.approval)}</dd>` : null}
      ${standing.spent?.usd || standing.spent?.tokens_in ? html`<dt>${words.execution.spent}</dt><dd aria-live="polite">${words.execution.spentText(usd(standing.spent.usd), count(standing.spent.tokens_in), count(standing.spent.tokens_out))}</dd>` : null}
      ${totals?.node_runs ? html`<dt>${words.execution.took}</dt><dd>${duration(totals.elapsed_s)}, ${words.sweep.nodeRuns(totals.node_runs, 0)}${totals.usd ? `, ${usd(totals.usd)}` : ""}</dd>` : null}
      ${metadata.length ? html`<dt>${words.execution.metadata}</dt><dd>${metadata.map(([name, content]) => `${name}: ${typeof content === "string" ? content : JSON.stringify(content)}`).join(", ")}</dd>` : null}
    </dl>
    ${ENDED.includes(status) ? null : html`<${Breakpoints} path=${path} breakpoints=${standing.breakpoints} nodes=${nodes} reload=${reload} />`}`;
}

/** What an execution waits for, answered here. @param {{count: number, path: string, reload: () => void}} props */
function Questions({ count, path, reload }) {
  const questions = useResource((signal) => (count ? get("/approvals", { ref: path }, signal) : Promise.resolve({ groups: [] })), [path, count]);
  return html`${(questions.data?.groups ?? []).map((/** @type {any} */ group) => html`<${Question} key=${group.id} group=${group} onAnswered=${reload} />`)}`;
}

/** @param {any} props */
function Steps({ document: { execution, path, state, left: lines }, reload }) {
  const [limit, setLimit] = useState(SHOWN);
  const { perform, problem, isBusy } = useAction(reload);
  const withWaiting = address.value.query.waiting === "1";
  const { axis, waited } = useMemo(() => axisOf(path, withWaiting), [path, withWaiting]);
  const parts = [0, ...Array.from({ length: Math.ceil((limit - SHOWN) / NEXT) }, (_, number) => SHOWN + number * NEXT)];
  const origin = { id: execution.id, sweep: execution.sweep, path, state, reload };
  const rollback = lines.find((/** @type {any} */ line) => !line.redone_at); // by the last rollback that can be undone
  const undo = () => perform(() => post(`/executions/${segment(execution.id)}/undo-rollback`));
  return html`<h2>${words.execution.steps}</h2>
    ${path.length ? null : html`<p class="quiet">${words.execution.noSteps}</p>`}
    ${rollback ? html`<p class="notice">${words.execution.left(rollback.nodes.join(", "), rollback.by)} ${may("steer") ? html`<button disabled=${isBusy} onClick=${undo}>${words.steering.undoRollback}</button>` : null}</p>` : null}
    <${Refused} problem=${problem} />
    ${waited >= SHORTEST_WAIT_S ? html`<div class="bar"><label><input type="checkbox" checked=${withWaiting} onChange=${(/** @type {any} */ event) => look({ waiting: event.target.checked ? "1" : null })} />${words.execution.showWaiting(duration(waited))}</label></div>` : null}
    <ol class="steps">${parts.map((from) => html`<${Part} key=${from} path=${path} from=${from} to=${from ? from + NEXT : SHOWN} axis=${axis} origin=${origin} />`)}</ol>
    ${path.length > limit ? html`<button onClick=${() => setLimit(limit + NEXT)}>${words.execution.next(Math.min(NEXT, path.length - limit), path.length - limit)}</button>` : null}`;
}

/** Some of the steps, which are drawn again only where there is more to know. @param {any} props */
function Part({ path, from, to, axis, origin }) {
  return useMemo(
    () => path.slice(from, to).map((/** @type {any} */ step) => html`<${Step} key=${step.node_run} step=${step} axis=${axis} origin=${origin} />`),
    [path, axis],
  );
}

/** The state of an execution that stands still, to be changed before it goes on. @param {{path: string, state: Record<string, unknown>, reload: () => void}} props */
function Edited({ path, state, reload }) {
  const { perform, problem, isBusy } = useAction(reload);
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ ({}));
  return html`<details><summary>${words.steering.edit}</summary>
      <form class="fields" onSubmit=${instead(() => perform(async () => post(`${path}/resume`, changesOf(typed, state))))}>
        <${StateFields} state=${state} typed=${typed} onChange=${setTyped} />
        <${Refused} problem=${problem} />
        <div class="bar"><button disabled=${isBusy || !Object.keys(typed).length}>${words.steering.resumeChanged}</button></div>
      </form></details>
    <${Values} values=${state} />`;
}

/** @param {{cells: any[]}} props */
function Cells({ cells }) {
  if (!cells.length) return null;
  return html`<h2>${words.execution.cells}</h2><div class="scroll" tabindex="0"><table><tbody>${cells.map(
    (cell) => html`<tr><td><${Status} status=${cell.status} /></td><td class="mono">${combination(cell.combination)}</td>
      <td>${Object.entries(cell.scores).map(([name, score]) => `${name} ${figure(/** @type {number} */ (score))}`).join(", ")}</td><td class="bad">${visible(cell.error ?? "")}</td></tr>`,
  )}</tbody></table></div>`;
}

/** @param {{values: Record<string, unknown>}} props */
function Values({ values }) {
  return html`<dl>${Object.entries(values).map(([name, content]) => html`<dt class="mono">${visible(name)}</dt><dd><${Value} value=${content} /></dd>`)}</dl>`;
}
