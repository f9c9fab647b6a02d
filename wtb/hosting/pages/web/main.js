/** The pages: which one an address shows, and what stands around each of them. */
import { isRefused, token } from "./lib/api.js";
import { html, render, useEffect } from "./lib/html.js";
import { useKeys } from "./lib/keys.js";
import { address } from "./lib/router.js";
import { words } from "./lib/words.js";
import { AccessPage } from "./pages/access.js";
import { ComparePage } from "./pages/compare.js";
import { CostsPage } from "./pages/costs.js";
import { ExecutionPage } from "./pages/execution.js";
import { InboxPage } from "./pages/inbox.js";
import { SchedulesPage } from "./pages/schedules.js";
import { SignIn } from "./pages/sign_in.js";
import { SweepPage } from "./pages/sweep.js";
import { SweepsPage } from "./pages/sweeps.js";
import { WorkersPage } from "./pages/workers.js";
import { KeySheet, SideBar } from "./views/frame.js";

/** Of each page its address, in which what stands in parentheses is handed to it. */
const PAGES = /** @type {[RegExp, any][]} */ ([
  [/^\/$/, SweepsPage],
  [/^\/sweeps\/([^/]+)$/, SweepPage],
  [/^\/executions\/([^/]+)$/, ExecutionPage],
  [/^\/compare\/([^/]+)\/([^/]+)$/, ComparePage],
  [/^\/inbox$/, InboxPage],
  [/^\/schedules$/, SchedulesPage],
  [/^\/workers$/, WorkersPage],
  [/^\/costs$/, CostsPage],
  [/^\/access$/, AccessPage],
]);

function Page() {
  const { path } = address.value;
  for (const [pattern, Found] of PAGES) {
    const parts = pattern.exec(path);
    if (parts) return html`<${Found} key=${path} parts=${parts.slice(1).map(decodeURIComponent)} />`;
  }
  return html`<h1>${words.error.notFound}</h1>`;
}

function App() {
  useKeys();
  const unknown = isRefused.value || token.value === null;
  useEffect(() => {
    document.title = unknown ? `${words.signIn.title} · WTB` : "WTB";
  }, [unknown]);
  if (unknown) return html`<${SignIn} />`;
  return html`<a class="skip" href="#content">${words.skip}</a>
    <div class="frame">
      <${SideBar} />
      <main id="content" tabindex="-1"><${Page} /></main>
    </div>
    <${KeySheet} />`;
}

render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
