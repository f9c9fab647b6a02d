"""A sweep among its forerunners: the same combination's figures over time, and where the code of a node changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis.comparison.changes import changed_code
from wtb.analysis.kept_matrix import read_matrix
from wtb.analysis.nightly.gathering import series_of
from wtb.core.serialization.plain_json import iso
from wtb.display.views.schedules import reference_document
from wtb.store.database import Database
from wtb.store.read import evidence, tallies
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import Combination
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import HistoricMetric, HistoricPoint, HistoricSweep, SweepHistory


MOST = 30  # sweeps, the newest
SMALL = 5_000  # cells of a sweep whose matrix is made for this where none is kept


def history(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> SweepHistory:
    """By metric, the combination that this sweep would ship and the baseline's, in this sweep and those before it.

    Those before it are what the same schedule fired, or the sweeps of the same name where none fired it. Left out are
    those of another number of cases, such as runs of a few: their means do not compare. The reference is
    the sweep of the schedule, or of the baseline, that does not move.
    """
    every = evidence.earlier(database, sweep, MOST)
    rows = [row for row in every if row.case_count == every[-1].case_count]
    left_out = len(every) - len(rows)
    kept = {row.id: matrix if row.id == sweep.id else _matrix(database, row) for row in rows}
    series = series_of(database, sweep)
    reference = None if series is None else series.reference
    sweeps: list[HistoricSweep] = []
    before: SweepRow | None = None
    for row in rows:
        sweeps.append(
            {
                "sweep": row.id,
                "at": iso(row.fire_at or row.started_at or row.created_at),
                "verdict": row.verdict or ("worse" if series and row.id in series.worse else None),
                "code_changed": [] if before is None else changed_code(before, row),
            }
        )
        before = row
    if reference is not None and reference.id not in kept:
        kept[reference.id] = _matrix(database, reference)
    metrics: dict[str, HistoricMetric] = {}
    for metric, about in matrix["metrics"].items():
        followed = _followed(matrix, metric)
        metrics[metric] = {
            "better": about["better"],
            "series": [
                {"combination": combination, "points": [_point(kept[row.id], metric, combination) for row in rows]}
                for combination in followed
            ],
            "reference": None
            if reference is None or not followed
            else reference_document(reference, _point(kept[reference.id], metric, followed[0])),
        }
    because = None
    if len(rows) == 1:
        because = "there is no earlier sweep of this schedule or name"
        because += " over as many cases" if left_out else ""
    return {"sweeps": sweeps, "metrics": metrics, "left_out": left_out, "because": because}


def _matrix(database: Database, row: SweepRow) -> MatrixDocument | None:
    if (found := tallies.kept(database, row.id)) is not None:
        return found
    return read_matrix(database, row) if row.cells <= SMALL else None


def _followed(matrix: MatrixDocument, metric: str) -> list[Combination]:
    """The combination to look at through time: the one chosen, or the best; and the baseline."""
    choice, best = matrix["choice"], matrix["best"].get(metric)
    leader = (choice and choice["combination"]) or (best and best["combination"])
    found = [leader, matrix["baseline"]]
    return [one for i, one in enumerate(found) if one is not None and one not in found[:i]]


def _point(matrix: MatrixDocument | None, metric: str, combination: Combination) -> HistoricPoint | None:
    """The figures of a combination in one sweep; None where that sweep has none."""
    for row in () if matrix is None else matrix["rows"]:
        found = row["metrics"].get(metric)
        if row["combination"] == combination and found and found["mean"] is not None:
            return {"n": found["n"], "mean": found["mean"], "ci": found["ci"]}
    return None
