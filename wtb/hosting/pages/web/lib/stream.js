/**
 * Follow the events of sweeps: nothing is missed and nothing comes twice, however often the connection breaks. All that
 * a tab follows comes on one connection, since a browser has six for a server over HTTP/1.1, for all of its tabs. A tab
 * that nobody sees holds none.
 */
import { request } from "./api.js";

const PAUSES_MS = [500, 1000, 2000, 5000];

/**
 * @typedef {{version: number, id: string, type: "events" | "reset" | "subscribed" | "ended", events?: any[], status?: any}} Message
 * @typedef {{query: Record<string, unknown>, onMessage: (message: Message) => void, onState: (isConnected: boolean) => void, isConnected: boolean | null}} Subscription
 * @type {Map<string, Subscription>}
 */
const subscriptions = new Map();
let count = 0;
let isRunning = false;
let changed = new AbortController(); // what a connection carries is no longer what is wanted

/** @param {string} sweep @param {Record<string, unknown>} query which events of it @param {(message: Message) => void} onMessage @param {(isConnected: boolean) => void} onState @returns {() => void} ends it */
export function follow(sweep, query, onMessage, onState) {
  const name = String(count++);
  subscriptions.set(name, { query: { ...query, name, sweep }, onMessage, onState, isConnected: null });
  change();
  return () => {
    if (subscriptions.delete(name)) change();
  };
}

function change() {
  changed.abort();
  if (!isRunning) run();
}

async function run() {
  isRunning = true;
  for (let failed = 0; await isWanted(); failed++) {
    changed = new AbortController();
    await untilHidden(false, changed.signal);
    const hidden = new AbortController();
    const ended = new AbortController();
    untilHidden(true, ended.signal).then(() => hidden.abort());
    const isOver = AbortSignal.any([changed.signal, hidden.signal]);
    try {
      const subscribe = [...subscriptions.values()].map((subscription) => JSON.stringify(subscription.query));
      const answer = await request("GET", "/stream", { query: { subscribe }, signal: isOver });
      for await (const incoming of messages(/** @type {ReadableStream<Uint8Array>} */ (answer.body))) {
        failed = -1;
        if (isOver.aborted) break;
        take(incoming.subscription, incoming.message);
      }
    } catch (error) {
      const status = /** @type {any} */ (error)?.status;
      if (status === 401 || status === 403) break;
    } finally {
      ended.abort();
    }
    if (isOver.aborted) {
      failed = -1;
      continue;
    }
    for (const subscription of subscriptions.values()) tell(subscription, false);
    await pause(PAUSES_MS[Math.min(failed < 0 ? 0 : failed, PAUSES_MS.length - 1)]);
  }
  isRunning = false;
}

/** Whether anything is wanted; what a page stops and begins to follow in one go is asked for at once. */
async function isWanted() {
  await pause(0);
  return subscriptions.size > 0;
}

/** @param {string} name @param {Message} message */
function take(name, message) {
  const subscription = subscriptions.get(name);
  if (!subscription) return;
  if (message.type === "ended") return void subscriptions.delete(name);
  subscription.query.after = message.id;
  tell(subscription, true);
  if (message.type !== "subscribed") subscription.onMessage(message);
}

/** @param {Subscription} subscription @param {boolean} isConnected */
function tell(subscription, isConnected) {
  if (subscription.isConnected === isConnected) return;
  subscription.isConnected = isConnected;
  subscription.onState(isConnected);
}

/** @param {number} milliseconds @returns {Promise<void>} */
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Wait until the tab is out of sight, or in sight again, or the signal comes. @param {boolean} isHidden @param {AbortSignal} signal @returns {Promise<void>} */
function untilHidden(isHidden, signal) {
  return new Promise((resolve) => {
    const change = new AbortController();
    function look() {
      if (document.hidden !== isHidden && !signal.aborted) return;
      change.abort();
      resolve();
    }
    document.addEventListener("visibilitychange", look, { signal: change.signal });
    signal.addEventListener("abort", look, { signal: change.signal });
    look();
  });
}

/** @param {ReadableStream<Uint8Array>} body @returns {AsyncGenerator<{subscription: string, message: Message}>} */
async function* messages(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let buffer = "";
  while (true) {
    const { done, value: chunk } = await reader.read();
    if (done) return;
    buffer += chunk;
    const parts = buffer.split("\n\n");
    buffer = parts.pop() ?? "";
    for (const part of parts) {
      const payload = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (payload.length) yield JSON.parse(payload.join("\n"));
    }
  }
}
