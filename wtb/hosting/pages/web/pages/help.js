/** A page of the documentation, as it stands in the installation that this server runs. */
import { html, useEffect } from "../lib/html.js";
import { Problem } from "../lib/api.js";
import { useResource, Waiting } from "../lib/resource.js";
import { words } from "../lib/words.js";
import { Manual } from "../views/markdown.js";

/** @param {{parts: string[]}} props */
export function HelpPage({ parts: [name] }) {
  const resource = useResource(async (signal) => {
    const answer = await fetch(`/help/${encodeURIComponent(name)}.md`, { signal });
    if (!answer.ok) throw new Problem(answer.status, {});
    return answer.text();
  }, [name]);
  const text = resource.data;
  useEffect(() => {
    if (text) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }, [text]);
  if (text === undefined) return html`<h1>${words.help.title}</h1><${Waiting} resource=${resource} />`;
  return html`<article class="help"><${Manual} text=${text.replace(/<[!]--[^]*?-->\n?/g, "")} /></article>`;
}
