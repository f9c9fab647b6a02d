/**
 * Markdown as a tree of blocks. Nothing in it becomes HTML: what a model wrote is text, whatever it looks like. Links lead to
 * http, https and mail only; images are files that nodes left, never of another server.
 */

/** @typedef {{kind: string, text?: string, level?: number, href?: string, src?: string, ordered?: boolean, start?: number, children?: Node[], items?: Node[][], rows?: Node[][][], isPlain?: boolean}} Node */

const MOST_DEEP = 12; // lists and quotations within each other
const SAFE = /^(https?:\/\/|mailto:)/i;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

/** @param {string} text @returns {Node[]} */
export const parse = (text) => blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);

/** Where a link leads if it may, else null. @param {string} address */
export function safeLink(address) {
  // Browsers skip what cannot be seen within a scheme.
  const plain = address.replace(/[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u2028-\u202f\ufeff]/g, "");
  return plain === address && SAFE.test(plain) ? plain : null;
}

/** The path of a file that nodes left, else null. @param {string} address */
export function filePath(address) {
  if (/^[a-z][a-z0-9+.-]*:|^[/\\]|[\u0000-\u001f\\]/i.test(address)) return null;
  const path = address.replace(/^\.\//, "");
  return path && !path.split("/").includes("..") ? path : null;
}

/** @param {string[]} lines @param {number} deep @returns {Node[]} */
function blocks(lines, deep) {
  const nodes = /** @type {Node[]} */ ([]);
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (!line.trim()) at++;
    else at = fenced(lines, at, nodes) ?? heading(line, at, nodes) ?? quoted(lines, at, nodes, deep) ?? listed(lines, at, nodes, deep) ?? tabled(lines, at, nodes) ?? paragraph(lines, at, nodes);
  }
  return nodes;
}

/** @param {string[]} lines @param {number} at @param {Node[]} nodes */
function fenced(lines, at, nodes) {
  const open = /^\s{0,3}(`{3,}|~{3,})/.exec(lines[at]);
  if (!open) return undefined;
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(open[1])) end++;
  nodes.push({ kind: "code-block", text: lines.slice(at + 1, end).join("\n") });
  return end + 1;
}

/** @param {string} line @param {number} at @param {Node[]} nodes */
function heading(line, at, nodes) {
  const parts = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (parts) nodes.push({ kind: "heading", level: parts[1].length, children: inline(parts[2]) });
  else if (/^\s{0,3}([-*_])\s*(\1\s*){2,}$/.test(line)) nodes.push({ kind: "rule" });
  else return undefined;
  return at + 1;
}

/** @param {string[]} lines @param {number} at @param {Node[]} nodes @param {number} deep */
function quoted(lines, at, nodes, deep) {
  if (!/^\s{0,3}>/.test(lines[at]) || deep >= MOST_DEEP) return undefined;
  let end = at;
  while (end < lines.length && /^\s{0,3}>/.test(lines[end])) end++;
  const inner = lines.slice(at, end).map((line) => line.replace(/^\s{0,3}>\s?/, ""));
  nodes.push({ kind: "quotation", children: blocks(inner, deep + 1) });
  return end;
}

/** @param {string[]} lines @param {number} at @param {Node[]} nodes @param {number} deep */
function listed(lines, at, nodes, deep) {
  const first = ITEM.exec(lines[at]);
  if (!first || deep >= MOST_DEEP) return undefined;
  const ordered = /\d/.test(first[2]);
  const indent = first[1].length;
  const itemLines = /** @type {string[][]} */ ([]);
  let end = at;
  for (; end < lines.length; end++) {
    const match = ITEM.exec(lines[end]);
    if (match && match[1].length <= indent + 1) {
      if (/\d/.test(match[2]) !== ordered || match[1].length < indent) break;
      itemLines.push([match[3]]);
    } else if (lines[end].trim() && /^\s/.test(lines[end])) itemLines[itemLines.length - 1].push(lines[end].slice(Math.min(indent + 2, lines[end].search(/\S/))));
    else if (!lines[end].trim() && (ITEM.test(lines[end + 1] ?? "") || /^\s+\S/.test(lines[end + 1] ?? ""))) itemLines[itemLines.length - 1].push("");
    else break;
  }
  nodes.push({ kind: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items: itemLines.map((ownLines) => tight(blocks(ownLines, deep + 1))) });
  return end;
}

/** An item of one paragraph as its text. @param {Node[]} parts @returns {Node[]} */
function tight(parts) {
  const [first, ...rest] = parts;
  return first?.kind === "paragraph" ? [...(first.children ?? []), ...rest] : parts;
}

/** @param {string[]} lines @param {number} at @param {Node[]} nodes */
function tabled(lines, at, nodes) {
  if (!lines[at].includes("|") || !/^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "") || !(lines[at + 1] ?? "").includes("|")) return undefined;
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const rows = [lines[at], ...lines.slice(at + 2, end)].map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim())));
  nodes.push({ kind: "table", rows });
  return end;
}

/** @param {string[]} lines @param {number} at @param {Node[]} nodes */
function paragraph(lines, at, nodes) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !/^\s{0,3}(#{1,6}\s|>|`{3,}|~{3,})/.test(lines[end]) && !ITEM.test(lines[end])) end++;
  nodes.push({ kind: "paragraph", children: inline(lines.slice(at, end).join("\n")) });
  return end;
}

// Of all that starts at a place the first that is whole; none of them is searched for more than once in a text.
const INLINE = /(?<code>`+)(?<coded>[^`][^]*?)\k<code>(?!`)|!\[(?<alt>[^[\]\n]{0,1000})\]\((?<src>[^()\s]{1,2000})\)|\[(?<label>[^[\]\n]{1,1000})\]\((?<href>[^()\s]{1,2000})\)|<(?<auto>https?:\/\/[^\s<>]{1,2000})>|(?<bare>\bhttps?:\/\/[^\s<>()"'`]{1,2000}[^\s<>()"'`.,;:!?])|\*\*(?=\S)(?<strong>[^*\n]{1,2000})\*\*|__(?=\S)(?<strong2>[^_\n]{1,2000})__|~~(?=\S)(?<strike>[^~\n]{1,2000})~~|\*(?=\S)(?<soft>[^*\n]{1,2000})\*|(?<![\p{L}\p{N}_])_(?=\S)(?<soft2>[^_\n]{1,2000})_(?![\p{L}\p{N}_])|\\(?<escaped>[!-/:-@[-`{-~])/gu;

/** @param {string} text @param {number} [deep] @returns {Node[]} */
export function inline(text, deep = 0) {
  const nodes = /** @type {Node[]} */ ([]);
  let at = 0;
  if (deep < 4) {
    for (const match of text.matchAll(INLINE)) {
      if (match.index > at) nodes.push({ kind: "text", text: text.slice(at, match.index) });
      nodes.push(part(/** @type {Record<string, string>} */ (match.groups), match[0], deep + 1));
      at = match.index + match[0].length;
    }
  }
  if (at < text.length) nodes.push({ kind: "text", text: text.slice(at) });
  return nodes;
}

/** @param {Record<string, string>} groups @param {string} whole @param {number} deep @returns {Node} */
function part(groups, whole, deep) {
  const { coded, alt, src, label, href, auto, bare, strike, escaped } = groups;
  const [strong, soft] = [groups.strong ?? groups.strong2, groups.soft ?? groups.soft2];
  if (coded !== undefined) return { kind: "code", text: coded };
  if (src !== undefined) return { kind: "image", text: alt, src: filePath(src) ?? undefined };
  if (strong !== undefined) return { kind: "strong", children: inline(strong, deep) };
  if (soft !== undefined) return { kind: "emphasis", children: inline(soft, deep) };
  if (strike !== undefined) return { kind: "struck", children: inline(strike, deep) };
  if (escaped !== undefined) return { kind: "text", text: escaped };
  const address = safeLink(href ?? auto ?? bare ?? "");
  if (address === null) return { kind: "text", text: whole, href, children: label === undefined ? undefined : inline(label, 4) }; // for what has pages of its own
  return { kind: "link", href: address, children: label === undefined ? [{ kind: "text", text: address }] : inline(label, 4) };
}
