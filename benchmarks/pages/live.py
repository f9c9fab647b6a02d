"""A sweep of 64 combinations x 1,000 cases that gives 1,000 outcomes a second: how long each takes to the screen.

It runs in a process of its own, through the journal of any run, on SQLite. From the first scores on, the page is asked
at every frame how many there are in what was drawn last; the n-th outcome is drawn once there are n. When it was
committed is what its cell says, which is up to one group of the journal too early. Who of them has how much of a
processor is measured, too: all three share what the machine has.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import Site, processor_s, site
from benchmarks.workloads.chain import workflow
from wtb import Sweep, evaluator
from wtb.store.database import Database
from wtb.store.tables.schema import cells

COMBINATIONS, CASES, RATE = 64, 1_000, 1_000
LOOKED_AT_S = 20
# How many cells have a score in what was drawn, whenever that changes, with the time.
DRAWN = """
async (seconds) => {
  const drawn = () => performance.getEntriesByName("heat-map")[0];
  while (!drawn()) await new Promise(requestAnimationFrame);
  const seen = [], begun = performance.now();
  for (let last; performance.now() - begun < 1000 * seconds; await new Promise(requestAnimationFrame)) {
    const mark = drawn();
    if (mark && mark !== last && mark.detail) {
      seen.push([(performance.timeOrigin + mark.startTime) / 1000, mark.detail]);
    }
    last = mark;
  }
  return seen;
}
"""


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    late, rates = [], []
    shares: dict[str, list[float]] = {"sweep": [], "server": [], "browser": []}
    for number in range(runs):
        url = environment.fresh("sqlite")
        folder = environment.folder / f"live-{number}"
        database = Database(url)
        database.prepare()
        with site(url) as seen, subprocess.Popen([sys.executable, "-m", __name__, url, str(folder)]) as running:
            sweep = _began(database)
            page = seen.open(f"/sweeps/{sweep}")
            before, begun = _spent(running.pid, seen), time.monotonic()
            drawn = page.evaluate(DRAWN, LOOKED_AT_S)
            spent, took_s = _spent(running.pid, seen), time.monotonic() - begun
            running.kill()
        query = sa.select(cells.c.finished_at).where(cells.c.sweep_id == sweep, cells.c.finished_at.is_not(None))
        committed = [at for (at,) in database.tuples(query.order_by(cells.c.finished_at))]
        database.close()
        for who, share in shares.items():
            share.append((spent[who] - before[who]) / took_s)
        took = _latencies(drawn, committed)
        late.append(1000 * sorted(took)[int(0.95 * len(took))])
        rates.append(len(took) / (drawn[-1][0] - drawn[0][0]))
    yield of_rounds("outcomes that were drawn", rates, "1/s")
    yield of_rounds("an outcome from its commit to the screen, p95", late, "ms", 1_000)
    for who, share in shares.items():
        yield of_rounds(f"processors that the {who} takes meanwhile", share, "")


def _spent(sweep: int, seen: Site) -> dict[str, float]:
    """Processor seconds so far of the sweep, the server and the browser; of this process, which waits, none."""
    return {"sweep": processor_s(sweep), "server": processor_s(seen.server), "browser": seen.browser_s(sweep)}


def _began(database: Database) -> str:
    """The sweep, once it has outcomes."""
    query = sa.select(cells.c.sweep_id).where(cells.c.finished_at.is_not(None)).limit(1)
    while not (found := database.tuples(query)):
        time.sleep(0.1)
    return str(found[0][0])


def _latencies(drawn: list[tuple[float, int]], committed: list[float]) -> list[float]:
    """Of the outcomes after those of the first draw: seconds until one that many were drawn."""
    took: list[float] = []
    _, done = drawn[0]
    for at, count in drawn[1:]:
        took += [at - one for one in committed[done:count]]
        done = max(done, count)
    return took


class _Pace:
    """Lets pass so many a second."""

    def __init__(self, rate: int) -> None:
        self.step, self.due, self.lock = 1 / rate, time.monotonic(), threading.Lock()

    def wait(self) -> None:
        with self.lock:
            self.due = max(self.due + self.step, time.monotonic() - 0.1)
            due = self.due
        time.sleep(max(0.0, due - time.monotonic()))


def run(url: str, folder: Path) -> None:
    """Run the sweep."""
    pace = _Pace(RATE)

    @evaluator(better="higher")
    def quality(case: Any, result: Any) -> float:
        pace.wait()
        return float(len(result.state["c"]) + result.state["b"] % 7)

    database = Database(url)
    cases = [{"id": str(number), "input": {"x": number}} for number in range(CASES)]
    varied = workflow(variants=COMBINATIONS)
    Sweep(workflow=varied, cases=cases, vary={"C": "all"}, evaluate=[quality]).run(database, files=folder)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
