/** Who asks: by a token, or by the code in the address that `wtb serve` prints. */
import { hasEnded, Problem, provider, signIn } from "../lib/api.js";
import { html, signal } from "../lib/html.js";
import { words } from "../lib/words.js";

const CODE = /^#code=([\w-]+)$/;
const REFUSED = /^#sign-in=(failed|not-allowed)$/;

/** Take the one-time code out of the address, so that neither the history nor who looks on has it. */
export function takeCode() {
  const code = CODE.exec(location.hash);
  const refused = REFUSED.exec(location.hash);
  if (code || refused) history.replaceState(null, "", location.pathname + location.search);
  if (refused) problem.value = refused[1] === "failed" ? words.signIn.failed : words.signIn.notAllowed;
  return code?.[1] ?? null;
}

/** Why the last try to sign in failed; empty if it did not. */
const problem = signal("");

/** Say why one failed. @param {unknown} error @param {string} wrong */
export function explain(error, wrong) {
  if (!(error instanceof Problem)) problem.value = words.notSent;
  else problem.value = error.status === 401 ? wrong : error.message || words.problem.titles[503];
}

export function SignIn() {
  /** @param {SubmitEvent} event */
  async function go(event) {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("token"));
    try {
      await signIn({ token: field.value.trim() });
      problem.value = "";
    } catch (error) {
      explain(error, words.signIn.wrong);
    }
  }
  return html`<main class="sign-in">
    <h1>${words.signIn.title}</h1>
    ${provider.value ? html`<p><a class="button" href="/api/v1/sign-in/provider">${words.signIn.at(provider.value)}</a></p>` : null}
    <p>${words.signIn.lead}</p>
    <form onSubmit=${go} class="sign-in-form">
      <label for="token">${words.signIn.token}</label>
      <input id="token" name="token" type="password" autocomplete="current-password" required autofocus aria-describedby="problem" />
      <p id="problem" class="bad" role="alert">${problem.value || (hasEnded.value ? words.signIn.ended : "")}</p>
      <button class="main">${words.signIn.go}</button>
    </form>
  </main>`;
}
