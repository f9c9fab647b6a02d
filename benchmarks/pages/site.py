"""A server on a database of a benchmark, and pages of a headless Chromium, drawn by software, that show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

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
  const arrived = performance.getEntriesByType("resource").filter((resource) => resource.name.includes(part));
  return drawn - Math.max(...arrived.map((resource) => resource.responseEnd));
}
"""
# From the arrival of the last of what was asked under a path to the mark that a view sets when it has drawn that.
MARKED = """
async ([mark, part]) => {
  const drawn = () => performance.getEntriesByName(mark)[0];
  while (!drawn()) await new Promise(requestAnimationFrame);
  const all = performance.getEntriesByType("resource").filter((resource) => resource.name.includes(part));
  const arrived = all.map((resource) => resource.responseEnd).filter((time) => time <= drawn().startTime);
  return drawn().startTime - arrived.at(-1);
}
"""
P95 = "frames.sort((a, b) => a - b)[Math.floor(frames.length * 0.95)]"


def frames_of(begin: str, step: str) -> str:
    """Return a script that takes a step before each frame for 5 s, and returns the 95th percentile of frames in ms.

    Args:
        begin: JavaScript that looks up what the steps are about.
        step: JavaScript for each frame; `at` is the part of the time that has passed.
    """
    return f"""
async () => {{
  {begin}
  const frames = [], start = performance.now();
  for (let last = start; last - start < 5000; ) {{
    const at = (last - start) / 5000;
    {step}
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }}
  return {P95};
}}
"""


@dataclass(frozen=True)
class Site:
    """Pages that show a server.

    browser: what draws them. address: of the server. server: the id of its process.
    """

    browser: Browser
    address: str
    server: int

    def page(self) -> Page:
        """Open a page in a new context, signed in, so that nothing is cached."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        if not context.request.post(f"{self.address}/api/v1/sign-in", data={"token": TOKEN}).ok:
            raise RuntimeError("the server does not know its token")
        return context.new_page()

    def open(self, path: str) -> Page:
        page = self.page()
        page.goto(self.address + path)
        return page

    def browser_s(self, *pids: int) -> float:
        """Return the CPU seconds of the browser so far: of all child processes but the server and these."""
        apart = {process for pid in (self.server, *pids) for process in _tree(pid)}
        return sum(map(_seconds, set(_tree(psutil.Process().pid)[1:]) - apart))


def processor_s(pid: int) -> float:
    """Return the CPU seconds so far of a process and its children."""
    return sum(map(_seconds, _tree(pid)))


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


@contextmanager
def site(url: str) -> Iterator[Site]:
    """Serve a database until the block ends."""
    with serving(url) as server, started() as browser:
        yield Site(browser, f"http://{server.host}:{server.port}", server.pid)
