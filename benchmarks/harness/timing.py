"""Time sweeps of the workload, and commands."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def open_warm(environment: Environment, kind: Kind, bench_workflow: Workflow | None = None) -> Database:
    """Return a database on which a sweep of one case has run, so that connections and caches are warm."""
    database = Database(environment.fresh(kind))
    database.prepare()
    timed(database, bench_workflow or workflow(), cases=1)
    return database


def timed(
    database: Database,
    bench_workflow: Workflow,
    *,
    cases: int = CASES,
    durability: str = "20ms",
    slots: int | None = None,
) -> float:
    """Return the seconds from before the submission to the last commit of T; every cell is verified in the database."""
    spec = parse_spec(
        {
            "workflow": "bench:workflow",
            "cases": [{"id": str(x), "input": {"x": x}} for x in range(cases)],
            "vary": dict.fromkeys(STEPS, "all"),
            "run": {"durability": durability} | ({"concurrency": slots} if slots else {}),
        }
    )
    prepared, workspaces = prepare(spec, workflow=bench_workflow), workspaces_of(database)
    start = time.perf_counter()
    sweep_id = prepared.submit(database, workspaces)
    run = SweepRun(database, queries.find_sweep(database, sweep_id), prepared.bound, workspaces=workspaces)
    ended = follow(Context(run.database), run, grace=10.0).ended
    seconds = time.perf_counter() - start
    if ended.status != "completed":
        raise RuntimeError(f"the sweep ended as {ended}")
    verify(database, sweep_id, cases)
    return seconds


def timed_in_processes(database: Database, slots: int, path: str = "benchmarks.workloads.chain:tiny") -> float:
    """Return the seconds of T through warm node processes, from the first claim to the last commit; also verified."""
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
    start = time.perf_counter()
    run.pool.start(run.runner.run)
    while not run.wait(0.1):
        pass
    run.journal.close()
    seconds = time.perf_counter() - start
    run.finish()
    verify(database, sweep_id, CASES)
    return seconds


def _warm(code: CodeExecutor, processes: int) -> None:
    """Start all processes before the clock."""
    assert isinstance(code, InProcesses), "the sweep asks for processes"
    together = threading.Barrier(processes)

    def take() -> None:
        with code.pool.lend():
            together.wait(60)

    threads = [threading.Thread(target=take) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def verify(database: Database, sweep_id: str, cases: int) -> None:
    """Compare every cell in the database with the expected state of its variants."""
    count = 0
    for cell in cell_documents(database, sweep_id):
        variants = [int(cell["combination"][node].removeprefix("v").replace("default", "0")) for node in STEPS]
        if cell["status"] != "succeeded" or cell["state"] != expected(int(cell["case"]), variants):
            raise RuntimeError(f"a wrong cell: {cell}")
        count += 1
    node_runs, _ = queries.spent(database, sweep_id)
    if (count, node_runs * CASES) != (VARIANTS**3 * cases, NODE_RUNS * cases):
        raise RuntimeError(f"{count} cells and {node_runs} node runs of {cases} cases")


def seconds_of_command(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """Run a command that must succeed, and return its seconds."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
