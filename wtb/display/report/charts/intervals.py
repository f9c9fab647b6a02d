"""Every combination's mean and its difference from the baseline, each drawn on its 95% interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import signed, span
from wtb.display.report.html.scales import Scale, room, scale

if TYPE_CHECKING:
    from wtb.core.documents.common import Interval
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument
    from wtb.core.documents.report import EvidenceDocument


OPEN = 24  # rows that are open to see; the others fold
_SMALL = Markup("{} <small>{}</small>")


@frozen
class DrawnRow:
    """A row with its mean and its difference from the baseline, as they are drawn and written.

    Attributes:
        kind, delta_kind: The shapes of their marks.
        is_new: Whether it has no case in common with the baseline.
        figure, difference: What is written beside them.
    """

    number: int
    mark: str
    kind: str
    mean: float
    ci: Interval | None
    figure: Markup | str
    is_baseline: bool
    is_new: bool
    delta: float | None
    delta_ci: Interval | None
    delta_kind: str
    difference: Markup | str

    @property
    def ends(self) -> Sequence[float]:
        """What the scale of means needs room for."""
        return (self.mean, *(self.ci or ()))

    @property
    def delta_ends(self) -> Sequence[float]:
        """What the scale of differences needs room for."""
        return () if self.is_new or self.delta is None else (self.delta, *(self.delta_ci or ()))


@frozen
class Axes:
    """The scale of means; that of differences, if there are any; CSS of the chart."""

    means: Scale
    change: Scale | None
    style: Markup


@frozen
class IntervalsChart:
    """A chart of a metric: without rows and axes where nothing is scored by it.

    Attributes:
        reference: The mean of the baseline.
        left_out: What became of rows that are not drawn, in words.
    """

    metric: str
    drawn: Sequence[DrawnRow] = ()
    axes: Axes | None = None
    reference: float | None = None
    left_out: str = ""


@frozen
class Intervals:
    """A chart for each metric, of which the first `open` rows are open to see. compared: whether with a baseline."""

    compared: bool
    open: int
    charts: Sequence[IntervalsChart]


def intervals(document: EvidenceDocument) -> Intervals | None:
    """One chart for each metric, best first."""
    matrix = document["matrix"]
    metrics = layout.metrics(matrix)
    if not metrics or not matrix["rows"]:
        return None
    compared = matrix["baseline"] is not None and len(matrix["rows"]) > 1
    return Intervals(compared, OPEN, [_chart(matrix, metric) for metric in metrics])


def _chart(matrix: MatrixDocument, metric: str) -> IntervalsChart:
    rows = layout.ranked(matrix, metric, max(20, layout.DRAWN // len(layout.metrics(matrix))))
    found = [(number, summary.estimate(row, metric)) for number, row in rows]
    drawn = [_row(matrix, number, metric, one, one["mean"]) for number, one in found if one["mean"] is not None]
    if not drawn:
        return IntervalsChart(metric)
    return IntervalsChart(
        metric,
        drawn=drawn,
        axes=_axes(drawn),
        reference=next((row.mean for row in drawn if row.is_baseline), None),
        left_out=_left_out(matrix, metric, len(drawn)),
    )


def _axes(drawn: Sequence[DrawnRow]) -> Axes:
    means = scale([end for row in drawn for end in row.ends])
    deltas = [end for row in drawn for end in row.delta_ends]
    change = scale([*deltas, 0.0]) if deltas else None
    style = [Markup("--grid:") + means.across, *([Markup("--grid2:") + change.across] if change else [])]
    changes = [row.difference for row in drawn] if change else []
    style.append(room([means, *([change] if change else [])], [row.figure for row in drawn], changes))
    return Axes(means, change, Markup(";").join(style))


def _is_scored(row: RowDocument, metric: str) -> bool:
    return summary.estimate(row, metric).get("mean") is not None


def _row(matrix: MatrixDocument, number: int, metric: str, found: MetricEstimate, mean: float) -> DrawnRow:
    row, digits = matrix["rows"][number], figures.decimals(matrix, metric)
    is_baseline = summary.is_baseline(matrix, row)
    shown = figures.number(mean, digits)
    return DrawnRow(
        number=number,
        mark=summary.star(matrix, row, metric),
        kind=layout.kind(matrix, number, metric),
        mean=mean,
        ci=found["ci"],
        figure=shown if found["ci"] is None else _SMALL.format(shown, span(found["ci"], digits)),
        is_baseline=is_baseline,
        is_new=found["delta"] is None,
        delta=0.0 if is_baseline else found["delta"],
        delta_ci=None if is_baseline else found["delta_ci"],
        delta_kind="square" if is_baseline else "dot" if summary.is_sure(matrix, found) else "ring",
        difference=_difference(found, digits, is_baseline),
    )


def _difference(found: MetricEstimate, digits: int, is_baseline: bool) -> Markup | str:
    if is_baseline:
        return Markup("<small>baseline</small>")
    if found.get("delta") is None:
        return Markup("<small>no common cases</small>")
    delta, p = signed(found["delta"], digits), found.get("p_adjusted")
    return delta if p is None else _SMALL.format(delta, f"p {figures.probability(p)}")


def _left_out(matrix: MatrixDocument, metric: str, drawn: int) -> str:
    """What became of the rows that are not drawn."""
    left = len(matrix["rows"]) - drawn
    unscored = sum(not _is_scored(row, metric) for row in matrix["rows"])
    parts = [f"{unscored} have no score"] if unscored else []
    parts += [f"{left - unscored} more are not drawn"] if left > unscored else []
    return ", ".join(parts)
