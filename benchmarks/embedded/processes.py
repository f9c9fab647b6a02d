"""Node processes: their start, and T through warm ones, beside T on threads in the same round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness.environment import KINDS, Environment, Kind
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed, timed_in_processes
from benchmarks.workloads.chain import NODE_RUNS, STEPS, workflow
from wtb.authoring.graph import outline_digest
from wtb.execution.sandbox.framing import SetupHead
from wtb.execution.sandbox.launch.launching import environment
from wtb.execution.sandbox.node_process import NodeProcess, Setup
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Bounds, Workspaces

PROCESSES = 4


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    bench_workflow = workflow()
    databases = {kind: open_warm(environment, kind) for kind in KINDS}
    apart: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    ratios: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    starts: list[float] = []
    for _ in range(runs):
        starts.append(_start(environment.folder))
        for kind in KINDS:
            apart[kind].append(timed_in_processes(databases[kind], PROCESSES))
            ratios[kind].append(apart[kind][-1] / timed(databases[kind], bench_workflow))
    for database in databases.values():
        database.close()
    yield of_rounds("processes: start of one", starts, "s", 0.3)
    for kind in KINDS:
        each = [1000 * s / NODE_RUNS for s in apart[kind]]
        yield of_rounds(f"T, {kind}, {PROCESSES} warm processes: time a node run", each, "ms", 0.3)
        yield of_rounds(f"T, {kind}: processes / threads", ratios[kind], "x")


def _start(folder: Path) -> float:
    """Return the seconds until a node process is ready to run the nodes of T."""
    document = {
        "workflow": "benchmarks.workloads.chain:tiny",
        "cases": [{"input": {"x": 1}}],
        "vary": dict.fromkeys(STEPS, "all"),
    }
    bound, workspaces = prepare(parse_spec(document)).bound, Workspaces(FileStore(folder / "files"), folder)
    head: SetupHead = {
        "bounds": asdict(Bounds()),
        "recipe": bound.recipe.text(),
        "fingerprints": bound.fingerprints,
        "outline": outline_digest(bound.workflow),
        "files": workspaces.files.place(),
        "growth": 10**9,
        "places": 1,
    }
    start = time.perf_counter()
    process = NodeProcess(Setup(head, environment(None, "bench"), {}, Path.cwd(), workspaces))
    process.ready()
    seconds = time.perf_counter() - start
    process.close()
    return seconds
