/** Requests to the server that this page came from. */
import { signal } from "./html.js";

const PREFIX = "/api/v1";
const KEPT = "wtb.token";

/** The token by which this tab asks; it lives as long as the tab. */
export const token = signal(sessionStorage.getItem(KEPT));
/** Whether the server said that it does not know who asks. */
export const isRefused = signal(false);

/** @param {string | null} value */
export function signIn(value) {
  if (value === null) sessionStorage.removeItem(KEPT);
  else sessionStorage.setItem(KEPT, value);
  token.value = value;
  isRefused.value = value === null;
}

/** What a server said of a request that it did not carry out. */
export class Problem extends Error {
  /** @param {number} status @param {{detail?: string}} document */
  constructor(status, document) {
    super(document.detail ?? `the server answered with ${status}`);
    this.status = status;
  }
}

/**
 * Send a request.
 * @param {string} method
 * @param {string} path below `/api/v1`
 * @param {{query?: Record<string, unknown>, body?: unknown, signal?: AbortSignal, headers?: Record<string, string>}} [given]
 * @returns {Promise<Response>} one that is well
 * @throws {Problem}
 */
export async function request(method, path, given = {}) {
  const headers = new Headers(given.headers);
  if (token.value) headers.set("Authorization", `Bearer ${token.value}`);
  if (given.body !== undefined) headers.set("Content-Type", "application/json");
  const answer = await fetch(PREFIX + path + queryOf(given.query), {
    method,
    headers,
    body: given.body === undefined ? undefined : JSON.stringify(given.body),
    signal: given.signal,
    cache: "no-store",
  });
  if (answer.ok) return answer;
  if (answer.status === 401) isRefused.value = true;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** @param {string} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, query, signal) {
  return (await request("GET", path, { query, signal })).json();
}

/** @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export async function post(path, body = {}) {
  return (await request("POST", path, { body })).json();
}

/** One path segment. @param {string} text */
export function segment(text) {
  return encodeURIComponent(text);
}

/** @param {Record<string, unknown>} [query] */
function queryOf(query = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") pairs.append(name, String(one));
    }
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}
