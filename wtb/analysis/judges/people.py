"""What people would say of the rows of a matrix, by the labels that its sweep has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis.judges.check import check
from wtb.analysis.judges.trust import stored_labels
from wtb.analysis.scores import Scores
from wtb.core.errors import InputError
from wtb.store.control.labels import label_rows
from wtb.store.database import Database
from wtb.store.rows.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.analysis.judges.bias import Figure
    from wtb.core.documents.common import Combination, Interval
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
    labelled = {row.metric for row in label_rows(database, sweep.id)}
    return [
        found
        for metric in matrix["metrics"]
        if metric in labelled and (found := _of_metric(database, sweep, metric, matrix["baseline"])) is not None
    ]


def _of_metric(database: Database, sweep: SweepRow, metric: str, baseline: Combination | None) -> PeopleDocument | None:
    """None where no label can be used: `wtb judge check` says why."""
    try:
        labels, read = stored_labels(database, sweep.id, metric), Scores(database, sweep)
        base = read.choices.index(baseline) if baseline in read.choices else None
        found = check(database, sweep, read, metric, labels, "ordinal", base=base)
    except InputError:
        return None
    return {
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


def _interval(found: Figure) -> Interval | None:
    return None if found.interval is None else [*found.interval]
