/** Numbers, times and values as text. */
import { words } from "./words.js";

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** @param {number | null | undefined} number */
export const count = (number) => (number === null || number === undefined ? words.unknown : whole.format(number));

/** A figure with three decimals, as the commands show it. @param {number | null | undefined} number */
export function figure(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return words.unknown;
  const size = Math.abs(number);
  if (size !== 0 && (size < 0.0005 || size >= 1e6)) return number.toExponential(2);
  return size >= 1000 ? whole.format(Math.round(number)) : number.toFixed(size >= 100 ? 1 : 3);
}

/** A difference, with its sign. @param {number | null | undefined} number */
export function difference(number) {
  if (number === null || number === undefined) return words.unknown;
  const text = figure(Math.abs(number));
  return number > 0 ? `+${text}` : number < 0 ? `−${text}` : text;
}

/** @param {number | null | undefined} p */
export function probability(p) {
  if (p === null || p === undefined) return "";
  return p < 0.001 ? "<0.001" : p.toFixed(3);
}

/** Dollars to three figures of the largest amount in the column, at least to the cent, as the commands show them. @param {number | null | undefined} amount @param {number | null} [largest] */
export function usd(amount, largest) {
  if (amount === null || amount === undefined) return words.unknown;
  const scale = Math.abs(largest || amount);
  const decimals = scale ? Math.min(20, Math.max(2, 2 - Math.floor(Math.log10(scale)))) : 2;
  return dollars(decimals).format(amount);
}

const byDecimals = /** @type {Map<number, Intl.NumberFormat>} */ (new Map()); // making one takes longer than drawing a cell

/** @param {number} decimals */
function dollars(decimals) {
  const cached = byDecimals.get(decimals);
  if (cached) return cached;
  const formatter = new Intl.NumberFormat("en", { style: "currency", currency: "USD", minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  byDecimals.set(decimals, formatter);
  return formatter;
}

/** The largest of what is known, for figures of a column. @param {(number | null | undefined)[]} values */
export const largestOf = (values) => values.reduce((/** @type {number} */ largest, figure) => Math.max(largest, figure ?? 0), 0);

/** Seconds as a length of time. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return words.unknown;
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.1 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** @param {string | null | undefined} iso */
export const date = (iso) => (iso ? clock.format(new Date(iso)) : words.unknown);

/** How long ago, or until when. @param {string | null | undefined} iso @param {number} now milliseconds */
export function ago(iso, now = Date.now()) {
  if (!iso) return words.unknown;
  const seconds = (new Date(iso).getTime() - now) / 1000;
  const size = Math.abs(seconds);
  if (size < 60) return relative.format(Math.round(seconds), "second");
  if (size < 3600) return relative.format(Math.round(seconds / 60), "minute");
  if (size < 86400) return relative.format(Math.round(seconds / 3600), "hour");
  return relative.format(Math.round(seconds / 86400), "day");
}

/** Seconds between two times. @param {string | null} start @param {string | null} end */
export const between = (start, end) => (start && end ? (new Date(end).getTime() - new Date(start).getTime()) / 1000 : null);

// A level in the name of a grid point, as `wtb/core/factors/level_names.py` writes it.
const LEVEL = /([^\s,="]+)=("(?:[^"\\]|\\.)*"|[\[{][^\s=]*?(?=, |$)|[^,]*)/y;

/** What a variant derives from, if its name has it, and the labels of its levels. @param {string} name @returns {[string | null, [string, string][]]} */
function splitName(name) {
  if (!name.includes("=") || name.includes("…#")) return [name, []];
  const base = /^([^,="]+), /.exec(name);
  const levels = /** @type {[string, string][]} */ ([]);
  LEVEL.lastIndex = base ? base[0].length : 0;
  for (let level = LEVEL.exec(name); level; level = LEVEL.exec(name)) {
    if (levels.some(([parameter]) => parameter === level?.[1])) break;
    levels.push([level[1], level[2]]);
    if (LEVEL.lastIndex === name.length) return [base?.[1] ?? null, levels];
    if (!name.startsWith(", ", LEVEL.lastIndex)) break;
    LEVEL.lastIndex += 2;
  }
  return [name, []];
}

/** @type {Map<string, Record<string, string>>} */
const labelled = new Map();

/** A combination by nodes and factors: `answer` has a variant, `answer.model` the label of a level. @param {Record<string, string>} combination @returns {Record<string, string>} */
export function labelsOf(combination) {
  const key = JSON.stringify(combination);
  const cached = labelled.get(key);
  if (cached) return cached;
  const labels = /** @type {Record<string, string>} */ ({});
  for (const [node, variant] of Object.entries(combination)) {
    const [base, levels] = splitName(variant);
    if (base !== null) labels[node] = base;
    for (const [parameter, label] of levels) labels[`${node}.${parameter}`] = label;
  }
  labelled.set(key, labels);
  return labels;
}

/** A combination in words. @param {Record<string, string>} combination @param {string[]} [only] nodes and factors to name */
export function combination(combination, only) {
  const labels = labelsOf(combination);
  const keys = only?.filter((key) => key in labels) ?? Object.keys(labels);
  return keys.map((key) => `${key}=${labels[key]}`).join(" ") || words.none;
}

const LINE = 90;

/** A value of a state as text that can be read: what fits a line stands on one. @param {unknown} content @param {string} [indent] @returns {string} */
export function asText(content, indent = "") {
  if (typeof content === "string" && indent === "") return content;
  const short = JSON.stringify(content) ?? "";
  if (short.length + indent.length <= LINE || typeof content !== "object" || content === null) return short;
  const inner = `${indent}  `;
  if (Array.isArray(content)) {
    if (content.every((part) => typeof part !== "object")) return filled(content.map((part) => JSON.stringify(part)), indent);
    return `[\n${content.map((part) => inner + asText(part, inner)).join(",\n")}\n${indent}]`;
  }
  const lines = Object.entries(content).map(([key, part]) => `${inner}${JSON.stringify(key)}: ${asText(part, inner)}`);
  return `{\n${lines.join(",\n")}\n${indent}}`;
}

/** A list of plain values, as many on a line as fit. @param {string[]} parts @param {string} indent */
function filled(parts, indent) {
  const lines = [""];
  for (const part of parts) {
    if (lines[lines.length - 1].length + part.length > LINE) lines.push("");
    lines[lines.length - 1] += `${part}, `;
  }
  return `[\n${lines.map((line) => `${indent}  ${line.trimEnd()}`).join("\n").replace(/,$/, "")}\n${indent}]`;
}

/** Text in which control characters are seen, and directions that are never taken back have no effect. @param {string} text */
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** A value that a node, a model or a person made, as text that can be read. @param {unknown} content */
export const readable = (content) => visible(asText(content));

/** Bytes as people write them: `512 MB`, `1.5 GB`; in steps of 1,000 as commands have it, `GiB` in steps of 1,024. */
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
