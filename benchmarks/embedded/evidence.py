"""Time of conclusions: the matrix with its tests and attribution, and the report, of 64 combinations x 1,000 cases
x 3 metrics: scores that depend on case and combination, one of them a pass rate, on SQLite; and comparing 200
combinations x 2,000 cases by typical differences, beside means.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds, ratios
from benchmarks.workloads.chain import STEPS, workflow
from wtb import Sweep, evaluator
from wtb.analysis.matrix.attribution import attribute
from wtb.analysis.matrix.build import matrix_from
from wtb.analysis.matrix.facts import read_facts
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Design, compare
from wtb.analysis.statistics.paired import Compare
from wtb.display.report.report_files import render
from wtb.display.report.sweep_evidence import gather
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep

CASES = 1_000
METRICS = ("quality.graded", "quality.passed", "quality.cost")
LARGEST = 3_000_000  # bytes of a report


@evaluator(better="higher")
def quality(case: Any, result: Any) -> dict[str, float]:
    """Return three scores: one graded, one pass or fail, one skewed."""
    noise = random.Random(f"{case.id} {result.state['c']}")
    graded = int(case.id) % 7 / 10 + int(result.state["c"][-1]) / 20 + noise.gauss(0, 0.2)
    return {"graded": graded, "passed": float(graded > 0.4), "cost": noise.lognormvariate(graded, 1.0)}


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    database = Database(environment.fresh("sqlite"))
    swept = Sweep(
        workflow=workflow(),
        cases=[{"id": str(number), "input": {"x": number}} for number in range(CASES)],
        vary=dict.fromkeys(STEPS, "all"),
        evaluate=[quality],
    ).run(database, files=environment.folder / "evidence")
    row = find_sweep(database, swept.id)

    def conclude() -> None:
        scored = Scores(database, row)
        matrix = matrix_from(read_facts(database, row, scored))
        if list(matrix["metrics"]) != list(METRICS):
            raise RuntimeError(f"the metrics are {list(matrix['metrics'])}")
        for metric in METRICS:
            if attribute(scored, metric)["because"]:
                raise RuntimeError(f"nothing could be told of {metric}")

    pages: list[str] = []
    concluded = [_seconds(conclude) for _ in range(runs)]
    reported = [_seconds(lambda: pages.append(render(gather(database, row)))) for _ in range(runs)]
    database.close()
    what = f"64 x {CASES:,} x {len(METRICS)}"
    yield of_rounds(f"{what}: matrix, tests and attribution", concluded, "s", 2.0)
    yield of_rounds(f"{what}: report", reported, "s", 5.0)
    yield of_rounds(f"{what}: size of the report", [len(pages[-1].encode()) / 1e6], "MB", LARGEST / 1e6)
    yield from _typical(runs)


def _typical(runs: int) -> Iterator[Figure]:
    """Compare durations by mean and by median in turn, so that both run under the same load."""
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(size=(200, 2_000)) * (1 + rng.random(2_000))

    def compared(by: Compare) -> float:
        start = time.process_time()
        compare(seconds, Design(baseline=0, better="lower", by=by))
        return time.process_time() - start

    by_mean, by_median = zip(*((compared("mean"), compared("median")) for _ in range(runs)), strict=True)
    what = "200 x 2,000: comparison"
    yield of_rounds(f"{what} by mean, CPU", by_mean, "s")
    yield of_rounds(f"{what} by median, CPU", by_median, "s")
    yield of_rounds(f"{what} by median beside mean", ratios(by_median, by_mean), "times", 2.0)


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
