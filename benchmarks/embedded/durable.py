"""Cost of durability: T committed in groups, T committed after every node, and as many bare commits of SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.harness.environment import KINDS, Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed
from benchmarks.workloads.chain import NODE_RUNS, workflow


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    bench_workflow = workflow()
    databases = {kind: open_warm(environment, kind) for kind in KINDS}
    rounds_by_name: dict[str, list[float]] = {}
    for number in range(runs):
        for kind in KINDS:
            for durability in ("20ms", "sync"):
                seconds = timed(databases[kind], bench_workflow, durability=durability)
                rounds_by_name.setdefault(f"{kind}, durability {durability}", []).append(seconds)
        rounds_by_name.setdefault(f"{NODE_RUNS} bare commits of SQLite", []).append(_commits(environment, number))
    for database in databases.values():
        database.close()
    for name, rounds in rounds_by_name.items():
        yield of_rounds(f"durable, {name}: time a node run", [1000 * s / NODE_RUNS for s in rounds], "ms")


def _commits(environment: Environment, number: int) -> float:
    """Return the seconds of one small row a transaction, in WTB's journal mode and with its syncs."""
    with closing(sqlite3.connect(environment.folder / f"bare-{number}.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data TEXT)")
        start = time.perf_counter()
        for row in range(NODE_RUNS):
            connection.execute("INSERT INTO t VALUES (?, ?)", (row, "x" * 100))
        return time.perf_counter() - start
