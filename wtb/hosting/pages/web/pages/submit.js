/** A new sweep of a workflow that workers publish: what varies, the cases and the evaluators. It is planned as it is filled in. */
import { instead, Refused, useAction } from "../lib/action.js";
import { get, getWritten, may, post, segment } from "../lib/api.js";
import { evaluatorWords } from "../lib/evaluator_words.js";
import { html, useEffect, useState } from "../lib/html.js";
import { factorsOf, nothingVaried, varyOf } from "../lib/levels.js";
import { parameterWords } from "../lib/parameter_words.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, look, navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { written } from "../lib/written.js";
import { CaseFileField } from "../views/case_file.js";
import { declared, EvaluatorFields } from "../views/evaluator_fields.js";
import { NodeFactors } from "../views/node_factors.js";
import { PlanView } from "../views/plan.js";

const PAUSE_MS = 500; // after which what is filled in is planned

/** @typedef {import("../views/evaluator_fields.js").Listed} Listed */
/** What is filled in. @typedef {{sweep: string, cases: import("../views/case_file.js").CasesToSend | null, vary: import("../lib/levels.js").Vary, picked: import("../views/evaluator_fields.js").Picked[], others: string, repeats: string, limit: string}} Form */

export function SubmitPage() {
  const published = useResource((signal) => get("/workflows", {}, signal), []);
  const names = (published.data?.workflows ?? []).filter((/** @type {any} */ workflowRow) => !workflowRow.error).map((/** @type {any} */ workflowRow) => workflowRow.name);
  const workflow = address.value.query.workflow ?? names[0];
  if (!may("submit")) return html`<h1>${words.submit.title}</h1><p class="quiet">${words.submit.notAllowed}</p>`;
  return html`<div class="head"><h1>${words.submit.title}</h1></div>
    <${Waiting} resource=${published} />
    ${published.data && !names.length ? html`<p class="quiet">${words.submit.none}</p>` : null}
    ${names.length
      ? html`<div class="bar"><label>${words.submit.workflow}
            <select value=${workflow} onChange=${(/** @type {any} */ event) => look({ workflow: event.target.value })}>${names.map((/** @type {string} */ name) => html`<option>${name}</option>`)}</select></label></div>
          <${OfWorkflow} key=${workflow} name=${workflow} own=${published.data.evaluators.filter((/** @type {any} */ evaluator) => evaluator.options)} builtIn=${published.data.built_in ?? []} />`
      : null}`;
}

/** @param {{name: string, own: Listed[], builtIn: Listed[]}} props */
function OfWorkflow({ name, own, builtIn }) {
  const resource = useResource((signal) => getWritten(`/workflows/${segment(name)}`, signal), [name]);
  const description = resource.data?.description;
  if (!description) return html`<${Waiting} resource=${resource} />`;
  return html`<${Fields} workflow=${name} description=${description} own=${own} builtIn=${builtIn} />`;
}

/** @param {{workflow: string, description: any, own: Listed[], builtIn: Listed[]}} props */
function Fields({ workflow, description, own, builtIn }) {
  const [form, setForm] = useState(/** @type {() => Form} */ (() => ({ sweep: workflow, cases: null, vary: nothingVaried(description), picked: [], others: "", repeats: "1", limit: "" })));
  const { plan, problem, isPlanning } = usePlan(() => keysOf(workflow, description, form, [...own, ...builtIn]), form);
  const { perform, problem: refused, isBusy } = useAction();
  /** @param {Partial<Form>} changes */
  const change = (changes) => setForm((before) => ({ ...before, ...changes }));
  const submit = () => perform(async () => navigate(`/sweeps/${segment((await post("/sweeps", { keys: plan.keys })).sweep)}`));
  return html`<form class="fields" onSubmit=${instead(() => plan && submit())}>
    <label>${words.submit.name}<input value=${form.sweep} required onInput=${(/** @type {any} */ event) => change({ sweep: event.target.value })} /></label>
    <${CaseFileField} workflow=${workflow} example=${exampleOf(description)} onChange=${(/** @type {Form["cases"]} */ cases) => change({ cases })} />
    <section class="part"><h2>${parameterWords.title}</h2><p class="quiet">${parameterWords.legend}</p>
      ${description.graph.nodes.map((/** @type {any} */ node) => html`<${NodeFactors} key=${node.name} description=${description} node=${node} varied=${form.vary[node.name]} onChange=${(/** @type {import("../lib/levels.js").Varied} */ varied) => setForm((before) => ({ ...before, vary: { ...before.vary, [node.name]: varied } }))} />`)}
      <p role="status">${combinationsOf(description, form)}</p></section>
    <section class="part"><h2>${evaluatorWords.title}</h2>
      <${EvaluatorFields} builtIn=${builtIn} own=${own} picked=${form.picked} state=${description.state.keys} example=${form.cases?.first ?? null} onChange=${(/** @type {Form["picked"]} */ picked) => change({ picked })} />
      <details><summary>${words.submit.more}</summary><label class="wide">${evaluatorWords.others}<textarea rows="2" class="mono" spellcheck=${false} value=${form.others} onInput=${(/** @type {any} */ event) => change({ others: event.target.value })}></textarea></label></details></section>
    <div class="bar"><label>${words.submit.repeats}<input type="number" min="1" required value=${form.repeats} onInput=${(/** @type {any} */ event) => change({ repeats: event.target.value })} /></label>
      <label>${words.submit.limit}<input type="number" min="0" step="any" value=${form.limit} onInput=${(/** @type {any} */ event) => change({ limit: event.target.value })} /></label></div>
    ${problem ? html`<pre class="bad" role="alert" tabindex="0">${problem}</pre>` : null}
    <p role="status" class="quiet">${isPlanning ? words.submit.planning : form.cases ? "" : words.submit.noCases}</p>
    ${plan ? html`<${PlanView} plan=${plan} workflow=${description.graph.name} onRepeats=${(/** @type {number} */ repeats) => change({ repeats: String(repeats) })} />` : null}
    <${Refused} problem=${refused} />
    <div class="bar"><button class="main" disabled=${!plan || isBusy}>${plan ? words.submit.go(plan.cells) : words.submit.submit}</button></div>
  </form>`;
}

/** The plan of what is filled in, with the keys that were planned; none while it cannot be planned. @param {() => any} keys which throws what is wrong; null while something is missing @param {Form} form */
function usePlan(keys, form) {
  const [state, setState] = useState(/** @type {{plan: any, problem: string, isPlanning: boolean}} */ ({ plan: null, problem: "", isPlanning: false }));
  useEffect(() => {
    const stop = new AbortController();
    setState({ plan: null, problem: "", isPlanning: false });
    const timer = setTimeout(async () => {
      try {
        const definition = keys();
        if (!definition) return;
        setState({ plan: null, problem: "", isPlanning: true });
        const plan = await post("/plans", { keys: definition }, stop.signal);
        if (!stop.signal.aborted) setState({ plan: { ...plan, keys: definition }, problem: "", isPlanning: false });
      } catch (error) {
        const problem = error instanceof TypeError ? words.offline : /** @type {Error} */ (error).message;
        if (!stop.signal.aborted) setState({ plan: null, problem, isPlanning: false });
      }
    }, PAUSE_MS);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [form]);
  return state;
}

/** @param {any} description @param {Form} form */
function combinationsOf(description, form) {
  try {
    const factors = factorsOf(description, form.vary);
    return parameterWords.combinations(factors, factors.reduce((product, size) => product * size, 1));
  } catch {
    return ""; // which the plan says
  }
}

/** Lines of the form, each a name or JSON, as a sweep file has evaluators. @param {string} text */
function evaluatorsOf(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line, place) => {
    if (!line.startsWith("{")) return line;
    try {
      return written(line);
    } catch (error) {
      throw new Error(words.submit.wrongEvaluator(place + 1, /** @type {Error} */ (error).message));
    }
  });
}

/** The form by the keys of a sweep file; null without cases. @param {string} workflow @param {any} description @param {Form} form @param {Listed[]} listed */
function keysOf(workflow, description, form, listed) {
  const vary = varyOf(description, form.vary);
  const evaluate = [...declared(listed, form.picked), ...evaluatorsOf(form.others)];
  if (!form.cases) return null;
  const { cases, columns } = form.cases;
  return {
    sweep: form.sweep,
    workflow,
    cases,
    ...(columns ? { columns } : {}),
    repeats: Number(form.repeats),
    vary,
    ...(evaluate.length ? { evaluate } : {}),
    ...(form.limit ? { limits: { usd: Number(form.limit) } } : {}),
  };
}

const EXAMPLES = /** @type {Record<string, unknown>} */ ({ string: "…", integer: 1, number: 1, boolean: true, array: [], object: {} });

/** A case with the keys that the workflow takes, and none that its nodes write. @param {any} description */
function exampleOf({ input, state, inputs }) {
  const { keys } = input ?? state;
  const values = (inputs ?? Object.keys(keys)).map((/** @type {string} */ name) => [name, EXAMPLES[keys[name]?.type.schema?.type] ?? null]);
  return JSON.stringify({ id: "1", input: Object.fromEntries(values) });
}
