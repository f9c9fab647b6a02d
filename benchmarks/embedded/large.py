"""Large sweeps of one trivial node: does a cell cost the same among 100,000 as among 1,000, in time and memory?

Each sweep runs in a process of its own: `python -m benchmarks.embedded.large CASES VARIANTS DATABASE` writes one line
of JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds

SHAPES = ((10_000, 10), (100_000, 1))  # cases x variants
SMALLER = 100  # times


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    for cases, variants in SHAPES:
        pairs = [
            (_apart(environment, cases // SMALLER, variants, n), _apart(environment, cases, variants, n))
            for n in range(runs)
        ]
        name = f"large, {cases:,} cases x {variants}"
        yield of_rounds(f"{name}: time a cell", [1000 * large["cell_s"] for _, large in pairs], "ms")
        ratios = [large["cell_s"] / small["cell_s"] for small, large in pairs]
        yield of_rounds(f"{name}: time a cell / that of {cases * variants // SMALLER:,}", ratios, "x", 1.3)
        yield of_rounds(f"{name}: peak memory", [large["peak_mb"] for _, large in pairs], "MB")
        ratios = [large["peak_mb"] / small["peak_mb"] for small, large in pairs]
        yield of_rounds(f"{name}: peak memory / that of {cases * variants // SMALLER:,}", ratios, "x", 1.5)
        yield of_rounds(f"{name}: matrix", [large["matrix_s"] for _, large in pairs], "s", 2.0)


def _apart(environment: Environment, cases: int, variants: int, number: int) -> dict[str, float]:
    database = environment.folder / f"large-{cases}-{variants}-{number}.db"
    command = [sys.executable, "-m", "benchmarks.embedded.large", str(cases), str(variants), str(database)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for file in environment.folder.glob(f"{database.name}*"):
        file.unlink()
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run_one(cases: int, variants: int, path: Path) -> dict[str, float]:
    """Run one sweep from a file of cases, and make its matrix."""
    from wtb.analysis.matrix.build import build
    from wtb.execution.runtime.sweep_run import SweepRun
    from wtb.operations.context import Context
    from wtb.operations.running.local import follow
    from wtb.planning.prepare import prepare
    from wtb.planning.sweep_spec import parse_spec
    from wtb.store.database import Database
    from wtb.store.files.locations import workspaces_of
    from wtb.store.read import queries

    listed = path.with_suffix(".jsonl")
    with listed.open("w") as out:
        out.writelines(f'{{"id": "case-{n}", "input": {{"x": {n}}}, "expected": {{"y": {n}}}}}\n' for n in range(cases))
    workflow = _workflow(variants)
    spec = parse_spec(
        {
            "workflow": "bench:workflow",
            "cases": str(listed),
            "vary": {"only": "all"},
            "evaluate": [{"exact_match": {"field": "y"}}],
        }
    )
    database = Database(f"sqlite:///{path}")
    database.prepare()
    start = time.perf_counter()
    prepared, workspaces = prepare(spec, workflow=workflow), workspaces_of(database)
    sweep_id = prepared.submit(database, workspaces)
    row = queries.find_sweep(database, sweep_id)
    run = SweepRun(database, row, prepared.bound, workspaces=workspaces)
    ended = follow(Context(database), run, grace=10.0).ended
    seconds, peak = time.perf_counter() - start, _peak_mb()
    counts = queries.cell_counts(database, sweep_id)
    if ended.status != "completed" or counts != {"succeeded": cases * variants}:
        raise RuntimeError(f"the sweep ended as {ended} with {counts}")
    start = time.perf_counter()
    build(database, queries.find_sweep(database, sweep_id))
    return {"cell_s": seconds / (cases * variants), "peak_mb": peak, "matrix_s": time.perf_counter() - start}


def _workflow(variants: int) -> Any:
    from wtb.authoring.workflow import Workflow
    from wtb.authoring.workflow_facts import END

    workflow = Workflow("large")

    @workflow.node
    def only(state: dict[str, int], *, k: int = 0) -> dict[str, int]:
        return {"y": state["x"] + k}

    for number in range(1, variants):
        only.variant(f"v{number}", k=number)
    workflow.entry(only)
    workflow.edge(only, END)
    return workflow


def _peak_mb() -> float:
    """Return the peak resident memory. Avoid ru_maxrss if possible, because it starts at the parent's own peak."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(json.dumps(run_one(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
