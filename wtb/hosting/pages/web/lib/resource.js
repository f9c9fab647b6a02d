/** What pages show while they ask, once they know, and where it failed. */
import { html, useEffect, useRef, useState } from "./html.js";
import { isAway, ProblemBox } from "./problems.js";
import { words } from "./words.js";

const TRY_AGAIN_MS = 2_000; // a server that did not answer

/** Do something whenever a value is another one than before. @template T @param {T} now @param {(before: T) => void} run */
export function useChange(now, run) {
  const before = useRef(now);
  useEffect(() => {
    if (before.current !== now) run(before.current);
    before.current = now;
  }, [now]);
}

/** @typedef {{isAnswered: boolean, isAskedAgain: boolean}} Asking */

/**
 * Ask for something when it is first needed and whenever `keys` change.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @param {unknown[]} keys
 * @param {number | null} [everyMs] ask again after so long, while the page is seen
 * @returns {{data: T | undefined, error: unknown, reload: () => void, change: (change: (data: T) => T) => void}} what was known before stays
 *     until there is more; `change` makes something of it without asking
 */
export function useResource(ask, keys, everyMs = null) {
  const [answer, setAnswer] = useState(/** @type {{data?: T, error?: unknown}} */ ({}));
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  const current = useRef(/** @type {Asking} */ ({ isAnswered: true, isAskedAgain: false }));
  /** Ask again: once what is asked already was answered, so that a slow answer is waited for however often this is called. */
  function reload() {
    if (current.current.isAnswered) setRound((count) => count + 1);
    else current.current.isAskedAgain = true;
  }
  /** @param {(data: T) => T} make */
  const change = (make) => setAnswer((before) => (before.data === undefined ? before : { ...before, data: make(before.data) }));
  useEffect(() => setAnswer({}), keys);
  useEffect(() => {
    const ending = new AbortController();
    const asking = /** @type {Asking} */ ({ isAnswered: false, isAskedAgain: false });
    current.current = asking;
    /** @param {(before: {data?: T}) => {data?: T, error?: unknown}} change */
    function answer(change) {
      if (ending.signal.aborted) return;
      asking.isAnswered = true;
      setAnswer(change);
      if (asking.isAskedAgain) setRound((count) => count + 1);
    }
    latest.current(ending.signal).then(
      (data) => answer(() => ({ data })),
      (error) => answer((before) => ({ ...before, error })),
    );
    return () => ending.abort();
  }, [...keys, round]);
  useEffect(() => {
    if (!answer.error || !isAway(answer.error)) return; // a server that answered would answer the same again
    const timer = setTimeout(() => setRound((count) => count + 1), TRY_AGAIN_MS);
    return () => clearTimeout(timer);
  }, [answer]);
  useEffect(() => {
    if (everyMs === null) return;
    const timer = setInterval(() => document.hidden || reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return { data: answer.data, error: answer.error, reload, change };
}

/** What stands in place of something that is not known yet, or never will be. @param {any} props */
export function Waiting({ resource }) {
  const { error, data, reload } = resource;
  if (!error) return data === undefined ? html`<p class="quiet" role="status">${words.loading}</p>` : null;
  return html`<${ProblemBox} error=${error} retry=${reload} />`;
}
