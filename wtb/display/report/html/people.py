"""What people would say of the rows, beside the means of a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures
from wtb.display.matrix.people import basis, notes
from wtb.display.report.html import layout

if TYPE_CHECKING:
    from wtb.core.documents.matrix import PeopleDocument, PeopleRow
    from wtb.core.documents.report import EvidenceDocument


@frozen
class LabelledMetric:
    """A metric that people have labelled.

    Attributes:
        found: What they would say.
        basis: What that rests on, in words.
        digits: Decimals of the metric.
        rows: Its rows that have labels, each with its number in the matrix, best first as the judge has them.
        few: What is said where labels are few, or say nothing of all cases; else None.
    """

    found: PeopleDocument
    basis: str
    digits: int
    rows: Sequence[tuple[int, PeopleRow]]
    few: str | None


@frozen
class Labelled:
    """A table for each metric that people have labelled."""

    labelled: Sequence[LabelledMetric]


def labelled(document: EvidenceDocument) -> Labelled | None:
    """What people would say of each row that they have labelled; None where they have none."""
    matrix, made = document["matrix"], []
    for one in document.get("people", ()):
        said = {frozenset(row["combination"].items()): row for row in one["rows"]}
        ranked = [
            (number, frozenset(row["combination"].items())) for number, row in layout.ranked(matrix, one["metric"])
        ]
        made.append(
            LabelledMetric(
                one,
                basis(one),
                figures.decimals(matrix, one["metric"]),
                [(number, said[name]) for number, name in ranked if name in said],
                " ".join(notes(one)) or None,
            )
        )
    return Labelled(made) if made else None
