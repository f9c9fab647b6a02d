"""T: 64 combinations x 10 cases of three trivial nodes, against a loop over LangGraph on the same PostgreSQL.

Timed from before the submission to the last commit. Imports, starting the server, making the tables, connecting and
one small warm-up on either side come before; verifying all 640 cells in the database comes after.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed
from benchmarks.peers import langgraph_graph
from benchmarks.workloads.chain import NODE_RUNS, workflow


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    made = workflow()
    databases = {kind: open_warm(environment, kind) for kind in KINDS}
    seconds: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    others: list[float] = []
    with langgraph_graph.threads(environment.fresh("postgresql")) as graphs:
        for number in range(runs):
            for kind in KINDS:
                seconds[kind].append(timed(databases[kind], made))
            others.append(langgraph_graph.timed(graphs, f"round-{number}"))
    for database in databases.values():
        database.close()
    for kind in KINDS:
        each = [1000 * s / NODE_RUNS for s in seconds[kind]]
        yield of_rounds(f"T, {kind}: time a node run", each, "ms", 0.5)
    yield of_rounds("T, LangGraph + PostgresSaver (sync), 16 threads", others, "s")
    ratios = [other / own for other, own in zip(others, seconds["postgresql"], strict=True)]
    yield of_rounds("T, LangGraph / WTB on the same PostgreSQL", ratios, "x", 20, "least")
