/** The colours of scores: from poor to good on a scale of steps, by day and by night. */

/** @param {number} colour as `packed` makes it */
export const css = (colour) => `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;

/** Where a score is on a scale of so many steps, the worst first. @param {number} score @param {[number, number]} scale @param {number} steps */
export function stepOf(score, [worst, best], steps) {
  return Math.max(0, Math.min(steps - 1, Math.round(((score - worst) * (steps - 1)) / (best - worst || 1))));
}

/** Whether white is easier to read on a colour than black, by their contrast. @param {number} colour as `packed` makes it */
export function isDark(colour) {
  const [red, green, blue] = [0, 8, 16].map((shift) => ((colour >> shift) & 255) / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  return 1.05 / light > light / 0.058; // of white, and of the ink of figures
}

/** From poor to good: dark red, sand, deep teal; told apart with colour-blind eyes and in grey. @param {string} paper */
export function rampOf(paper) {
  const stops = isDark(packed(rgb(paper))) ? [[122, 32, 40], [120, 100, 62], [42, 150, 140]] : [[178, 60, 52], [242, 222, 170], [24, 128, 122]];
  return Array.from({ length: 65 }, (_, step) => {
    const place = (step / 64) * (stops.length - 1);
    const from = Math.min(Math.floor(place), stops.length - 2);
    return packed(stops[from].map((channel, index) => Math.round(channel + (stops[from + 1][index] - channel) * (place - from))));
  });
}

/** @param {string} text as in a style sheet, `#rrggbb` */
export function rgb(text) {
  const code = parseInt(text.slice(1), 16);
  return [(code >> 16) & 255, (code >> 8) & 255, code & 255];
}

/** @param {number[]} parts */
export const packed = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
