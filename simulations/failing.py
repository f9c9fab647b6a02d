"""What failures do to the answer of a whole sweep: best, choice and front, as they are read from the database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulations import truths
from simulations.promises import Promise
from wtb import END, Workflow, evaluator
from wtb.analysis.matrix.build import build
from wtb.analysis.statistics import Floats
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


def promises() -> Iterator[Promise]:
    """One of several equal rows fails: in nearly all cases, or in the hardest ones."""
    for policy, said in ((None, "a failure counts as the worst"), ("left_out", "failures are left out")):
        for failing, what in ((_nearly_all, "39 of 40 cells"), (_hardest, "the hardest 40%")):

            def count(
                rng: np.random.Generator, runs: int, policy: str | None = policy, failing: Any = failing
            ) -> tuple[int, int]:
                return _count(rng, runs, policy, failing)

            yield Promise(CLAIM, f"{what} fail, {said}", f"{ROWS} rows, {CASES} cases", count, None, 0.05, 100)


def _nearly_all(found: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    failed = np.zeros(found.shape, dtype=np.bool_)
    failed[0, np.argsort(found[0])[:-1]] = True
    return failed


def _hardest(found: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    failed = np.zeros(found.shape, dtype=np.bool_)
    failed[0, np.argsort(found.mean(axis=0))[: int(0.4 * CASES)]] = True
    return failed


@evaluator(better="higher", scale=(0, 1))
def quality(case: Any, result: Any) -> float:
    raise AssertionError("scores are written")


def _workflow() -> Workflow:
    made = Workflow("equals")

    def answer(state: dict[str, Any], *, row: int = 0) -> dict[str, Any]:
        raise AssertionError("outcomes are written")

    node = made.node(answer)
    for row in range(1, ROWS):
        node.variant(f"v{row}", row=row)
    made.entry(node)
    made.edge(node, END)
    return made


def _count(rng: np.random.Generator, runs: int, policy: str | None, failing: Any) -> tuple[int, int]:
    spec = {
        "workflow": "equals:wf",
        "cases": [{"input": {"x": n}} for n in range(CASES)],
        "vary": {"answer": "all"},
        "evaluate": ["equals:quality"],
        "on_failure": policy,
        "best": {"maximize": "quality"},
    }
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="wtb-simulated-") as folder:
        database = Database(f"sqlite:///{Path(folder) / 'one.db'}")
        database.upgrade()
        prepared = prepare(parse_spec(spec), workflow=_workflow(), evaluators={"equals:quality": quality})
        sweep_id = prepared.submit(database, workspaces_of(database, Path(folder) / "files"))
        for _ in range(runs):
            found, _ = truths.equal(rng, ROWS, CASES)
            found = 1 / (1 + np.exp(-found))
            _write(database, sweep_id, found, failing(found))
            matrix = build(database, queries.find_sweep(database, sweep_id))
            wrong += _is_taken(matrix, matrix["rows"][0]["combination"])
        database.close()
    return wrong, runs


def _write(database: Database, sweep_id: str, found: Floats, failed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """The outcomes and scores of a sweep that has ended."""
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
            connection.execute(cells.update().where(*same).values(status="failed", failure=_FAILED))
        rows, columns = np.nonzero(~failed)
        key = {"sweep_id": sweep_id, "metric": "quality", "repeat": 0}
        connection.execute(
            scores.insert(),
            [
                {**key, "combination": row, "case_number": column, "value": float(found[row, column])}
                for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            ],
        )
        connection.execute(sweeps.update().values(status="completed", started_at=1.0, finished_at=2.0))


def _is_taken(matrix: dict[str, Any], row: dict[str, str]) -> bool:
    """Whether anything in a matrix takes the failing row, the first, for what it is not."""
    named = row in (matrix["best"]["quality"]["combination"], matrix["choice"]["combination"])
    return named or matrix["front"]["quality"] == [0]
