/** Where two texts differ, line by line and within lines. */

const MOST_EDITS = 1_000; // beyond it what lies between the first and the last difference is one
const MOST_WORDS = 200; // edits within a line
const LONGEST = 20_000; // letters of a line that is compared by words

/** What differs: from and to in one, from and to in the other. @typedef {[number, number, number, number]} Hunk */

/** Of two texts each line, and the hunks that differ. @param {string} text @param {string} other */
export function compareLines(text, other) {
  const [a, b] = [text.split("\n"), other.split("\n")];
  return { a, b, hunks: compare(a, b, MOST_EDITS) };
}

/** Of two lines each word, and the hunks that differ. @param {string} line @param {string} other */
export function compareWords(line, other) {
  if (line.length + other.length > 2 * LONGEST) return { a: [line], b: [other], hunks: /** @type {Hunk[]} */ ([[0, 1, 0, 1]]) };
  const [a, b] = [wordsOf(line), wordsOf(other)];
  return { a, b, hunks: inBlocks(compare(a, b, MOST_WORDS), a) };
}

/** @param {string} line @returns {string[]} */
export const wordsOf = (line) => line.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/** The hunks in which two lists of texts differ, with as few edits as there can be. @param {string[]} a @param {string[]} b @param {number} mostEdits edits @returns {Hunk[]} */
export function compare(a, b, mostEdits) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let [endA, endB] = [a.length, b.length];
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) [endA, endB] = [endA - 1, endB - 1];
  if (start === endA && start === endB) return [];
  const hunks = shortest(...numbered(a.slice(start, endA), b.slice(start, endB)), mostEdits);
  if (!hunks) return [[start, endA, start, endB]];
  const beside = joined(hunks, (last, next) => last[1] === next[0] && last[3] === next[2]);
  return beside.map(([fromA, toA, fromB, toB]) => [fromA + start, toA + start, fromB + start, toB + start]);
}

/** Two lists of texts as numbers, the same for the same text: they are compared often. @param {string[]} a @param {string[]} b @returns {[Int32Array, Int32Array]} */
function numbered(a, b) {
  const numbers = /** @type {Map<string, number>} */ (new Map());
  const number = (/** @type {string} */ text) => {
    const number = numbers.get(text);
    if (number !== undefined) return number;
    numbers.set(text, numbers.size);
    return numbers.size - 1;
  };
  return [Int32Array.from(a, number), Int32Array.from(b, number)];
}

/**
 * The shortest list of edits (E. Myers: An O(ND) difference algorithm and its variations, 1986).
 * @param {Int32Array} a @param {Int32Array} b @param {number} mostEdits
 * @returns {Hunk[] | null} each the deletion or insertion of one; null if it takes more than `mostEdits`
 */
function shortest(a, b, mostEdits) {
  const furthest = new Int32Array(2 * mostEdits + 3); // by diagonal, from -mostEdits - 1 to mostEdits + 1
  const middle = mostEdits + 1;
  const before = /** @type {Int32Array[]} */ ([]);
  for (let edits = 0; edits <= mostEdits; edits++) {
    before.push(furthest.slice(middle - edits - 1, middle + edits + 2));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = isDown(furthest, middle + diagonal, diagonal, edits) ? furthest[middle + diagonal + 1] : furthest[middle + diagonal - 1] + 1;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x++;
      furthest[middle + diagonal] = x;
      if (x >= a.length && x - diagonal >= b.length) return traced(before, a.length, b.length);
    }
  }
  return null;
}

/** Whether a diagonal is reached by an insertion. @param {Int32Array} furthest @param {number} place @param {number} diagonal @param {number} edits */
const isDown = (furthest, place, diagonal, edits) => diagonal === -edits || (diagonal !== edits && furthest[place - 1] < furthest[place + 1]);

/** The edits that led to the end, from what was reached before each. @param {Int32Array[]} before @param {number} x @param {number} y @returns {Hunk[]} */
function traced(before, x, y) {
  const edits = /** @type {Hunk[]} */ ([]);
  for (let count = before.length - 1; count > 0; count--) {
    const furthest = before[count];
    const diagonal = x - y;
    const down = isDown(furthest, diagonal + count + 1, diagonal, count);
    const from = furthest[diagonal + count + 1 + (down ? 1 : -1)];
    const other = from - (diagonal + (down ? 1 : -1));
    edits.push(down ? [from, from, other, other + 1] : [from, from + 1, other, other]);
    [x, y] = [from, other];
  }
  return edits.reverse();
}

/** Hunks as one that belong together. @param {Hunk[]} hunks @param {(last: Hunk, next: Hunk) => boolean} isOne @returns {Hunk[]} */
function joined(hunks, isOne) {
  const whole = /** @type {Hunk[]} */ ([]);
  for (const hunk of hunks) {
    const last = whole.at(-1);
    if (last && isOne(last, hunk)) [last[1], last[3]] = [hunk[1], hunk[3]];
    else whole.push([...hunk]);
  }
  return whole;
}

const NO_WORD = /^[^\p{L}\p{N}_]*$/u;

/** Hunks of words with no word between them as one, so that a text that was replaced reads as one. @param {Hunk[]} hunks @param {string[]} a */
const inBlocks = (hunks, a) => joined(hunks, (last, next) => a.slice(last[1], next[0]).every((word) => NO_WORD.test(word)));

/** A piece of two texts: of both, or of one of them. @typedef {{kind: "same" | "removed" | "added", text: string}} Piece */

/** Two texts word by word, as pieces in order: lines that are the same are found first, then words within those that are not. @param {string} text @param {string} other @returns {Piece[]} */
export function compareTexts(text, other) {
  const pieces = /** @type {Piece[]} */ ([]);
  const add = (/** @type {Piece["kind"]} */ kind, /** @type {string} */ text) => {
    const last = pieces.at(-1);
    if (!text) return;
    if (last?.kind === kind) last.text += text;
    else pieces.push({ kind, text });
  };
  const lines = (/** @type {string} */ text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
  const [a, b] = [lines(text), lines(other)];
  let at = 0;
  for (const [fromA, toA, fromB, toB] of compare(a, b, MOST_EDITS)) {
    add("same", a.slice(at, fromA).join(""));
    addWords(a.slice(fromA, toA).join(""), b.slice(fromB, toB).join(""), add);
    at = toA;
  }
  add("same", a.slice(at).join(""));
  return pieces;
}

/** @param {string} text @param {string} other @param {(kind: Piece["kind"], text: string) => void} add */
function addWords(text, other, add) {
  const [a, b] = [wordsOf(text), wordsOf(other)];
  let at = 0;
  for (const [fromA, toA, fromB, toB] of text && other ? inBlocks(compare(a, b, MOST_EDITS), a) : [[0, a.length, 0, b.length]]) {
    add("same", a.slice(at, fromA).join(""));
    add("removed", a.slice(fromA, toA).join(""));
    add("added", b.slice(fromB, toB).join(""));
    at = toA;
  }
  add("same", a.slice(at).join(""));
}
