"""Idle workers and a scheduler, and the time from submission to the first node.

What is waited for is the time from the commit of `wtb submit` to the time that the node itself reads. The pool is
warm: it has run a sweep of the same code just before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.workers import WorkerStack, worker_stack
from wtb.operations.inspection.cells import cell_documents
from wtb.store.read import queries

SUBMISSIONS = 10
AT_REST_S = 20.0
SWEEP = {
    "sweep": "clocked",
    "workflow": "benchmarks.workloads.importable:clocked",
    "cases": [{"id": "only", "input": {"at": 0.0}}],
    "vary": {"look": "all"},
}


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    for slots in (2, 16):
        waited, shares = [], []
        with worker_stack(environment, 1, slots) as stack:
            stack.run("clocked", [{"at": 0.0}] * slots, ["look"])
            for _ in range(runs):
                waited.append(1000 * median([_submitted(stack) for _ in range(SUBMISSIONS)]))
                shares.append(100 * _at_rest(stack))
        yield of_rounds(f"submit to first node, {stack.name}", waited, "ms", 100)
        yield of_rounds(f"at rest, {stack.name}: worker and scheduler, of one core", shares, "%", 1)


def _submitted(stack: WorkerStack) -> float:
    """Return the seconds from the commit of a submission to the start of the node."""
    (stack.folder / "sweep.yaml").write_text(json.dumps(SWEEP))  # which is YAML, too
    command = [sys.executable, "-m", "wtb", "submit", "sweep.yaml", "--quiet"]
    done = subprocess.run(command, cwd=stack.folder, env=stack.env, check=True, capture_output=True, text=True)
    sweep_id = done.stdout.strip()
    stack.wait_completed(sweep_id)
    (cell,) = cell_documents(stack.database, sweep_id)
    committed = queries.find_sweep(stack.database, sweep_id).started_at
    assert committed is not None, "it has run"
    at = cell["state"]["at"]
    assert isinstance(at, float), "the node wrote when it ran"
    return at - committed


def _at_rest(stack: WorkerStack) -> float:
    """Return the share of one core that idle processes take."""
    before, start = stack.cpu_s(), time.monotonic()
    time.sleep(AT_REST_S)
    return (stack.cpu_s() - before) / (time.monotonic() - start)
