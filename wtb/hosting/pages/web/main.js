/** The pages: which one an address shows, and what stands around each of them. */
import { identity, signIn, whoAmI } from "./lib/api.js";
import { html, render, useEffect, useRef } from "./lib/html.js";
import { useKeys } from "./lib/keys.js";
import { address, Link, useTitle } from "./lib/router.js";
import { words } from "./lib/words.js";
import { AccessPage } from "./pages/access.js";
import { ComparePage } from "./pages/compare.js";
import { CostsPage } from "./pages/costs.js";
import { DiffPage } from "./pages/diff.js";
import { ExecutionPage } from "./pages/execution.js";
import { HelpPage } from "./pages/help.js";
import { InboxPage } from "./pages/inbox.js";
import { LabelPage } from "./pages/label.js";
import { RowsPage } from "./pages/rows.js";
import { SchedulesPage } from "./pages/schedules.js";
import { SessionsPage } from "./pages/sessions.js";
import { explain, SignIn, takeCode } from "./pages/sign_in.js";
import { SubmitPage } from "./pages/submit.js";
import { SweepPage } from "./pages/sweep.js";
import { SweepsPage } from "./pages/sweeps.js";
import { WorkersPage } from "./pages/workers.js";
import { KeySheet, SideBar } from "./views/frame.js";

/** Of each page its address, in which what stands in parentheses is handed to it, and its title unless it sets one. */
const PAGES = /** @type {[RegExp, any, string?][]} */ ([
  [/^\/$/, SweepsPage, words.sweeps.title],
  [/^\/sweeps\/([^/]+)$/, SweepPage],
  [/^\/sweeps\/([^/]+)\/compare$/, RowsPage],
  [/^\/sweeps\/([^/]+)\/label$/, LabelPage],
  [/^\/executions\/([^/]+)$/, ExecutionPage],
  [/^\/executions\/([^/]+)\/diff\/([^/]+)$/, DiffPage],
  [/^\/compare\/([^/]+)\/([^/]+)$/, ComparePage],
  [/^\/submit$/, SubmitPage, words.submit.title],
  [/^\/inbox$/, InboxPage, words.inbox.title],
  [/^\/schedules$/, SchedulesPage, words.schedules.title],
  [/^\/workers$/, WorkersPage, words.workers.title],
  [/^\/costs$/, CostsPage, words.costs.title],
  [/^\/access$/, AccessPage, words.access.title],
  [/^\/sessions$/, SessionsPage, words.sessions.title],
  [/^\/help\/([\w-]+)$/, HelpPage, words.help.title],
]);

function Page() {
  const { path } = address.value;
  const isFirst = useRef(true);
  useEffect(() => {
    // Whoever came by a link or a key goes on from the beginning of the page, and screen readers read where they are.
    if (!isFirst.current) document.getElementById("content")?.focus({ preventScroll: true });
    isFirst.current = false;
    const page = PAGES.find(([pattern]) => pattern.test(path));
    if (page) document.title = page[2] ? `${page[2]} · WTB` : "WTB"; // until the page knows better
  }, [path]);
  for (const [pattern, Found] of PAGES) {
    const parts = pattern.exec(path);
    if (parts) return html`<${Found} key=${path} parts=${parts.slice(1).map(decodeURIComponent)} />`;
  }
  return html`<${Nowhere} path=${path} />`;
}

/** @param {{path: string}} props */
function Nowhere({ path }) {
  useTitle(words.error.notFound);
  return html`<h1>${words.error.notFound}</h1><p><code>${path}</code></p><p><${Link} to="/">${words.error.toSweeps}<//></p>`;
}

const ASK_AGAIN_MS = 1000;

/** Sign in by the code of the address if it has one, else find out who this browser is signed in as already. */
async function begin() {
  const code = takeCode();
  try {
    if (code) return await signIn({ code });
  } catch (error) {
    explain(error, words.signIn.wrongCode);
  }
  try {
    await whoAmI();
  } catch {
    setTimeout(begin, ASK_AGAIN_MS); // the server is away
  }
}

function App() {
  useKeys();
  const isKnown = Boolean(identity.value);
  useTitle(isKnown ? undefined : words.signIn.title);
  if (identity.value === undefined) return html`<p class="quiet" role="status">${words.loading}</p>`;
  if (!isKnown) return html`<${SignIn} />`;
  return html`<a class="skip" href="#content">${words.skip}</a>
    <div class="frame">
      <${SideBar} />
      <main id="content" tabindex="-1"><${Page} /></main>
    </div>
    <${KeySheet} />`;
}

begin();
addEventListener("hashchange", () => location.hash && begin()); // the address was opened where a page was already
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
