/** Requests to the server that this page came from. */
import { signal } from "./html.js";
import { jsonOf, parseWritten } from "./written.js";

const PREFIX = "/api/v1";
const READS = ["GET", "HEAD"];

/**
 * Who asks, by a cookie that scripts cannot read; null for nobody, undefined until the server has said it.
 * @typedef {{name: string | null, scopes: string[], csrf: string, runs: boolean}} Identity runs: whether the server itself runs what no workers run
 */
export const identity = signal(/** @type {Identity | null | undefined} */ (undefined));

/** Whether somebody was signed in until the server said that this is over. */
export const hasEnded = signal(false);

/** Whether who asks may do it; pages leave out what the server would refuse. @param {"read" | "submit" | "steer" | "answer" | "administer"} permission */
export const may = (permission) => identity.value?.scopes.includes(permission) ?? false;

/** Ask the server who this browser is signed in as. */
export async function whoAmI() {
  remember(await get("/sign-in"));
}

/** Exchange a token or a one-time code for a cookie. @param {{token: string} | {code: string}} credential */
export async function signIn(credential) {
  remember(await post("/sign-in", credential));
}

/** Have the server and the browser forget who asks. */
export async function signOut() {
  await request("DELETE", "/sign-in");
  identity.value = null;
}

/** Where one can sign in besides: the name of a provider, or null. */
export const provider = signal(/** @type {string | null} */ (null));

/** @param {{csrf: string | null, provider: string | null}} answer */
function remember(answer) {
  provider.value = answer.provider;
  identity.value = answer.csrf === null ? null : /** @type {any} */ (answer);
}

/** What a server said of a request that it did not carry out. */
export class Problem extends Error {
  /** @param {number} status @param {{detail?: string, kind?: string}} document empty of what stands before a server */
  constructor(status, document) {
    super(document.detail ?? "");
    this.status = status;
    this.kind = document.kind; // of what is not there
  }
}

/**
 * Send a request.
 * @param {string} method
 * @param {string} path below `/api/v1`
 * @param {{query?: Record<string, unknown>, body?: unknown, bytes?: ArrayBuffer, signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<Response>} one that is well
 * @throws {Problem}
 */
export async function request(method, path, options = {}) {
  const headers = new Headers(options.headers);
  if (identity.value && !READS.includes(method)) headers.set("X-CSRF-Token", identity.value.csrf);
  if (options.body !== undefined) headers.set("Content-Type", "application/json");
  if (options.bytes) headers.set("Content-Type", "application/octet-stream");
  let answer = await fetch(PREFIX + path + queryOf(options.query), {
    method,
    headers,
    body: options.bytes ?? (options.body === undefined ? undefined : jsonOf(options.body)),
    signal: options.signal,
    cache: "no-store",
  });
  while (answer.status === 202) {  // it takes long, and goes on
    answer = await fetch(`${answer.headers.get("Location")}/result?wait=30`, { signal: options.signal, cache: "no-store" });
  }
  if (answer.ok) return answer;
  if (answer.status === 401) {
    hasEnded.value = Boolean(identity.value);
    identity.value = null;
  }
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** @param {string} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = async (path, query, signal) => (await request("GET", path, { query, signal })).json();

/** The same with numbers as the server wrote them, for values that are edited and sent back. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const getWritten = async (path, signal) => parseWritten(await (await request("GET", path, { signal })).text());

/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const post = async (path, body = {}, signal) => (await request("POST", path, { body, signal })).json();

/** One path segment. @param {string} text */
export const segment = (text) => encodeURIComponent(text);

/** @param {Record<string, unknown>} [query] */
function queryOf(query = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const part of Array.isArray(value) ? value : [value]) {
      if (part !== undefined && part !== null && part !== "") pairs.append(name, String(part));
    }
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}
