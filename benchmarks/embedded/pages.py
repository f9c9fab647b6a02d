"""What the pages take in a headless Chromium, drawn by software: a heat map of 64 combinations x 1,000 cases, frames
while it is panned and zoomed, two texts of 10 MB side by side, the first page, and all files together.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.embedded.evidence import CASES, quality
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.workloads.chain import STEPS, workflow
from tests.support.browser import started
from wtb import Sweep
from wtb.hosting.pages.static import WEB
from wtb.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "of-the-benchmark-alone"
LARGEST = 500_000  # bytes of all files
LINES = 200_000  # of a text of 10 MB

# From the arrival of the cells to the mark that the heat map sets when it has drawn them for the first time.
DRAWN = """
async () => {
  const drawn = () => performance.getEntriesByName("heat-map")[0];
  while (!drawn()) await new Promise(requestAnimationFrame);
  const all = performance.getEntriesByType("resource").filter((one) => one.name.includes("/columns"));
  const arrived = all.map((one) => one.responseEnd).filter((time) => time <= drawn().startTime);
  return drawn().startTime - arrived.at(-1);
}
"""
FRAMES = """
async () => {
  const canvas = document.querySelector(".canvas"), box = canvas.getBoundingClientRect(), frames = [];
  const begun = performance.now();
  for (let last = begun; last - begun < 5000; ) {
    const at = (last - begun) / 5000;
    const wheel = { ctrlKey: true, deltaY: at < 0.5 ? -12 : 12, clientX: box.left + box.width / 2, bubbles: true };
    canvas.dispatchEvent(new WheelEvent("wheel", { ...wheel, cancelable: true }));
    const [movementX, movementY] = [12 * Math.sin(20 * at), 4 * Math.cos(9 * at)].map(Math.round);
    canvas.dispatchEvent(new PointerEvent("pointermove", { buttons: 1, movementX, movementY, bubbles: true }));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames.sort((a, b) => a - b)[Math.floor(frames.length * 0.95)];
}
"""
TEXTS = """
async ([path, lines]) => {
  const { compareLines } = await import(path);
  const one = Array.from({ length: lines }, (_, line) => `line ${line} ${"x".repeat(38)}`);
  const other = one.map((text, line) => (line % 5000 === 7 ? `${text}!` : text)).join("\\n");
  const text = one.join("\\n"), begun = performance.now();
  const { hunks } = compareLines(text, other);
  if (hunks.length !== lines / 5000) throw new Error(`${hunks.length} hunks`);
  return performance.now() - begun;
}
"""
FIRST_PAGE = """
async () => {
  while (!document.querySelector("main h1")) await new Promise(requestAnimationFrame);
  return performance.now();
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    swept = Sweep(
        workflow=workflow(),
        cases=[{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        vary=dict.fromkeys(STEPS, "all"),
        evaluate=[quality],
    ).run(database, files=environment.folder / "pages")
    database.close()
    with _server(environment, url) as address, started() as browser:
        first = [_opened(browser, address, "/").evaluate(FIRST_PAGE) for _ in range(runs)]
        drawn, frames = [], []
        for _ in range(runs):
            page = _opened(browser, address, f"/sweeps/{swept.id}")
            drawn.append(page.evaluate(DRAWN))
            frames.append(page.evaluate(FRAMES))
            page.context.close()
        page = _opened(browser, address, "/")
        module = page.evaluate("document.querySelector('script').src").replace("main.js", "lib/text_diff.js")
        texts = [page.evaluate(TEXTS, [module, LINES]) for _ in range(runs)]
    what = f"64 x {CASES:,} cells"
    yield of_rounds("first page", first, "ms", 1_000)
    yield of_rounds(f"{what}: first draw from the arrival of data", drawn, "ms", 100)
    yield of_rounds(f"{what}: frames of 5 s of panning and zooming, p95", frames, "ms", 20)
    yield of_rounds("two texts of 10 MB compared", texts, "ms", 500)
    size = sum(path.stat().st_size for path in WEB.rglob("*") if path.is_file())
    yield of_rounds("all files of the pages", [size / 1000], "kB", LARGEST / 1000)


def _opened(browser: Browser, address: str, path: str) -> Page:
    """Open a page in a context of its own, so that nothing is cached."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    if not context.request.post(f"{address}/api/v1/sign-in", data={"token": TOKEN}).ok:
        raise RuntimeError("the server does not know its token")
    page = context.new_page()
    page.goto(address + path)
    return page


@contextmanager
def _server(environment: Environment, url: str) -> Iterator[str]:
    """Yield the address of a server of its own."""
    given = {**os.environ, "WTB_SERVER_TOKEN": TOKEN}
    command = [sys.executable, "-m", "wtb", "serve", "--port", "0", "--db", url]
    with subprocess.Popen(command, cwd=environment.folder, env=given, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = next(filter(None, (re.search(r"at (http://\S+)/api/v1", line) for line in process.stderr)))
            yield found[1]
        finally:
            process.terminate()
