/** Effects: each factor by itself, factors that act together, and any two of the best rows. */
import { combination, difference, probability } from "../lib/format.js";
import { html } from "../lib/html.js";
import { words } from "../lib/words.js";
import { differing } from "./heat_map.js";
import { Difference, Interval, scaleOf } from "./intervals.js";

const ROUNDED = 1e-9; // of the largest effect: what adding numbers leaves where there is none

/** @param {{attribution: any}} props an attribution document */
export function Effects({ attribution }) {
  if (!attribution) return html`<p class="quiet">${words.effects.unknown}</p>`;
  const simple = attribution.simple ?? [];
  const levels = attribution.nodes.flatMap((/** @type {any} */ node) => node.variants);
  const strongest = attribution.interactions.map((/** @type {any} */ pair) => pair.strongest);
  const estimates = new Map([...levels, ...strongest, ...simple].map((/** @type {any} */ effect) => [effect, { mean: effect.effect, ci: effect.ci }]));
  const scale = scaleOf([...estimates.values(), { mean: 0 }]);
  const least = ROUNDED * Math.max(...scale.map(Math.abs));
  const effectText = (/** @type {number} */ effect) => difference(Math.abs(effect) < least ? 0 : effect);
  return html`<section><h2>${words.effects.factors}</h2>
    ${attribution.sentences.map((/** @type {string} */ text) => html`<p>${text}</p>`)}
    ${attribution.nodes.length
      ? html`<div class="scroll" tabindex="0"><table><thead><tr><th>${words.effects.factor}</th><th class="num">${words.effects.share}</th><th class="num">${words.sweep.columns.p}</th><th>${words.effects.level}</th><th class="num">${words.effects.effect}</th><th>${words.sweep.columns.ci}</th></tr></thead>
          <tbody>${attribution.nodes.map((/** @type {any} */ node) =>
            node.variants.map(
              (/** @type {any} */ variant, /** @type {number} */ place) => html`<tr><td class="name">${place ? "" : html`<${Factor} effect=${node} />`}</td><td class="num">${place ? "" : share(node)}</td><td class="num">${place ? "" : probability(node.p_adjusted)}</td>
                <td class="name">${variant.variant}</td><td class="num">${effectText(variant.effect)}</td><td><${Interval} estimate=${estimates.get(variant)} scale=${scale} baseline=${0} /></td></tr>`,
            ),
          )}</tbody></table></div>
          <p class="quiet">${words.effects.legend}</p>`
      : null}
    ${attribution.interactions.length
      ? html`<h2>${words.effects.together}</h2><div class="scroll" tabindex="0"><table><thead><tr><th>${words.effects.factorsOf}</th><th class="num">${words.effects.share}</th><th class="num">${words.sweep.columns.p}</th><th>${words.effects.strongest}</th><th>${words.sweep.columns.ci}</th></tr></thead>
          <tbody>${attribution.interactions.map(
            (/** @type {any} */ pair) => html`<tr><td class="name">${(pair.factors ?? pair.nodes).join(" × ")}</td><td class="num">${share(pair)}</td><td class="num">${probability(pair.p_adjusted)}</td><td class="name">${pair.strongest.variants.join(" + ")} ${effectText(pair.strongest.effect)}</td><td><${Interval} estimate=${estimates.get(pair.strongest)} scale=${scale} baseline=${0} /></td></tr>`,
          )}</tbody></table></div>`
      : null}
    ${simple.length
      ? html`<h2>${words.effects.simple}</h2><p class="quiet">${words.effects.simpleLegend}</p><div class="scroll" tabindex="0"><table><thead><tr><th>${words.effects.factor}</th><th>${words.effects.change}</th><th>${words.effects.beside}</th><th class="num">${words.effects.effect}</th><th>${words.sweep.columns.ci}</th><th class="num">${words.sweep.columns.p}</th></tr></thead>
          <tbody>${simple.map(
            (/** @type {any} */ effect) => html`<tr><td class="name">${effect.factor ?? effect.node}</td><td class="name">${effect.over} → ${effect.variant}</td><td class="name">${Object.entries(effect.beside).map((level) => level.join("=")).join(" ")}</td><td class="num">${effectText(effect.effect)}</td><td><${Interval} estimate=${estimates.get(effect)} scale=${scale} baseline=${0} /></td><td class="num">${effect.p_adjusted === null ? words.unknown : probability(effect.p_adjusted)}</td></tr>`,
          )}</tbody></table></div>`
      : null}
  </section>`;
}

/** The name of a factor, and of a nested one where it is. @param {{effect: any}} props */
function Factor({ effect }) {
  const name = effect.factor ?? effect.node;
  return effect.within ? html`${name}<br /><small class="quiet" title=${effect.within.join(", ")}>${words.effects.within(effect.node, effect.within)}</small>` : name;
}

/** @param {{share: number}} effect */
function share(effect) {
  const percent = 100 * effect.share;
  return percent > 0 && percent < 0.5 ? "<1%" : `${Math.round(percent)}%`;
}

/** Row less column, for any two of the best. @param {{comparisons: any, matrix: any, better: string}} props */
export function Pairs({ comparisons, matrix, better }) {
  if (!comparisons || comparisons.rows.length < 2) return null;
  const nodes = differing(matrix.rows.map((/** @type {any} */ row) => row.combination));
  const pairs = new Map(comparisons.pairs.map((/** @type {any} */ pair) => [`${pair.a} ${pair.b}`, pair]));
  return html`<section><h2>${words.effects.pairs}</h2><p class="quiet">${words.effects.pairsLegend}</p>
    <div class="scroll" tabindex="0" role="group" aria-label=${words.effects.pairs}><table>
      <thead><tr><th></th><th></th>${comparisons.rows.slice(1).map((/** @type {number} */ _, /** @type {number} */ place) => html`<th class="num">${place + 2}</th>`)}</tr></thead>
      <tbody>${comparisons.rows.map(
        (/** @type {number} */ a, /** @type {number} */ place) => html`<tr><th scope="row">${place + 1}</th><td class="name mono">${combination(matrix.rows[a].combination, nodes)}</td>
          ${comparisons.rows.slice(1).map((/** @type {number} */ b, /** @type {number} */ other) => html`<td class="num">${other + 1 > place ? html`<${Pair} pair=${pairs.get(`${a} ${b}`)} better=${better} />` : null}</td>`)}</tr>`,
      )}</tbody></table></div></section>`;
}

/** @param {{pair: any, better: string}} props */
function Pair({ pair, better }) {
  if (!pair || pair.delta === null) return words.unknown;
  return html`<${Difference} estimate=${pair} better=${better} />${pair.p_adjusted === null ? null : html`<br /><small class="quiet">${words.sweep.columns.p} ${probability(pair.p_adjusted)}</small>`}`;
}
