"""What people would say of rows, in words: a mean of a judge's scores is no mean of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from wtb.core.factors.factors import labels_of
from wtb.core.texts import plural, printable

if TYPE_CHECKING:
    from wtb.core.documents.common import Interval
    from wtb.core.documents.matrix import JudgedMatrixDocument, MatrixDocument, PeopleDocument, PeopleRow

FEW = "* fewer than 100 labels: the interval may be too short"


def found_in(document: MatrixDocument) -> list[PeopleDocument]:
    """What people would say, by each metric that they have labelled; nothing where nobody has."""
    return cast("JudgedMatrixDocument", document).get("people", [])


def lines(document: MatrixDocument) -> list[str]:
    """By each metric that people have labelled, a line for each row that has labels; none where nobody has."""
    said = []
    for one in found_in(document):
        said.append(f"{printable(one['metric'])} above is the judge's; people would say, {basis(one)}:")
        said += [_row(row) for row in one["rows"]]
        said += notes(one)
    return said


def notes(one: PeopleDocument) -> list[str]:
    """Return what readers have to know of the intervals: that there are none, or that they rest on few labels."""
    why_not = one.get("because")
    few = [FEW] if any(row["few_labels"] for row in one["rows"]) else []
    return [*([f"No interval: {why_not}."] if why_not else []), *few]


def basis(one: PeopleDocument) -> str:
    """What the figures rest on, in words."""
    by = f"{plural(one['labels'], 'label')} of {plural(one['raters'], 'rater')}"
    return f"by {by} and its scores of all cases (PPI++)"


def _row(row: PeopleRow) -> str:
    named = ", ".join(f"{key}={label}" for key, label in labels_of(row["combination"]).items()) or "the row"
    mark = "*" if row["few_labels"] else ""
    more = "" if row["delta"] is None else f", a difference of {_figure(row['delta'], row['delta_ci'])}{mark}"
    return f"  {printable(named)}: {_figure(row['mean'], row['ci'])}{mark}{more}"


def _figure(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.3f} " + ("(no interval)" if interval is None else f"({interval[0]:.3f} to {interval[1]:.3f})")
