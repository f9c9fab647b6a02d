/** The one place that knows which libraries make elements and keep state, and of which types what they give is. */
import htm from "../vendor/htm.js";
import * as hooks from "../vendor/hooks.js";
import { h } from "../vendor/preact.js";
import * as signals from "../vendor/signals.js";

export { render } from "../vendor/preact.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);

/** @type {<T>(initial: T | (() => T)) => [T, (next: T | ((before: T) => T)) => void]} */
export const useState = hooks.useState;
/** @type {(run: () => void | (() => void), keys?: readonly unknown[]) => void} */
export const useEffect = hooks.useEffect;
/** @type {(run: () => void | (() => void), keys?: readonly unknown[]) => void} */
export const useLayoutEffect = hooks.useLayoutEffect;
/** @type {<T>(make: () => T, keys: readonly unknown[]) => T} */
export const useMemo = hooks.useMemo;
/** @type {<T>(initial: T) => {current: T}} */
export const useRef = hooks.useRef;

/** @type {<T>(value: T) => {value: T}} */
export const signal = signals.signal;
/** @type {(run: () => void) => () => void} */
export const effect = signals.effect;
