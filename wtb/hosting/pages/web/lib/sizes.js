/** Bytes as people write them: `512 MB`, `1.5 GB`; in steps of 1,000 as commands have it, `GiB` in steps of 1,024. */
import { words } from "./words.js";

const UNITS = /** @type {Record<string, number>} */ ({ "": 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, tib: 1024 ** 4 });

/** @param {string} text @returns {number} @throws {Error} */
export function bytesOf(text) {
  const parts = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  const unit = UNITS[(parts?.[2] ?? "?").toLowerCase()];
  if (!parts || !unit) throw new Error(words.sessions.wrongSize(text));
  return Math.round(Number(parts[1]) * unit);
}

/** @param {number | null | undefined} bytes */
export function sizeText(bytes) {
  if (bytes === null || bytes === undefined) return words.unknown;
  const unit = ["TB", "GB", "MB", "kB"].find((name) => bytes >= UNITS[name.toLowerCase()]);
  const number = unit ? bytes / UNITS[unit.toLowerCase()] : bytes;
  return `${Number(number.toPrecision(3))} ${unit ?? "B"}`;
}
