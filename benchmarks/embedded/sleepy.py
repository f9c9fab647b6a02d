"""S: T with 20 ms of sleep in each node, 16 at a time, against as many sleeps on 16 bare threads in the same round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed
from benchmarks.workloads.chain import NODE_RUNS, SLOTS, workflow

SLEEP_S = 0.02


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    bench_workflow = workflow(SLEEP_S)
    databases = {kind: open_warm(environment, kind) for kind in KINDS}
    ratios: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(runs):
        bare = bare_sleeps()
        for kind in KINDS:
            ratios[kind].append(timed(databases[kind], bench_workflow, slots=SLOTS) / bare)
    for database in databases.values():
        database.close()
    for kind in KINDS:
        yield of_rounds(f"S, {kind}: time / {NODE_RUNS} bare sleeps", ratios[kind], "x", 1.15)


def bare_sleeps() -> float:
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(time.sleep, [0.001] * SLOTS))  # the threads are there before the clock starts
        start = time.perf_counter()
        list(pool.map(time.sleep, [SLEEP_S] * NODE_RUNS))
        return time.perf_counter() - start
