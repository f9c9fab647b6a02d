"""Cost of tallies by another process every second: T over more cases, scored, on PostgreSQL.

Runs with and without alternate, and each round's ratio is that of the two next to each other. The other process is
`python -m benchmarks.distributed.tallies`, started before the clock; when its input ends it writes one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from select import select

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm
from benchmarks.workloads.chain import STEPS, VARIANTS, workflow
from wtb.execution.runtime.sweep_run import SweepRun
from wtb.operations.context import Context
from wtb.operations.running.local import follow
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries
from wtb.store.read.tallies import tally, tally_rows

CASES = 100
CELLS = VARIANTS ** len(STEPS) * CASES
EVERY_S = 1.0


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = open_warm(environment, "postgresql")
    ratios, alone, busy, looks = [], [], [], []
    for number in range(runs):
        seconds: dict[bool, float] = {}
        tally: dict[str, float] = {}
        for tallied in (False, True) if number % 2 else (True, False):  # so that neither is always the warmer one
            if tallied:
                with tallying(database) as tally:
                    seconds[tallied] = _timed(database)
            else:
                seconds[tallied] = _timed(database)
        ratios.append(seconds[True] / seconds[False])
        alone.append(seconds[False])
        busy.append(100 * tally["in_tally_s"] / seconds[True])
        looks.append(tally["tallies"])
    database.close()
    yield of_rounds(f"tallies, {CELLS:,} cells: not tallied", alone, "s")
    yield of_rounds(f"tallies, {CELLS:,} cells: tallied every second / not tallied", ratios, "x", 1.05)
    yield of_rounds("tallies: times that there was something new", looks, "")
    yield of_rounds("tallies: share of the time spent in `tally`", busy, "%")


def _timed(database: Database) -> float:
    """Return the seconds from before the submission to the last commit; every score is counted afterwards."""
    spec = parse_spec(
        {
            "workflow": "bench:workflow",
            "cases": [{"id": str(x), "input": {"x": x}, "expected": {"c": f"{x * 10}-0"}} for x in range(CASES)],
            "vary": dict.fromkeys(STEPS, "all"),
            "evaluate": [{"exact_match": {"field": "c"}}],
        }
    )
    prepared, workspaces = prepare(spec, workflow=workflow()), workspaces_of(database)
    start = time.perf_counter()
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, queries.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    ended = follow(Context(run.database), run, grace=10.0).ended
    seconds = time.perf_counter() - start
    deadline = time.monotonic() + 30
    while sum(row.n for row in tally_rows(database, sweep_id)) != CELLS:
        tally(database, sweep_id)
        if time.monotonic() > deadline:
            raise RuntimeError(f"the sweep ended as {ended}, and its tallies are {tally_rows(database, sweep_id)}")
    return seconds


@contextmanager
def tallying(database: Database) -> Iterator[dict[str, float]]:
    """Tally running sweeps in another process. The yielded figures are filled in at the end."""
    url = database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "benchmarks.distributed.tallies"]
    tallied: dict[str, float] = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "WTB_DATABASE_URL": url}, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield tallied
        process.stdin.close()
        tallied.update(json.loads(process.stdout.readline()))


def main() -> None:
    database = Database(os.environ["WTB_DATABASE_URL"])
    queries.list_sweeps(database, status="running")
    print("ready", flush=True)
    times, spent = 0, 0.0
    while not select([sys.stdin], [], [], EVERY_S)[0]:
        for row in queries.list_sweeps(database, status="running"):
            start = time.perf_counter()
            times += tally(database, row.id)
            spent += time.perf_counter() - start
    print(json.dumps({"tallies": times, "in_tally_s": spent}), flush=True)


if __name__ == "__main__":
    main()
