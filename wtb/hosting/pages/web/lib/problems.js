/** What went wrong, in the words of a browser: what it is, what the server found, and what to do about it. */
import { Problem } from "./api.js";
import { sentence, Told, withoutHint } from "./commands.js";
import { html } from "./html.js";
import { address, Link } from "./router.js";
import { words } from "./words.js";

const AWAY = [502, 503, 504]; // the server, or what it needs, will be back
/** Of what is not there, the page that lists what is. */
const LISTS = /** @type {Record<string, string>} */ ({
  sweep: "/", execution: "/", checkpoint: "/", case: "/", baseline: "/", workflow: "/submit", question: "/inbox", schedule: "/schedules",
  session: "/sessions", token: "/access", user: "/access", team: "/access", access: "/access", project: "/access",
});

/** Whether it may be over in a moment, so that a page asks again by itself. @param {unknown} error */
export const isAway = (error) => !(error instanceof Problem) || AWAY.includes(error.status);

/** @param {number} status */
function kindOf(status) {
  if (status === 422) return 400;
  if (AWAY.includes(status)) return 503;
  return status in words.problem.titles ? status : status >= 500 ? 500 : 400;
}

/** What a request came to that failed, on the page that cannot show what it asked for. @param {{error: unknown, retry: () => void}} props */
export function ProblemBox({ error, retry }) {
  if (!(error instanceof Problem)) return html`<p class="notice" role="status">${words.offline}</p>`;
  const kind = /** @type {404} */ (kindOf(error.status));
  return html`<div class="problem" role=${kind === /** @type {number} */ (503) ? "status" : "alert"}>
    <h2>${words.problem.titles[kind]}</h2>
    ${error.message ? html`<p><${Told} text=${sentence(error.kind ? withoutHint(error.message) : error.message)} /></p>` : null}
    <p>${words.problem.advice[kind]}</p>
    ${kind === 404 ? html`<${Instead} what=${error.kind} />` : kind === /** @type {number} */ (403) ? html`<${Link} class="button" to="/access">${words.problem.toAccess}<//>` : html`<button onClick=${retry}>${words.problem.again[/** @type {409} */ (kind)] ?? words.retry}</button>`}
  </div>`;
}

/** Where to look for something that is not at an address. @param {{what: string | undefined}} props */
function Instead({ what }) {
  const { path } = address.value;
  const list = LISTS[what ?? ""] ?? "/";
  const sweep = /^\/sweeps\/([^/]+)/.exec(path);
  const lists = /** @type {Record<string, string>} */ (words.problem.lists);
  return html`<div class="bar"><${Link} class="button" to=${list}>${lists[list]}<//>
    ${what === "sweep" && sweep ? html`<${Link} class="button" to=${`/?text=${sweep[1]}`}>${words.problem.search(decodeURIComponent(sweep[1]))}<//>` : null}</div>`;
}

/** Why something was not done, beside the button that was to do it. @param {{problem: unknown}} props a text, or what was thrown */
export function Refused({ problem }) {
  if (!problem) return null;
  if (typeof problem === "string") return html`<p class="bad refused" role="alert">${problem}</p>`;
  if (!(problem instanceof Problem)) return html`<p class="bad refused" role="alert">${problem instanceof TypeError ? words.notSent : /** @type {Error} */ (problem).message}</p>`;
  const kind = /** @type {404} */ (kindOf(problem.status));
  const text = problem.message || words.problem.titles[kind];
  return html`<p class="bad refused" role="alert"><${Told} text=${sentence(text)} />${kind === /** @type {number} */ (400) ? null : html` ${words.problem.advice[kind]}`}</p>`;
}
