"""Every cell of a sweep as numbers: what the heat map is drawn of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wtb.core.documents.common import CELL_STATUSES
from wtb.store.database import Database
from wtb.store.read import evidence
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import CellGrid

MOST = 100_000  # numbers of a grid


def cell_grid(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> CellGrid | None:
    """Return the status of every cell and its scores, the deciding metric first; None of too many cells.

    Metrics for which there is no room are left out.
    """
    cases, repeats = evidence.case_numbers(database, sweep.id), sweep.spec["repeats"]
    size = len(matrix["rows"]) * len(cases) * repeats
    if not 0 < size <= MOST // 2:
        return None
    columns = {number: column for column, number in enumerate(cases.values())}

    def place(combination: int, case: int, repeat: int) -> int:
        return (combination * len(cases) + columns[case]) * repeats + repeat

    places: dict[str, int] = {name: number for number, name in enumerate(CELL_STATUSES)}
    status: list[int | None] = [None] * size
    for combination, case, repeat, name in evidence.cell_statuses(database, sweep.id):
        if case in columns:
            status[place(combination, case, repeat)] = places[name]
    grid: CellGrid = {
        "cases": list(cases),
        "repeats": repeats,
        "statuses": [*CELL_STATUSES],
        "status": status,
        "scores": {},
    }
    for metric in sorted(matrix["metrics"], key=lambda name: name != matrix["primary"])[: MOST // size - 1]:
        scores: list[float | None] = [None] * size
        for combination, case, repeat, score in evidence.cell_scores(database, sweep.id, metric):
            if case in columns and math.isfinite(score):
                scores[place(combination, case, repeat)] = float(f"{score:.4g}")
        grid["scores"][metric] = scores
    return grid
