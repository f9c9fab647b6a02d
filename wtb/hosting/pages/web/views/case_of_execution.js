/** The case of an execution, what is expected of it, what came of it, and its scores with their reasons. */
import { get, segment } from "../lib/api.js";
import { html } from "../lib/html.js";
import { outputWords as words } from "../lib/output_words.js";
import { useResource, Waiting } from "../lib/resource.js";
import { Link } from "../lib/router.js";
import { CaseCell, OutputCell } from "./output_cell.js";
import { addressOfOutputs } from "./outputs.js";

/** The outputs of an execution; null of what has no case, such as a checkpoint. @param {any} execution its heading @param {string} [version] changes with what there is to see */
export function useCase(execution, version = "") {
  const isExecution = Boolean(execution && "case" in execution);
  return useResource(async (signal) => {
    if (!isExecution) return null;
    const about = await get(`/executions/${segment(execution.id)}/outputs`, { limit: 1000 }, signal);
    const caseRow = about.cases.find((/** @type {any} */ candidate) => candidate.repeat === execution.repeat) ?? null;
    const cell = caseRow?.cells.find((/** @type {any} */ candidate) => candidate?.execution === execution.id) ?? null;
    return { about, caseRow, cell };
  }, [execution?.id, version]);
}

/** @param {{execution: any, version?: string}} props */
export function CaseOfExecution({ execution, version }) {
  const resource = useCase(execution, version);
  const seen = resource.data;
  if (seen === undefined) return html`<${Waiting} resource=${resource} />`;
  if (!seen?.caseRow) return null;
  const isSweep = execution.sweep.kind !== "single";
  return html`<div class="details-parts"><section aria-label=${words.input}><h2>${words.input}</h2><${CaseCell} caseRow=${seen.caseRow} repeats=${seen.about.repeats} isWhole />
      ${isSweep ? html`<p><${Link} to=${addressOfOutputs(execution.sweep.id, { only: execution.case })}>${words.beside}<//></p>` : null}</section>
    ${seen.cell ? html`<section aria-label=${words.output}><h2>${words.output}</h2><${OutputCell} cell=${{ ...seen.cell, error: null }} keys=${seen.about.keys} metrics=${seen.about.metrics} metric=${null} isWhole /></section>` : null}</div>`;
}
