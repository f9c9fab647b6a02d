"""A server on a database of a benchmark, and pages of a headless Chromium, drawn by software, that look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness.serving import TOKEN, serving
from tests.support.browser import started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# From the arrival of the last of what was asked under a path to the first picture after something is in the document.
DRAWN = """
async ([selector, part]) => {
  while (!document.querySelector(selector)) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done));
  const drawn = performance.now();
  const arrived = performance.getEntriesByType("resource").filter((one) => one.name.includes(part));
  return drawn - Math.max(...arrived.map((one) => one.responseEnd));
}
"""
P95 = "frames.sort((a, b) => a - b)[Math.floor(frames.length * 0.95)]"


@dataclass(frozen=True)
class Site:
    """Pages that look at a server.

    browser: what draws them. address: of the server. server: the id of its process.
    """

    browser: Browser
    address: str
    server: int

    def page(self) -> Page:
        """A page in a context of its own, signed in, so that nothing is cached."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        if not context.request.post(f"{self.address}/api/v1/sign-in", data={"token": TOKEN}).ok:
            raise RuntimeError("the server does not know its token")
        return context.new_page()

    def open(self, path: str) -> Page:
        page = self.page()
        page.goto(self.address + path)
        return page


@contextmanager
def site(url: str) -> Iterator[Site]:
    """Serve a database until the block ends."""
    with serving(url) as server, started() as browser:
        yield Site(browser, f"http://{server.host}:{server.port}", server.pid)
