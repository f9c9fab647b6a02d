"""Influence of failures on the conclusion of a whole sweep: best, choice and front, read from the database."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from simulations import truths
from simulations.promises import Promise
from wtb import END, Workflow, evaluator
from wtb.analysis.matrix.build import build
from wtb.analysis.statistics import Floats
from wtb.core.scoring.failure_scores import MOST_LOST
from wtb.core.scoring.measure import Measure
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries
from wtb.store.tables.schema import cells, metrics, scores, sweeps

ROWS, CASES = 6, 40
_FAILED = {"kind": "error", "type": "ValueError", "message": "no", "trace": "", "final": False, "node": "answer"}
CLAIM = "a row that fails is best, chosen, or alone on the front"
_LOST = {**_FAILED, "kind": "provider", "type": "APIStatusError"}
LOST_CLAIM = "a star although both rows are as good, and a provider failed"
LOST_ROWS, LOST_CASES, PASS_RATE = 2, 200, 0.8

Rng = np.random.Generator
Cells = np.ndarray[Any, np.dtype[np.bool_]]  # rows x cases


def promises() -> Iterator[Promise]:
    """Some of several equal rows fail, by their own fault or by a provider's."""
    yield from _failing()
    yield from _lost()


def _failing() -> Iterator[Promise]:
    """One of several equal rows fails: in nearly all cases, or in the hardest ones."""
    for policy, policy_text in ((None, "a failure counts as the worst"), ("left_out", "failures are left out")):
        for failing, what in ((_nearly_all, "39 of 40 cells"), (_hardest, "the hardest 40%")):

            def count(rng: Rng, runs: int, policy: str | None = policy, failing: Any = failing) -> tuple[int, int]:
                return _count_taken(rng, runs, policy, failing)

            yield Promise(CLAIM, f"{what} fail, {policy_text}", f"{ROWS} rows, {CASES} cases", count, None, 0.05, 100)


def _lost() -> Iterator[Promise]:
    """A provider fails in some cells of one of two equal rows, and no retry succeeds."""
    order_by = {"at random": _at_random, "the hardest ones": _hardest_first, "only wrong answers": _wrong_first}
    situations: list[tuple[str, float, Any, dict[str, Any]]] = [("no cell is lost", 0.0, _at_random, _LOST)]
    for share, (words, order) in itertools.product((0.04, 0.1), order_by.items()):
        situations.append((f"{share:.0%} of one row are lost, {words}", share, order, _LOST))
    situations.append(("10% of one row, graded as wrong answers", 0.1, _at_random, _FAILED))
    for situation, share, order, failure in situations:

        def count(
            rng: Rng, runs: int, share: float = share, order: Any = order, failure: dict[str, Any] = failure
        ) -> tuple[int, int]:
            return _count_stars(rng, runs, int(share * LOST_CASES), order, failure)

        # No analysis sees that a few lost answers would all have been wrong, or that grades are not answers.
        has_bound = failure is _LOST and (order is not _wrong_first or share > MOST_LOST)
        bound = 0.05 if has_bound else None
        yield Promise(LOST_CLAIM, situation, f"{LOST_ROWS} rows, {LOST_CASES} cases", count, None, bound, 400)


def _at_random(rng: Rng, rates: Floats, passed: Floats) -> Any:
    return rng.permutation(rates.size)


def _hardest_first(rng: Rng, rates: Floats, passed: Floats) -> Any:
    return np.argsort(rates)


def _wrong_first(rng: Rng, rates: Floats, passed: Floats) -> Any:
    return np.argsort(passed, kind="stable")


def _nearly_all(row_scores: Floats) -> Cells:
    failed = np.zeros(row_scores.shape, dtype=np.bool_)
    failed[0, np.argsort(row_scores[0])[:-1]] = True
    return failed


def _hardest(row_scores: Floats) -> Cells:
    failed = np.zeros(row_scores.shape, dtype=np.bool_)
    failed[0, np.argsort(row_scores.mean(axis=0))[: int(0.4 * CASES)]] = True
    return failed


@evaluator(better="higher", scale=(0, 1))
def quality(case: Any, result: Any) -> float:
    raise AssertionError("scores are written")


def _workflow(rows: int) -> Workflow:
    workflow = Workflow("equals")

    def answer(state: dict[str, Any], *, row: int = 0) -> dict[str, Any]:
        raise AssertionError("outcomes are written")

    node = workflow.node(answer)
    for row in range(1, rows):
        node.variant(f"v{row}", row=row)
    workflow.entry(node)
    workflow.edge(node, END)
    return workflow


def _count_taken(rng: Rng, runs: int, policy: str | None, failing: Any) -> tuple[int, int]:
    """Count the sweeps in which the first row, which fails, is chosen."""
    count = 0
    with _sweep(ROWS, CASES, policy) as (database, sweep_id):
        for _ in range(runs):
            drawn, _ = truths.equal(rng, ROWS, CASES)
            drawn = 1 / (1 + np.exp(-drawn))
            _write(database, sweep_id, drawn, failing(drawn), _FAILED)
            matrix = build(database, queries.find_sweep(database, sweep_id))
            count += _is_taken(matrix, matrix["rows"][0]["combination"])
    return count, runs


def _count_stars(rng: Rng, runs: int, lost: int, order: Any, failure: dict[str, Any]) -> tuple[int, int]:
    """Count the sweeps with a star, of two rows that pass every case at the same rate. The first lacks `lost` cells.

    Args:
        order: Returns the cases in the order in which the provider loses them, by their pass rates and by what the
            first row passes.
    """
    stars = 0
    with _sweep(LOST_ROWS, LOST_CASES, None) as (database, sweep_id):
        for _ in range(runs):
            rates = rng.beta(4 * PASS_RATE, 4 * (1 - PASS_RATE), LOST_CASES)
            passed = (rng.random((LOST_ROWS, LOST_CASES)) < rates).astype(np.float64)
            failed = np.zeros(passed.shape, dtype=np.bool_)
            failed[0, order(rng, rates, passed[0])[:lost]] = True
            _write(database, sweep_id, passed, failed, failure)
            matrix = build(database, queries.find_sweep(database, sweep_id))
            stars += matrix["best"]["quality"]["clear"]
    return stars, runs


@contextmanager
def _sweep(rows: int, cases: int, policy: str | None) -> Iterator[tuple[Database, str]]:
    """Submit a sweep of equal rows to a database of its own, and yield both."""
    spec = {
        "workflow": "equals:wf",
        "cases": [{"input": {"x": n}} for n in range(cases)],
        "vary": {"answer": "all"},
        "evaluate": ["equals:quality"],
        "on_failure": policy,
        "best": {"maximize": "quality"},
    }
    with tempfile.TemporaryDirectory(prefix="wtb-simulated-") as folder:
        database = Database(f"sqlite:///{Path(folder) / 'one.db'}")
        database.upgrade()
        prepared = prepare(parse_spec(spec), workflow=_workflow(rows), evaluators={"equals:quality": quality})
        yield database, prepared.submit(database, workspaces_of(database, Path(folder) / "files"))
        database.close()


def _write(database: Database, sweep_id: str, drawn: Floats, failed: Cells, failure: dict[str, Any]) -> None:
    """Write the outcomes and scores of a sweep that has ended."""
    with database.write() as connection:
        connection.execute(scores.delete())
        connection.execute(metrics.delete())
        connection.execute(
            metrics.insert(),
            [{"sweep_id": sweep_id, "name": "quality", "number": 0, **Measure(low=0.0, high=1.0).row()}],
        )
        connection.execute(
            cells.update().values(status="succeeded", failure=None, usd=0.01, elapsed_s=1.0, finished_at=1.0)
        )
        rows, columns = np.nonzero(failed)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            same = (cells.c.combination == row, cells.c.case_number == column)
            connection.execute(cells.update().where(*same).values(status="failed", failure=failure))
        rows, columns = np.nonzero(~failed)
        key = {"sweep_id": sweep_id, "metric": "quality", "repeat": 0}
        connection.execute(
            scores.insert(),
            [
                {**key, "combination": row, "case_number": column, "value": float(drawn[row, column])}
                for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            ],
        )
        connection.execute(sweeps.update().values(status="completed", started_at=1.0, finished_at=2.0))


def _is_taken(matrix: Mapping[str, Any], row: dict[str, str]) -> bool:
    """Return whether a matrix claims anything false about the failing row, the first."""
    named = row in (matrix["best"]["quality"]["combination"], matrix["choice"]["combination"])
    return named or matrix["front"]["quality"] == [0]
