/** Factors in a sweep: variants of nodes, and levels of their parameters. */
import { html } from "../lib/html.js";
import { choicesOf, kindOf, parametersOf, typedOf } from "../lib/parameters.js";
import { parameterWords } from "../lib/parameter_words.js";
import { jsonOf, written } from "../lib/written.js";

/** @typedef {import("../lib/levels.js").Varied} Varied */
/** @typedef {import("../lib/parameters.js").Parameter} Parameter */

/** @param {{description: any, node: any, varied: Varied, onChange: (varied: Varied) => void}} props */
export function NodeFactors({ description, node, varied, onChange }) {
  const parameters = parametersOf(description, node.name, node.default);
  const names = node.variants.map((/** @type {any} */ variant) => variant.name);
  const toggle = (/** @type {string} */ name) => onChange({ ...varied, variants: names.filter((/** @type {string} */ other) => (other === name) !== varied.variants.includes(other)) });
  /** @param {string} name @param {string[] | null} typed */
  const level = (name, typed) => {
    const { [name]: _, ...otherLevels } = varied.levels;
    onChange({ ...varied, levels: typed === null ? otherLevels : { ...otherLevels, [name]: typed } });
  };
  return html`<fieldset class="factors"><legend>${node.name}</legend>
    ${names.length > 1 ? html`<div class="bar variants" role="group" aria-label=${parameterWords.variants}>${names.map((/** @type {string} */ name) => html`<label key=${name} class="name"><input type="checkbox" checked=${varied.variants.includes(name)} onChange=${() => toggle(name)} />${name}</label>`)}</div>` : null}
    ${parameters.map((parameter) => html`<${Levels} key=${parameter.name} parameter=${parameter} typed=${varied.levels[parameter.name] ?? null} onChange=${(/** @type {string[] | null} */ typed) => level(parameter.name, typed)} />`)}
    ${parameters.length ? null : html`<span class="quiet">${parameterWords.none}</span>`}
  </fieldset>`;
}

/** @param {{parameter: Parameter, typed: string[] | null, onChange: (typed: string[] | null) => void}} props */
function Levels({ parameter, typed, onChange }) {
  const { name, shown: description, current } = parameter;
  const now = current === undefined ? null : typedOf(current).slice(0, 80);
  const first = current === undefined ? "" : choicesOf(parameter.schema) ? jsonOf(current) : typedOf(current);
  return html`<div class="parameter"><div class="bar"><code>${name}</code><span class="quiet name grow">${parameterWords.by(description, now)}</span>
      <button type="button" class="plain" aria-expanded=${typed !== null} onClick=${() => onChange(typed === null ? [first] : null)}>${typed === null ? parameterWords.vary : parameterWords.keep}<span class="seen-only-by-readers"> ${name}</span></button></div>
    ${typed === null ? null : html`<${Editor} parameter=${parameter} typed=${typed} onChange=${onChange} />`}</div>`;
}

/** @param {{parameter: Parameter, typed: string[], onChange: (typed: string[]) => void}} props */
function Editor({ parameter, typed, onChange }) {
  const { name, schema } = parameter;
  const kind = kindOf(parameter);
  if (kind === "choices") {
    const all = /** @type {unknown[]} */ (choicesOf(schema)).map(jsonOf);
    const toggle = (/** @type {string} */ text) => onChange(all.filter((choice) => (choice === text) !== typed.includes(choice)));
    return html`<div class="bar">${all.map((text) => html`<label key=${text}><input type="checkbox" checked=${typed.includes(text)} onChange=${() => toggle(text)} />${typedOf(written(text))}</label>`)}</div>`;
  }
  if (kind === "lines") {
    const text = typed.join("\n");
    return html`<label class="wide">${parameterWords.levels(name)}<textarea class="mono" spellcheck=${false} rows=${Math.min(8, text.split("\n").length + 1)} value=${text} onInput=${(/** @type {any} */ event) => onChange([event.target.value])}></textarea></label>`;
  }
  const replace = (/** @type {number} */ place, /** @type {string} */ text) => onChange(typed.map((level, number) => (number === place ? text : level)));
  return html`${typed.map((text, place) => html`<div key=${place} class="level"><label class="wide">${parameterWords.level(name, place + 1)}<textarea spellcheck=${false} rows=${Math.min(12, Math.max(3, text.split("\n").length))} value=${text} onInput=${(/** @type {any} */ event) => replace(place, event.target.value)}></textarea></label>
      <button type="button" class="plain" aria-label=${parameterWords.remove(name, place + 1)} onClick=${() => onChange(typed.filter((_, number) => number !== place))}>×</button></div>`)}
    <button type="button" onClick=${() => onChange([...typed, ""])}>${parameterWords.add}<span class="seen-only-by-readers"> ${name}</span></button>`;
}
