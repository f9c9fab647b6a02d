"""A sweep of 64 combinations x 1,000 cases that gives 1,000 outcomes a second: the delay of each to the screen.

A script in a process of its own writes them through the journal of any run, on SQLite. From the first scores on, the
page is asked at every frame how many there are in what was drawn last; the n-th outcome is drawn once there are n. When
it was committed is what its cell says, which is up to one group of the journal too early. Who of them has how much of a
processor is measured, too: all three share what the machine has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.pages.site import Site, processor_s, site
from benchmarks.workloads.chain import workflow
from wtb.core.scoring.measure import Measure, Score
from wtb.execution import rows
from wtb.execution.journal import Journal
from wtb.execution.load import load_executions
from wtb.execution.state import SweepIds
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.process_identity import identity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases
from wtb.store.runs.flush import flush
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.schema import cells

COMBINATIONS, CASES, RATE = 64, 1_000, 1_000
DURABILITY_S = 0.02  # that of a run by default
BEHIND_S = 0.5  # that are caught up with, such as those of a claim
LOOKED_AT_S = 20
# How many cells have a score in what was drawn, whenever that changes, with the time.
DRAWN = """
async (seconds) => {
  const drawn = () => performance.getEntriesByName("heat-map")[0];
  while (!drawn()) await new Promise(requestAnimationFrame);
  const seen = [], start = performance.now();
  for (let last; performance.now() - start < 1000 * seconds; await new Promise(requestAnimationFrame)) {
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
    shares: dict[str, list[float]] = {"script": [], "server": [], "browser": []}
    for number in range(runs):
        url = environment.fresh("sqlite")
        folder = environment.folder / f"live-{number}"
        database = Database(url)
        database.prepare()
        with site(url) as seen, subprocess.Popen([sys.executable, "-m", __name__, url, str(folder)]) as running:
            sweep = _began(database)
            page = seen.open(f"/sweeps/{sweep}")
            before, start = _spent(running.pid, seen), time.monotonic()
            drawn = page.evaluate(DRAWN, LOOKED_AT_S)
            spent, took_s = _spent(running.pid, seen), time.monotonic() - start
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


def _spent(script: int, seen: Site) -> dict[str, float]:
    """Return the CPU seconds so far of the script, the server and the browser, but not of this process, which waits."""
    return {"script": processor_s(script), "server": processor_s(seen.server), "browser": seen.browser_s(script)}


def _began(database: Database) -> str:
    """Return the id of the sweep, once it has outcomes."""
    query = sa.select(cells.c.sweep_id).where(cells.c.finished_at.is_not(None)).limit(1)
    while not (committed := database.tuples(query)):
        time.sleep(0.1)
    return str(committed[0][0])


def _latencies(drawn: list[tuple[float, int]], committed: list[float]) -> list[float]:
    """Return the seconds from commit to screen of each outcome after those of the first draw."""
    took: list[float] = []
    _, done = drawn[0]
    for at, count in drawn[1:]:
        took += [at - committed_at for committed_at in committed[done:count]]
        done = max(done, count)
    return took


def write(url: str, folder: Path) -> None:
    """Write an outcome with a score for each cell at a steady rate, through a journal: no code of nodes runs."""
    database = Database(url)
    keys = {
        "workflow": "bench:wf",
        "cases": [{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        "vary": {"C": "all"},
        "evaluate": ["bench:quality"],
        "run": {"share": False},
    }
    varied = workflow(variants=COMBINATIONS)
    prepared = prepare(parse_spec(keys), workflow=varied, evaluators={"bench:quality": lambda case, result: 0.0})
    sweep = find_sweep(database, prepared.submit(database, workspaces_of(database, folder)))
    runner = identity()
    leases.register(database, runner)
    leases.move_sweep(database, sweep.id, "running")
    ids, metrics = SweepIds(sweep.session_id, sweep.id, runner.id), set[str]()
    journal = Journal(lambda batch: flush(database, batch, LEASE_S, journal.reopen), DURABILITY_S)
    due = time.monotonic()
    while claimed := leases.claim(database, sweep.id, runner.id, RATE, LEASE_S):
        for execution in load_executions(database, sweep.id, claimed):
            (combination,) = execution.combinations
            score = [Score("quality", float(execution.case.number % 10 + combination % 7), Measure())]
            due = max(due + 1 / RATE, time.monotonic() - BEHIND_S)
            time.sleep(max(0.0, due - time.monotonic()))
            journal.record(
                execution.id,
                execution.token,
                change=rows.ended("completed", cells=1),
                outcomes=rows.outcomes(ids, execution, "succeeded"),
                metrics=rows.metrics(ids, score, metrics),
                appended={"scores": rows.scores(ids, execution, score)},
            )
    journal.close()


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
