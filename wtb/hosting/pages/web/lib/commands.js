/** Commands that texts of the server name, as what a browser has for them: a page, or a button of one. */
import { html } from "./html.js";
import { Link } from "./router.js";
import { words } from "./words.js";

const CODE = /`(wtb )?([^`\n]+)`/g;
const HINT = /; `wtb [^`]*`[^;]*$/;

/** Of commands that have a page of their own, its address; those of `wtb admin` without `admin`. */
const PAGES = /** @type {Record<string, string>} */ ({
  list: "/", approvals: "/inbox", costs: "/costs", submit: "/submit", "workflow list": "/submit",
  "schedule list": "/schedules", "session list": "/sessions", "session create": "/sessions", "session change": "/sessions", "budget list": "/costs",
  "token list": "/access", "token create": "/access", "user list": "/access", "team list": "/access", "access list": "/access",
});

/** What a browser has for a command: words, and an address if it has a page of its own; null if a terminal alone has it. @param {string} command without `wtb`, with or without `admin` @returns {{text: string, to?: string} | null} */
function inBrowser(command) {
  const [first, second = ""] = command.replace(/^admin /, "").split(" ");
  const { pages, ...buttons } = /** @type {Record<string, any>} */ (words.commands);
  const verb = [`${first} ${second}`, first].find((name) => name in PAGES || name in buttons);
  return verb === undefined ? null : { text: buttons[verb] ?? pages[PAGES[verb]], to: PAGES[verb] };
}

/**
 * A text of the server, in which a command is a link to the page that does the same, or is called as its button; commands
 * that no page has stay commands.
 * @param {{text: string}} props
 */
export function Told({ text }) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(CODE)) {
    parts.push(text.slice(at, match.index));
    const command = match[1] ? inBrowser(match[2]) : null;
    parts.push(!command ? html`<code>${match[1] ?? ""}${match[2]}</code>` : command.to ? html`<${Link} to=${command.to}>${command.text}<//>` : command.text);
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return html`${parts}`;
}

/** What is not there, without the command that lists what is: a page has a link for that. @param {string} text */
export const withoutHint = (text) => text.replace(HINT, "");

/** A text that begins as a sentence does. @param {string} text */
export const sentence = (text) => (/^[a-z]+[ ,]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);
