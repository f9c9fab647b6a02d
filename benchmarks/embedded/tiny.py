"""T: 64 combinations x 10 cases of three trivial nodes, against loops over LangGraph on the same PostgreSQL.

Timed from before the submission to the last commit. Imports, starting the server, making the tables, connecting and
one small warm-up on either side come before; verifying all 640 cells in the database comes after. All are timed in
turn in every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.harness.timing import open_warm, timed
from benchmarks.peers import langgraph_graph
from benchmarks.workloads.chain import NODE_RUNS, SLOTS, workflow
from wtb.config.run_options import SYNC_SLOTS

THREADS, SYNC, EXIT = "sync, 16 threads", "sync, 2 processes x 8 threads", "exit, 2 processes x 8 threads"
LEAST = {THREADS: 15.0, SYNC: 10.0, EXIT: 3.5}  # times that WTB's time is to go into theirs
LEAST_IN_SYNC = 2.5  # the same if both commit each step before the next


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    bench_workflow = workflow()
    databases = {kind: open_warm(environment, kind) for kind in KINDS}
    seconds: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    in_sync: dict[int, list[float]] = {SYNC_SLOTS: [], SLOTS: []}
    langgraph_seconds: dict[str, list[float]] = {name: [] for name in LEAST}
    url = environment.fresh("postgresql")
    with langgraph_graph.threads(url) as threads, langgraph_graph.processes(url) as processes:
        for number in range(runs):
            for kind in KINDS:
                seconds[kind].append(timed(databases[kind], bench_workflow))
            for slots, sync_seconds in in_sync.items():
                sync_seconds.append(timed(databases["postgresql"], bench_workflow, durability="sync", slots=slots))
            langgraph_seconds[THREADS].append(langgraph_graph.timed(threads, url, f"threads-{number}"))
            langgraph_seconds[SYNC].append(langgraph_graph.timed(processes, url, f"sync-{number}"))
            langgraph_seconds[EXIT].append(langgraph_graph.timed(processes, url, f"exit-{number}", "exit"))
    for database in databases.values():
        database.close()
    for kind in KINDS:
        each = [1000 * s / NODE_RUNS for s in seconds[kind]]
        yield of_rounds(f"T, {kind}: time a node run", each, "ms", 0.2)
    for name, least in LEAST.items():
        yield of_rounds(f"T, LangGraph + PostgresSaver ({name})", langgraph_seconds[name], "s")
        yield _ratio(
            f"T, the same / WTB on the same PostgreSQL ({name})", langgraph_seconds[name], seconds["postgresql"], least
        )
    for slots, sync_seconds in in_sync.items():
        each = [1000 * s / NODE_RUNS for s in sync_seconds]
        yield of_rounds(f"T, postgresql, durability sync, {slots} slots: time a node run", each, "ms")
        name = f"T, both commit each step, LangGraph / WTB ({SYNC}; {slots} slots)"
        yield _ratio(name, langgraph_seconds[SYNC], sync_seconds, LEAST_IN_SYNC)


def _ratio(name: str, peer_seconds: Sequence[float], own: Sequence[float], least: float) -> Figure:
    """Return the time of a peer over WTB's in the same round."""
    return of_rounds(name, ratios(peer_seconds, own), "x", least, "least")
