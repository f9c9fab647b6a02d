"""Growth of memory of a page that is open for the eight hours of a running sweep.

The page is real and its answers are those of a server; `fetch` gives them again without asking. Time runs QUICKER: its
timers are that much shorter, and outcomes come that much sooner, five messages of them each second of the sweep. How
many hours went by is what the page did of them: messages that it took, looks at the status, and looks at the figures,
the least of these. Memory is the heap after a collection.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from benchmarks.embedded.evidence import quality
from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import site
from benchmarks.workloads.chain import workflow
from wtb import Sweep
from wtb.store.database import Database
from wtb.store.tables.schema import sweeps

HOURS, LOOKS = 8, 10  # looks at the heap
MOST_S = 600.0
QUICKER = 100
# Seconds of the sweep from one to the next, as in wtb/hosting/pages/web/pages/sweep.js and the server's streams.
EVERY_S = {"messages": 0.2, "statuses": 0.7, "figures": 5.0}
SIMULATED = """
(() => {
  const responses = new Map(), real = fetch.bind(window), later = setTimeout.bind(window);
  const done = (window.done = { messages: 0, statuses: 0, figures: 0 });
  window.setTimeout = (run, ms = 0, ...rest) => later(run, ms / QUICKER, ...rest);
  const outcome = (number) => ({ kind: "cell.succeeded", data: { case: String(number % 10), repeat: 0,
    combination: Math.floor(number / 10) % 4, scores: { quality: number % 3 } } });
  window.fetch = async (url, init) => {
    const path = String(url);
    if (path.includes("/stream?")) {
      const { name } = JSON.parse(new URL(path, location).searchParams.get("subscribe"));
      const coded = new TextEncoder();
      const next = () => {
        const number = done.messages++;
        const events = Array.from({ length: 20 }, (_, place) => outcome(20 * number + place + number));
        const message = { version: 1, id: `1-${number}`, type: "events", events };
        const data = JSON.stringify({ subscription: name, message });
        return coded.encode(`id: ${name}:${message.id}\\ndata: ${data}\\n\\n`);
      };
      const second = (to) => Array.from({ length: 5 }, next).forEach((chunk) => to.enqueue(chunk));
      const pull = (to) => new Promise((done) => later(done, 1000 / QUICKER)).then(() => second(to));
      const stream = new ReadableStream({ pull });
      init?.signal?.addEventListener("abort", () => stream.cancel().catch(() => 0));
      return new Response(stream);
    }
    if (!path.startsWith("/api/v1/sweeps/")) return real(url, init);
    if (path.endsWith("/status")) done.statuses++;
    if (path.endsWith("/figures")) done.figures++;
    if (!responses.has(path)) {
      const answer = await real(url, init);
      responses.set(path, [await answer.arrayBuffer(), answer.status]);
    }
    const [body, status] = responses.get(path);
    return new Response(body.slice(0), { status });
  };
})();
""".replace("QUICKER", str(QUICKER))


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    url = environment.fresh("sqlite")
    database = Database(url)
    swept = Sweep(
        workflow=workflow(),
        cases=[{"id": str(number), "input": {"x": number}} for number in range(10)],
        vary={"A": "all"},
        evaluate=[quality],
    ).run(database, files=environment.folder / "hours")
    with database.write() as connection:
        connection.execute(sa.update(sweeps).where(sweeps.c.id == swept.id).values(status="running", finished_at=None))
    database.close()
    with site(url) as seen:
        page = seen.page()
        page.add_init_script(SIMULATED)
        page.goto(f"{seen.address}/sweeps/{swept.id}")
        page.get_by_role("grid").wait_for()
        heap = page.context.new_cdp_session(page)
        start, heap_sizes = time.monotonic(), list[tuple[float, float]]()
        while (hours := _hours(page)) < HOURS and time.monotonic() - start < MOST_S:
            if hours >= HOURS * len(heap_sizes) / LOOKS:
                heap_sizes.append((hours, _heap_mb(heap)))
            page.wait_for_timeout(250)
        heap_sizes.append((hours, _heap_mb(heap)))
        elements = page.evaluate("document.querySelectorAll('*').length")
    print("heap, MB, by hours:", *(f"{mb:.2f}@{hours:.1f}" for hours, mb in heap_sizes), file=sys.stderr)
    first = heap_sizes[1][1]  # once the page has done everything for the first time
    yield of_rounds("a page open for hours: how many", [hours], "h", HOURS, at="least")
    yield of_rounds("a page open for hours: heap after the first of them", [first], "MB")
    yield of_rounds("a page open for hours: growth of the heap until their end", [heap_sizes[-1][1] - first], "MB", 0.5)
    yield of_rounds("a page open for hours: elements at the end", [elements], "")


def _hours(page: Any) -> float:
    """Return the hours of the sweep that the page has seen."""
    done = page.evaluate("window.done")
    return min(float(done[what]) * every for what, every in EVERY_S.items()) / 3600


def _heap_mb(session: Any) -> float:
    """Return the MB of the script heap after garbage collection."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6
