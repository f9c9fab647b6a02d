"""What people would say of the rows of a matrix, by the labels that its sweep has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis.judges.check import check
from wtb.analysis.judges.trust import stored_labels
from wtb.analysis.scores import Scores
from wtb.core.errors import InputError
from wtb.store.database import Database
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.analysis.judges.bias import Figure
    from wtb.core.documents.common import Interval
    from wtb.core.documents.matrix import MatrixDocument, PeopleDocument


def people(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> list[PeopleDocument]:
    """What people would say, by each metric that has labels; nothing before the end, when scores are missing.

    Args:
        database: The database.
        sweep: The sweep.
        matrix: Its matrix.
    """
    if matrix["figures"] != "final":
        return []
    read, baseline = Scores(database, sweep), matrix["baseline"]
    base = read.choices.index(baseline) if baseline in read.choices else None
    by_metric = (_of_metric(database, sweep, read, metric, base) for metric in matrix["metrics"])
    return [one for one in by_metric if one is not None]


def _of_metric(
    database: Database, sweep: SweepRow, read: Scores, metric: str, base: int | None
) -> PeopleDocument | None:
    """None where there is no label, or none can be used: `wtb judge check` says why."""
    if not (labels := stored_labels(database, sweep.id, metric)):
        return None
    try:
        found = check(database, sweep, read, metric, labels, "ordinal", base=base)
    except InputError:
        return None
    document: PeopleDocument = {
        "metric": metric,
        "labels": found.labels,
        "raters": len(found.raters),
        "rows": [
            {
                "combination": row.combination,
                "labels": row.labels,
                "mean": row.people.value,
                "ci": _interval(row.people),
                "delta": None if row.difference is None else row.difference.value,
                "delta_ci": None if row.difference is None else _interval(row.difference),
                "few_labels": row.has_few_labels,
            }
            for row in found.rows
        ],
    }
    if found.why_not:
        document["because"] = found.why_not
    return document


def _interval(found: Figure) -> Interval | None:
    return None if found.interval is None else [*found.interval]
