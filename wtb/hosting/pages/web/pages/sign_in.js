/** Who asks: a token, which stays in this tab. */
import { get, isRefused, signIn, token } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { words } from "../lib/words.js";

export function SignIn() {
  const [problem, setProblem] = useState(isRefused.value && token.value ? words.signIn.wrong : "");
  /** @param {SubmitEvent} event */
  async function go(event) {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("token"));
    signIn(field.value.trim());
    try {
      await get("/sweeps", { limit: 1 });
    } catch (error) {
      const status = /** @type {any} */ (error).status;
      if (status === 403) return; // a token that may do other things
      signIn(null);
      setProblem(status === 401 ? words.signIn.wrong : status ? /** @type {Error} */ (error).message : words.offline);
    }
  }
  return html`<main class="sign-in">
    <h1>${words.signIn.title}</h1>
    <p>${words.signIn.lead}</p>
    <form onSubmit=${go} class="sign-in-form">
      <label for="token">${words.signIn.token}</label>
      <input id="token" name="token" type="password" autocomplete="current-password" required autofocus aria-describedby="problem" />
      <p id="problem" class="bad" role="alert">${problem}</p>
      <button class="main">${words.signIn.go}</button>
    </form>
  </main>`;
}
