/** Files that a person drops, chooses or pastes: they are sent before the request that names them. */
import { request } from "./api.js";
import { caseWords } from "./case_words.js";

export const MOST_BYTES = 32_000_000;
export const ENDINGS = [".csv", ".tsv", ".xlsx", ".jsonl", ".ndjson", ".json"];

/** A file that the server keeps for a day. @typedef {{upload: string, name: string}} Upload */

/** Why a file cannot be cases, as far as its name and size tell; else nothing. @param {{name: string, size: number}} file */
export function problemOf({ name, size }) {
  if (!ENDINGS.some((ending) => name.toLowerCase().endsWith(ending))) return caseWords.noTable(name, ENDINGS);
  if (size > MOST_BYTES) return caseWords.tooLarge(name, size, MOST_BYTES);
  return size ? "" : caseWords.empty(name);
}

/** @param {string} name @param {Blob} content @returns {Promise<Upload>} */
export async function upload(name, content) {
  const bytes = await content.arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const digest = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  await request("PUT", `/uploads/${digest}`, { bytes });
  return { upload: digest, name };
}

/** What a text that somebody typed or pasted is called as a file: JSON, a line each or a list, else a table. @param {string} text */
export function nameOf(text) {
  const begin = text.trimStart()[0];
  if (begin === "[") return caseWords.pasted + ".json";
  return caseWords.pasted + (begin === "{" ? ".jsonl" : ".csv");
}
