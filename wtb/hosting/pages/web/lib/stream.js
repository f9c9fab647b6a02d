/**
 * Follow the events of a sweep: nothing is missed and nothing comes twice, however often the connection breaks. A tab
 * that nobody sees holds no connection, since a browser has six for a server over HTTP/1.1, for all of its tabs.
 */
import { request } from "./api.js";

const PAUSES_MS = [500, 1000, 2000, 5000];

/**
 * @typedef {{version: number, id: string, type: "events" | "reset", events?: any[], status?: any}} Message
 * @param {string} ref of the sweep
 * @param {Record<string, unknown>} query
 * @param {(message: Message) => void} onMessage
 * @param {(isConnected: boolean) => void} onState
 * @returns {() => void} ends it
 */
export function follow(ref, query, onMessage, onState) {
  const ending = new AbortController();
  let last = /** @type {string | null} */ (null);

  async function run() {
    for (let failed = 0; !ending.signal.aborted; failed++) {
      await untilHidden(false, ending.signal);
      const hidden = new AbortController();
      const ended = new AbortController();
      untilHidden(true, ended.signal).then(() => hidden.abort());
      try {
        const headers = /** @type {Record<string, string>} */ (last === null ? {} : { "Last-Event-ID": last });
        const path = `/sweeps/${encodeURIComponent(ref)}/events`;
        const answer = await request("GET", path, { query: last === null ? query : { ...query, after: undefined }, headers, signal: AbortSignal.any([ending.signal, hidden.signal]) });
        onState(true);
        failed = 0;
        for await (const message of messages(/** @type {ReadableStream<Uint8Array>} */ (answer.body))) {
          last = message.id;
          onMessage(message);
        }
      } catch (error) {
        const status = /** @type {any} */ (error)?.status;
        if (ending.signal.aborted || status === 401 || status === 403 || status === 404) return;
        if (hidden.signal.aborted) continue;
      } finally {
        ended.abort();
      }
      onState(false);
      await new Promise((done) => setTimeout(done, PAUSES_MS[Math.min(failed, PAUSES_MS.length - 1)]));
    }
  }

  run();
  return () => ending.abort();
}

/**
 * Wait until the tab is out of sight, or in sight again, or the signal comes.
 * @param {boolean} isHidden
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function untilHidden(isHidden, signal) {
  return new Promise((resolve) => {
    const heard = new AbortController();
    function look() {
      if (document.hidden !== isHidden && !signal.aborted) return;
      heard.abort();
      resolve();
    }
    document.addEventListener("visibilitychange", look, { signal: heard.signal });
    signal.addEventListener("abort", look, { signal: heard.signal });
    look();
  });
}

/** @param {ReadableStream<Uint8Array>} body @returns {AsyncGenerator<Message>} */
async function* messages(body) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let kept = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    kept += value;
    const parts = kept.split("\n\n");
    kept = parts.pop() ?? "";
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}
