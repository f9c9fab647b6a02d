/** Numbers as they were typed: 1.0 and 1 are different levels, and JavaScript writes both as 1. */

const MARK = `${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`; // that no text has
const MARKED = new RegExp(`"${MARK}(?:[^"\\\\]|\\\\.)*"`, "g");

/** JSON of a person, which is sent as it is. */
export class Written {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toJSON() {
    return MARK + this.text;
  }
}

/** A value as it is sent. @param {string} text JSON @returns {unknown} a Written if JavaScript would write its numbers in another way */
export function written(text) {
  const content = JSON.parse(text);
  return JSON.stringify(content) === text.trim() || typeof content === "string" ? content : new Written(text.trim());
}

/** A document of the server in which numbers that JavaScript would write in another way are Written, if the browser tells how they stood. @param {string} text @returns {any} */
export function parseWritten(text) {
  const revive = /** @type {any} */ ((/** @type {string} */ _, /** @type {unknown} */ content, /** @type {{source?: string} | undefined} */ context) =>
    typeof content === "number" && context?.source && JSON.stringify(content) !== context.source ? new Written(context.source) : content);
  return JSON.parse(text, revive);
}

/** JSON in which what was typed stands as it was typed. @param {unknown} content */
export const jsonOf = (content) => JSON.stringify(content).replace(MARKED, (text) => JSON.parse(text).slice(MARK.length));
