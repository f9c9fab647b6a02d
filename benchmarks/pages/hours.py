"""A page that is open for hours of a sweep that runs: what its memory grows by.

The page is real and its answers are those of a server; `fetch` gives them again without asking, and timers run faster:
there is always another event. For two minutes it looks at cells and figures as often as it can; how many hours that
would be is told, at one look each 0.7 s, more than which no page takes. Memory is the heap after a collection.
"""

from __future__ import annotations

import sys
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

ROUNDS, ROUND_S = 9, 14.0
LOOK_S = 0.7  # between two looks of a page at cells that change
QUICKER = 700
# `again` counts the answers with cells. Each event is another one, and every seventh changes what is shown.
AGAIN = """
(() => {
  const kept = new Map(), real = fetch.bind(window), later = setTimeout.bind(window);
  window.again = 0;
  window.setTimeout = (run, ms = 0, ...rest) => later(run, ms / QUICKER, ...rest);
  window.fetch = async (url, given) => {
    const path = String(url);
    if (path.includes("/stream?")) {
      const { name } = JSON.parse(new URL(path, location).searchParams.get("subscribe"));
      const message = { subscription: name, message: { version: 1, id: "1-1", type: "events", events: [] } };
      const events = new TextEncoder().encode(`id: ${name}:1-1\\ndata: ${JSON.stringify(message)}\\n\\n`);
      const pull = (to) => new Promise((done) => later(done, 1)).then(() => to.enqueue(events));
      const stream = new ReadableStream({ pull });
      given?.signal?.addEventListener("abort", () => stream.cancel().catch(() => 0));
      return new Response(stream);
    }
    if (!path.startsWith("/api/v1/sweeps/")) return real(url, given);
    if (!kept.has(path)) {
      const answer = await real(url, given);
      kept.set(path, [await answer.arrayBuffer(), answer.status]);
    }
    const [body, status] = kept.get(path);
    const copy = body.slice(0);
    if (path.includes("/columns") && status === 200) new Uint8Array(copy).fill(++window.again % 3, copy.byteLength - 8);
    return new Response(copy, { status });
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
        page.add_init_script(AGAIN)
        page.goto(f"{seen.address}/sweeps/{swept.id}")
        page.get_by_role("grid").wait_for()
        heap = page.context.new_cdp_session(page)
        held, looks = [], []
        for _ in range(ROUNDS):
            page.wait_for_timeout(1000 * ROUND_S)
            held.append(_held(heap))
            looks.append(page.evaluate("window.again"))
        elements = page.evaluate("document.querySelectorAll('*').length")
    print("heap, MB, by looks:", *(f"{mb:.2f}@{count}" for mb, count in zip(held, looks, strict=True)), file=sys.stderr)
    hours = (looks[-1] - looks[0]) * LOOK_S / 3600
    yield of_rounds("a page open for hours: how many", [hours], "h")
    yield of_rounds("a page open for hours: heap at their beginning", [held[0]], "MB")
    yield of_rounds("a page open for hours: growth of the heap until their end", [held[-1] - held[0]], "MB", 0.5)
    yield of_rounds("a page open for hours: elements at the end", [elements], "")


def _held(session: Any) -> float:
    """MB of the heap of scripts after garbage was collected."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6
