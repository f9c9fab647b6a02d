/** Requests that change something: one at a time, with why the last one was not carried out. */
import { useState } from "./html.js";

export { Refused } from "./problems.js";

/** A handler that does something in place of what a browser does. @param {() => unknown} run @returns {(event: Event) => void} */
export const instead = (run) => (event) => {
  event.preventDefault();
  run();
};

/**
 * @typedef {object} Action
 * @property {(send: () => Promise<unknown>) => Promise<boolean>} perform whether it was carried out
 * @property {unknown} problem what the last one failed with; empty if it did not
 * @property {boolean} isBusy
 *
 * @param {() => void} [after] called once the server has carried one out
 * @returns {Action}
 */
export function useAction(after) {
  const [state, setState] = useState(/** @type {{problem: unknown, isBusy: boolean}} */ ({ problem: "", isBusy: false }));
  /** @param {() => Promise<unknown>} send */
  async function perform(send) {
    setState({ problem: "", isBusy: true });
    try {
      await send();
      setState({ problem: "", isBusy: false });
    } catch (error) {
      setState({ problem: error, isBusy: false });
      return false;
    }
    after?.();
    return true;
  }
  return { ...state, perform };
}
