"""A metric over time: the shipped combination and the baseline from sweep to sweep, and where code changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wtb.display.report.html import layout
from wtb.display.report.html.scales import Scale, scale

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument, HistoricMetric, HistoricPoint


LABELS = 6  # dates under the chart
BESIDE = 4  # pixels by which the two combinations are off their place, so that neither interval hides the other


def timeline(document: EvidenceDocument) -> dict[str, Any] | None:
    """A chart for each metric; in words why there is none."""
    history, matrix = document["history"], document["matrix"]
    if history["because"]:
        return {"history": history} if matrix["metrics"] else None
    times = [datetime.fromisoformat(one["at"]) for one in history["sweeps"]]
    every = max(1, -(-len(times) // LABELS))
    is_one_day = len({time.date() for time in times}) == 1
    dates = [f"{time:%H:%M}" if is_one_day else f"{time:%b} {time.day}" for time in times]
    return {
        "history": history,
        "times": times,
        "x": Scale(-0.5, len(times) - 0.5, (), 0),
        "dates": [(at, date) for at, date in enumerate(dates) if (len(times) - 1 - at) % every == 0],
        "changes": [(at, one["code_changed"]) for at, one in enumerate(history["sweeps"]) if one["code_changed"]],
        "charts": [_chart(matrix["baseline"], metric, history["metrics"][metric]) for metric in layout.metrics(matrix)],
    }


def _chart(baseline: Mapping[str, str] | None, metric: str, history: HistoricMetric) -> dict[str, Any]:
    series = history["series"]
    points = [point for one in series for point in one["points"] if point]
    lines = [
        (
            number,
            "square" if one["combination"] == baseline else "diamond",
            (2 * number - 1) * BESIDE if len(series) > 1 else 0,
            _points(one["points"]),
        )
        for number, one in enumerate(series)
    ]
    return {
        "metric": metric,
        "better": history["better"],
        "lines": lines[::-1] if points else [],
        "y": scale([end for point in points for end in (point["mean"], *(point["ci"] or ()))], 5),
    }


def _points(
    points: Sequence[HistoricPoint | None],
) -> list[tuple[int, HistoricPoint, HistoricPoint | None]]:
    """(place, point, the next one) of those that there are."""
    return [(at, one, (points[at + 1 : at + 2] or [None])[0]) for at, one in enumerate(points) if one is not None]
