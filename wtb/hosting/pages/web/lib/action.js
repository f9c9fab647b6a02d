/** Requests that change something: one at a time, with what the server said of the one that it refused. */
import { html, useState } from "./html.js";
import { words } from "./words.js";

/**
 * @typedef {object} Action
 * @property {(send: () => Promise<unknown>) => Promise<boolean>} perform whether it was carried out
 * @property {string} problem why the last one was not
 * @property {boolean} isBusy
 *
 * @param {() => void} [after] called once the server has carried one out
 * @returns {Action}
 */
export function useAction(after) {
  const [state, setState] = useState({ problem: "", isBusy: false });
  /** @param {() => Promise<unknown>} send */
  async function perform(send) {
    setState({ problem: "", isBusy: true });
    try {
      await send();
      setState({ problem: "", isBusy: false });
    } catch (error) {
      setState({ problem: error instanceof TypeError ? words.offline : /** @type {Error} */ (error).message, isBusy: false });
      return false;
    }
    after?.();
    return true;
  }
  return { ...state, perform };
}

/** Why something was not done. @param {{problem: string}} props */
export function Refused({ problem }) {
  return problem ? html`<p class="bad refused" role="alert">${problem}</p>` : null;
}
