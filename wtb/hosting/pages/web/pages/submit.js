/** A new sweep of a workflow that workers publish: what it would run is planned before anything does. */
import { get, may, post, segment } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useResource, Waiting } from "../lib/resource.js";
import { address, look, navigate } from "../lib/router.js";
import { words } from "../lib/words.js";
import { BuiltInFields, declared } from "../views/built_in.js";
import { CaseFileField } from "../views/case_file.js";
import { PlanView } from "../views/plan.js";

/** What is filled in. @typedef {{sweep: string, cases: import("../views/case_file.js").CasesToSend | null, vary: Record<string, string[]>, evaluate: string[], picked: import("../views/built_in.js").Picked[], others: string, repeats: string, limit: string}} Form */

export function SubmitPage() {
  const published = useResource((signal) => get("/workflows", {}, signal), []);
  const names = (published.data?.workflows ?? []).filter((/** @type {any} */ one) => !one.error).map((/** @type {any} */ one) => one.name);
  const workflow = address.value.query.workflow ?? names[0];
  if (!may("submit")) return html`<h1>${words.submit.title}</h1><p class="quiet">${words.submit.notAllowed}</p>`;
  return html`<div class="head"><h1>${words.submit.title}</h1></div>
    <${Waiting} resource=${published} />
    ${published.data && !names.length ? html`<p class="quiet">${words.submit.none}</p>` : null}
    ${names.length
      ? html`<div class="bar"><label>${words.submit.workflow}
            <select value=${workflow} onChange=${(/** @type {any} */ event) => look({ workflow: event.target.value })}>${names.map((/** @type {string} */ name) => html`<option>${name}</option>`)}</select></label></div>
          <${OfWorkflow} key=${workflow} name=${workflow} evaluators=${published.data.evaluators.filter((/** @type {any} */ one) => !one.error)} builtIn=${published.data.built_in ?? []} />`
      : null}`;
}

/** @typedef {import("../views/built_in.js").BuiltIn} BuiltIn */

/** @param {{name: string, evaluators: any[], builtIn: BuiltIn[]}} props */
function OfWorkflow({ name, evaluators, builtIn }) {
  const found = useResource((signal) => get(`/workflows/${segment(name)}`, {}, signal), [name]);
  const description = found.data?.description;
  if (!description) return html`<${Waiting} resource=${found} />`;
  return html`<${Fields} workflow=${name} description=${description} evaluators=${evaluators} builtIn=${builtIn} />`;
}

/** @param {{workflow: string, description: any, evaluators: any[], builtIn: BuiltIn[]}} props */
function Fields({ workflow, description, evaluators, builtIn }) {
  const several = description.graph.nodes.filter((/** @type {any} */ node) => node.variants.length > 1);
  const varied = several.length ? several : description.graph.nodes.slice(0, 1); // a sweep has a row at least
  const [form, setForm] = useState(/** @type {() => Form} */ (() => ({ sweep: workflow, cases: null, vary: Object.fromEntries(varied.map((/** @type {any} */ node) => [node.name, [node.default]])), evaluate: [], picked: [], others: "", repeats: "1", limit: "" })));
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => setPlan(null), [form]); // what is submitted is what was planned
  /** @param {Partial<Form>} changes */
  const change = (changes) => setForm((before) => ({ ...before, ...changes }));
  /** @param {(keys: any) => Promise<void>} send */
  async function attempt(send) {
    try {
      setProblem("");
      await send(keysOf(workflow, form, builtIn));
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  }
  const look = () => attempt(async (keys) => setPlan(await post("/plans", { keys })));
  const submit = () => attempt(async (keys) => navigate(`/sweeps/${segment((await post("/sweeps", { keys })).sweep)}`));
  return html`<form class="fields" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); (plan ? submit : look)(); }}>
    <label>${words.submit.name}<input value=${form.sweep} required onInput=${(/** @type {any} */ event) => change({ sweep: event.target.value })} /></label>
    ${varied.map((/** @type {any} */ node) => html`<${Choices} title=${node.name} names=${node.variants.map((/** @type {any} */ one) => one.name)} chosen=${form.vary[node.name]} onChange=${(/** @type {string[]} */ chosen) => change({ vary: { ...form.vary, [node.name]: chosen } })} />`)}
    ${evaluators.length ? html`<${Choices} title=${words.submit.evaluators} names=${evaluators.map((one) => one.name)} chosen=${form.evaluate} onChange=${(/** @type {string[]} */ evaluate) => change({ evaluate })} />` : null}
    <${BuiltInFields} builtIn=${builtIn} picked=${form.picked} keys=${Object.keys(description.state.keys)} onChange=${(/** @type {Form["picked"]} */ picked) => change({ picked })} />
    <label>${words.submit.others}<textarea rows="2" class="mono" spellcheck=${false} value=${form.others} onInput=${(/** @type {any} */ event) => change({ others: event.target.value })}></textarea></label>
    <${CaseFileField} workflow=${workflow} example=${exampleOf(description)} onChange=${(/** @type {Form["cases"]} */ cases) => change({ cases })} />
    <div class="bar"><label>${words.submit.repeats}<input type="number" min="1" required value=${form.repeats} onInput=${(/** @type {any} */ event) => change({ repeats: event.target.value })} /></label>
      <label>${words.submit.limit}<input type="number" min="0" step="any" value=${form.limit} onInput=${(/** @type {any} */ event) => change({ limit: event.target.value })} /></label></div>
    ${problem ? html`<pre class="bad" role="alert" tabindex="0">${problem}</pre>` : null}
    ${plan ? html`<${PlanView} plan=${plan} workflow=${description.graph.name} onRepeats=${(/** @type {number} */ repeats) => change({ repeats: String(repeats) })} />` : null}
    <div class="bar"><button class="main">${plan ? words.submit.go(count(plan.cells)) : words.submit.plan}</button></div>
  </form>`;
}

/** @param {{title: string, names: string[], chosen: string[], onChange: (chosen: string[]) => void}} props */
function Choices({ title, names, chosen, onChange }) {
  const toggle = (/** @type {string} */ name) => onChange(names.filter((one) => (one === name) !== chosen.includes(one)));
  return html`<fieldset><legend>${title}</legend>${names.map((name) => html`<label class="name"><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} />${name}</label>`)}</fieldset>`;
}

/** Lines of the form, each a name or JSON, as a sweep file has evaluators. @param {string} text */
function evaluatorsOf(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line, place) => (line.startsWith("{") ? parsed(line, (problem) => words.submit.wrongEvaluator(place + 1, problem)) : line));
}

/** @param {string} text @param {(problem: string) => string} explain @returns {any} */
function parsed(text, explain) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(explain(/** @type {Error} */ (error).message));
  }
}

/** The form by the keys of a sweep file. @param {string} workflow @param {Form} form @param {BuiltIn[]} builtIn */
function keysOf(workflow, form, builtIn) {
  if (!form.cases) throw new Error(words.submit.noCases);
  const { cases, columns } = form.cases;
  const evaluate = [...form.evaluate, ...declared(builtIn, form.picked), ...evaluatorsOf(form.others)];
  const vary = Object.fromEntries(Object.entries(form.vary).filter(([, chosen]) => chosen.length));
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

/** A case with what the input of the workflow asks for. @param {any} description */
function exampleOf({ input, state }) {
  const keys = Object.entries((input ?? state).keys);
  const values = keys.map(([name, /** @type {any} */ key]) => [name, EXAMPLES[key.type.schema?.type] ?? null]);
  return JSON.stringify({ id: "1", input: Object.fromEntries(values) });
}
