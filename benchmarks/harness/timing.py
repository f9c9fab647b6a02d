"""How a sweep of the workload is timed."""

from __future__ import annotations

import threading
import time

from benchmarks.harness.environment import Environment, Kind
from benchmarks.workloads.chain import CASES, NODE_RUNS, STEPS, VARIANTS, expected, workflow
from wtb.authoring.workflow import Workflow
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.runtime.sweep_run import SweepRun
from wtb.execution.sandbox.pool import InProcesses
from wtb.operations.context import Context
from wtb.operations.inspection.cells import cell_documents
from wtb.operations.running.local import follow
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries


def open_warm(environment: Environment, kind: Kind, made: Workflow | None = None) -> Database:
    """An empty database on which a sweep of one case has run, so that connections and caches are warm."""
    database = Database(environment.fresh(kind))
    database.prepare()
    timed(database, made or workflow(), cases=1)
    return database


def timed(
    database: Database, made: Workflow, *, cases: int = CASES, durability: str = "20ms", slots: int | None = None
) -> float:
    """Seconds from before the submission to the last commit of T; every cell is verified in the database."""
    spec = parse_spec(
        {
            "workflow": "bench:workflow",
            "cases": [{"id": str(x), "input": {"x": x}} for x in range(cases)],
            "vary": dict.fromkeys(STEPS, "all"),
            "run": {"durability": durability} | ({"concurrency": slots} if slots else {}),
        }
    )
    prepared, workspaces = prepare(spec, workflow=made), workspaces_of(database)
    begun = time.perf_counter()
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, queries.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    ended = follow(Context(run.database), run, grace=10.0).ended
    seconds = time.perf_counter() - begun
    if ended.status != "completed":
        raise RuntimeError(f"the sweep ended as {ended}")
    verify(database, sweep_id, cases)
    return seconds


def timed_in_processes(database: Database, slots: int, path: str = "benchmarks.workloads.chain:tiny") -> float:
    """Seconds for T through as many warm node processes, from the first claim to the last commit; verified, too."""
    spec = parse_spec(
        {
            "workflow": path,
            "cases": [{"id": str(x), "input": {"x": x}} for x in range(CASES)],
            "vary": dict.fromkeys(STEPS, "all"),
            "run": {"pool": "process", "concurrency": slots},
        }
    )
    prepared, workspaces = prepare(spec), workspaces_of(database)
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, queries.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    run.begin()
    _warm(run.code, slots)
    begun = time.perf_counter()
    run.pool.start(run.runner.run)
    while not run.wait(0.1):
        pass
    run.journal.close()
    seconds = time.perf_counter() - begun
    run.finish()
    verify(database, sweep_id, CASES)
    return seconds


def _warm(code: CodeExecutor, processes: int) -> None:
    """Have all processes started before the clock is."""
    assert isinstance(code, InProcesses), "the sweep asks for processes"
    together = threading.Barrier(processes)

    def take() -> None:
        with code.pool.one():
            together.wait(60)

    threads = [threading.Thread(target=take) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def verify(database: Database, sweep_id: str, cases: int) -> None:
    """Hold every cell in the database against what its variants must give."""
    found = 0
    for cell in cell_documents(database, sweep_id):
        variants = [int(cell["combination"][node].removeprefix("v").replace("default", "0")) for node in STEPS]
        if cell["status"] != "succeeded" or cell["state"] != expected(int(cell["case"]), variants):
            raise RuntimeError(f"a wrong cell: {cell}")
        found += 1
    node_runs, _ = queries.spent(database, sweep_id)
    if (found, node_runs * CASES) != (VARIANTS**3 * cases, NODE_RUNS * cases):
        raise RuntimeError(f"{found} cells and {node_runs} node runs of {cases} cases")
