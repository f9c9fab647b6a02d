"""T as a graph of LangGraph: a sweep of it, and a loop over the same steps with LangGraph's PostgresSaver.

Both are timed in turn in every round, on the same PostgreSQL; every cell of either is verified in the database.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.harness.timing import open_warm, timed, timed_in_processes
from benchmarks.peers import langgraph_graph
from benchmarks.workloads import graph
from benchmarks.workloads.chain import NODE_RUNS, workflow

PROCESSES = 4


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    native, langgraph = workflow(), graph.workflow()
    databases = {kind: open_warm(environment, kind, langgraph) for kind in KINDS}
    seconds: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    apart: list[float] = []
    natives: list[float] = []
    langgraph_seconds: list[float] = []
    url = environment.fresh("postgresql")
    with langgraph_graph.threads(url) as loop:
        for number in range(runs):
            for kind in KINDS:
                seconds[kind].append(timed(databases[kind], langgraph))
            apart.append(timed_in_processes(databases["postgresql"], PROCESSES, "benchmarks.workloads.graph:tiny"))
            natives.append(timed(databases["postgresql"], native))
            langgraph_seconds.append(langgraph_graph.timed(loop, url, f"round-{number}"))
    for database in databases.values():
        database.close()
    for kind in KINDS:
        yield of_rounds(f"T as a graph, {kind}: time a node run", [1000 * s / NODE_RUNS for s in seconds[kind]], "ms")
    own = seconds["postgresql"]
    yield of_rounds(
        "T as a graph, LangGraph / WTB on the same PostgreSQL", ratios(langgraph_seconds, own), "x", 2, "least"
    )
    name = f"T as a graph, LangGraph / WTB in {PROCESSES} warm processes, PostgreSQL"
    yield of_rounds(name, ratios(langgraph_seconds, apart), "x")
    yield of_rounds("T, a graph / native, PostgreSQL", ratios(own, natives), "x")
