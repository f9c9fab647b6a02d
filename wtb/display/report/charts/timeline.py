"""A metric over time: the shipped combination and the baseline from sweep to sweep, and where code changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.display.report.html import layout
from wtb.display.report.html.scales import Scale, scale

if TYPE_CHECKING:
    from wtb.core.documents.common import Better
    from wtb.core.documents.report import EvidenceDocument, HistoricMetric, HistoricPoint, SweepHistory


LABELS = 6  # dates under the chart
BESIDE = 4  # pixels by which the two combinations are off their place, so that neither interval hides the other


@frozen
class Line:
    """A combination through time.

    Attributes:
        shift: By how many pixels its points are off their place.
        points: (place, point, the next one) of those that there are.
    """

    number: int
    kind: str
    shift: int
    points: Sequence[tuple[int, HistoricPoint, HistoricPoint | None]]


@frozen
class TimelineChart:
    """A metric through time.

    Attributes:
        reference: The mean of the fixed reference of the schedule; None if there is none.
    """

    metric: str
    better: Better
    lines: Sequence[Line]
    y: Scale
    reference: float | None = None


@frozen
class Timeline:
    """The history of a sweep.

    Attributes:
        times: When each of its sweeps was.
        dates: Places with what is written under them.
        changes: Places with the nodes whose code changed there.
    """

    history: SweepHistory
    times: Sequence[datetime] = ()
    x: Scale | None = None
    dates: Sequence[tuple[int, str]] = ()
    changes: Sequence[tuple[int, Sequence[str]]] = ()
    charts: Sequence[TimelineChart] = ()


def timeline(document: EvidenceDocument) -> Timeline | None:
    """A chart for each metric; in words why there is none."""
    history, matrix = document["history"], document["matrix"]
    if history["because"]:
        return Timeline(history) if matrix["metrics"] else None
    times = [datetime.fromisoformat(one["at"]) for one in history["sweeps"]]
    every = max(1, -(-len(times) // LABELS))
    is_one_day = len({time.date() for time in times}) == 1
    dates = [f"{time:%H:%M}" if is_one_day else f"{time:%b} {time.day}" for time in times]
    return Timeline(
        history,
        times=times,
        x=Scale(-0.5, len(times) - 0.5, (), 0),
        dates=[(at, date) for at, date in enumerate(dates) if (len(times) - 1 - at) % every == 0],
        changes=[(at, one["code_changed"]) for at, one in enumerate(history["sweeps"]) if one["code_changed"]],
        charts=[_chart(matrix["baseline"], metric, history["metrics"][metric]) for metric in layout.metrics(matrix)],
    )


def _chart(baseline: Mapping[str, str] | None, metric: str, history: HistoricMetric) -> TimelineChart:
    series = history["series"]
    points = [point for one in series for point in one["points"] if point]
    fixed = history.get("reference")
    reference = None if fixed is None else fixed["mean"]
    ends = [end for point in points for end in (point["mean"], *(point["ci"] or ()))]
    lines = [
        Line(
            number,
            "square" if one["combination"] == baseline else "diamond",
            (2 * number - 1) * BESIDE if len(series) > 1 else 0,
            _points(one["points"]),
        )
        for number, one in enumerate(series)
    ]
    return TimelineChart(
        metric,
        better=history["better"],
        lines=lines[::-1] if points else [],
        y=scale(ends if reference is None else [*ends, reference], 5),
        reference=reference,
    )


def _points(
    points: Sequence[HistoricPoint | None],
) -> list[tuple[int, HistoricPoint, HistoricPoint | None]]:
    """(place, point, the next one) of those that there are."""
    return [(at, one, (points[at + 1 : at + 2] or [None])[0]) for at, one in enumerate(points) if one is not None]
