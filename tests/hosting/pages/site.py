"""Pages of a browser that look at a server of the tests, and what they must not do meanwhile."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hosting.api.serving import TOKEN, Server
from tests.support.browser import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.support.project import Project

# Of axe-core. What a page does well is not listed: describing that takes as long as to look.
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}

PICTURES = "WTB_PICTURES"  # a folder: each page is kept as a picture there, for whoever wants to look at what tests saw


def wait_until(page: Page, expression: str, patience_s: float = PATIENCE_MS / 1000) -> None:
    """Wait until an expression of JavaScript is true.

    `Page.wait_for_function` evaluates text within the page when it looks again, which the pages' policy forbids.
    """
    end = time.monotonic() + patience_s
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not so after {patience_s:g} s: {expression}"
        page.wait_for_timeout(50)


def take_picture(page: Page) -> None:
    """Keep what a page shows, where somebody asked for pictures."""
    if folder := os.environ.get(PICTURES):
        Path(folder).mkdir(parents=True, exist_ok=True)
        test = re.sub(r"\W+", "-", os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0])
        page.screenshot(path=Path(folder) / f"{test}-{time.monotonic_ns()}.png", full_page=True)


@dataclass
class Site:
    """A server, and pages of a browser that look at it.

    A context of the browser that a test closes is emptied and used again: it has loaded a hundred modules of the pages.

    Attributes:
        opened: The pages of the test that runs.
        faults: What has gone wrong in them.
    """

    server: Server
    browser: Browser
    opened: list[Page] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _looks: dict[BrowserContext, tuple[bool, bool]] = field(default_factory=dict)
    _idle: list[BrowserContext] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def open(
        self, path: str, *, token: str | None = TOKEN, width: int = 1280, dark: bool = False, touch: bool = False
    ) -> Page:
        """Open a page, signed in; errors, violations of the policy and requests to elsewhere are faults."""
        context = self._take_context(dark=dark, touch=touch)
        if token is not None:
            assert context.request.post(self.url + "/api/v1/sign-in", data={"token": token}).ok
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("request", lambda request: request.url.startswith(self.url) or self.faults.append(request.url))
        page.goto(self.url + path)
        self.opened.append(page)
        return page

    def _take_context(self, *, dark: bool, touch: bool) -> BrowserContext:
        look = (dark, touch)
        for context in self._idle:
            if self._looks[context] == look:
                self._idle.remove(context)
                return context
        context = self.browser.new_context(color_scheme="dark" if dark else "light", has_touch=touch)
        context.set_default_timeout(PATIENCE_MS)
        self._looks[context] = look
        return context

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:  # what a page shows in its own words
            self.faults.append(text)

    def post(self, page: Page, path: str, data: object) -> tuple[int, str]:
        """Send what a page may send with its cookie. Returns the status of the answer, and the answer."""
        csrf = page.request.get(f"{self.url}/api/v1/sign-in").json()["csrf"]
        headers = {"X-CSRF-Token": csrf, "Origin": self.url}
        answer = page.request.post(f"{self.url}/api/v1{path}", data=data, headers=headers)
        return answer.status, answer.text()

    def close(self) -> None:
        """Close all pages."""
        for page in self.opened:
            if page.is_closed() or not page.url.startswith(self.url):
                self._looks.pop(page.context)
                page.context.close()
                continue
            self._check_safe(page)
            take_picture(page)
            page.evaluate("localStorage.clear()")
            self._empty(page.context)
        self.opened.clear()

    def end(self) -> None:
        """Close all contexts of the browser."""
        for context in self._looks:
            context.close()

    def _empty(self, context: BrowserContext) -> None:
        """Leave nothing of a test in a context, and keep what has no state: the modules of the pages."""
        for page in context.pages:
            page.close()
        context.clear_cookies()
        context.set_offline(False)
        self._idle.append(context)

    def go(self, page: Page, path: str) -> None:
        """Go to another page of the site, and wait until all of it is there."""
        self._check_safe(page)
        page.goto(self.url + path)
        page.locator("main h1").first.wait_for()
        page.get_by_text("Loading").first.wait_for(state="hidden")

    def _check_safe(self, page: Page) -> None:
        """Note it where what users wrote has run."""
        if page.evaluate("window.ran"):
            self.faults.append(f"a script ran at {page.url}")

    def check_readable(self, page: Page) -> None:
        """Hold what is shown against the rules of axe-core."""
        from axe_playwright_python.sync_playwright import Axe

        take_picture(page)
        report = Axe().run(page, options=RULES)
        assert report.violations_count == 0, f"{page.url}\n{report.generate_report()}"


@contextmanager
def reported(site: Site, project: Project, sweep: str, folder: Path) -> Iterator[tuple[Page, str]]:
    """Yield a page for the report of a sweep and the address of the report, which asks no server for anything."""
    file = folder / "report.html"
    project.inside("report", sweep, "-o", file, check=0)
    context = site.browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.on("pageerror", lambda error: site.faults.append(str(error)))
    page.on("console", lambda message: message.type == "error" and site.faults.append(message.text))
    yield page, file.as_uri()
    assert {url.partition(":")[0] for url in urls} <= {"file", "data", "about"}
    context.close()


@contextmanager
def served(project: Project, browser: Browser, *options: str) -> Iterator[Site]:
    """Yield a site of a project, whose server is started for it. options: of `wtb serve`."""
    server = Server(project)
    server.start(options=options)
    assert server.running is not None
    with server.running:
        site = Site(server, browser)
        yield site
        site.end()
