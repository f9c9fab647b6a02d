"""Figures of a matrix with its missing cells at their worst, for whatever rests on figures: gates and the choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from wtb.core.expressions.figures import Answer, Condition, Name
from wtb.core.expressions.language import UnknownValue

if TYPE_CHECKING:
    from wtb.core.documents.common import Interval
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument

End = Literal[0, 1]  # the lower figures, or the higher ones
_MAX_NAMES = 10  # names of a condition whose ends are combined
_STATISTICS_OF_PAIRS = ("delta", "delta_low", "delta_high")


def moved(matrix: MatrixDocument, end: End) -> MatrixDocument:
    """Return a matrix in which missing cells make each figure as low (0), or as high (1), as they can."""
    rows: list[RowDocument] = [
        {**row, "metrics": {name: _moved(estimate, end) for name, estimate in row["metrics"].items()}}
        for row in matrix["rows"]
    ]
    best = dict(matrix["best"])
    for metric, leader in matrix["best"].items():
        winner = leader["winner"]
        estimate = next(
            (row["metrics"][metric] for row in matrix["rows"] if row["combination"] == leader["combination"]), None
        )
        if winner is not None and estimate is not None:
            best[metric] = {**leader, "winner": {**winner, "ci": _shifted(winner["ci"], _by(estimate, "mean", end))}}
    return {**matrix, "rows": rows, "best": best}


def _moved(estimate: MetricEstimate, end: End) -> MetricEstimate:
    if not (estimate.get("mean_at_worst") or estimate.get("delta_at_worst")):
        return estimate
    mean, delta = _by(estimate, "mean", end), _by(estimate, "delta", end)
    common, whole = estimate["common_mean"], estimate.get("mean_at_worst")
    if common is not None and whole:
        common = max(common, whole[1]) if end else min(common, whole[0])
    return {
        **estimate,
        "mean": None if estimate["mean"] is None else estimate["mean"] + mean,
        "ci": _shifted(estimate["ci"], mean),
        "common_mean": common,
        "delta": None if estimate["delta"] is None else estimate["delta"] + delta,
        "delta_ci": _shifted(estimate["delta_ci"], delta),
    }


def _by(estimate: MetricEstimate, figure: Literal["mean", "delta"], end: End) -> float:
    """Return by how much missing cells move a figure; 0 where none are missing."""
    ends = estimate.get("mean_at_worst") if figure == "mean" else estimate.get("delta_at_worst")
    value = estimate[figure]
    return 0.0 if not ends or value is None else ends[end] - value


def _shifted(interval: Interval | None, by: float) -> Interval | None:
    return interval and [interval[0] + by, interval[1] + by]


def fails_at_worst(condition: Condition, figures: Sequence[Callable[[Name], float]]) -> bool:
    """Return whether a condition that holds does not for some of the figures that missing cells may give it.

    Args:
        condition: Holds by the figures that there are.
        figures: Of the matrix with lower figures, and of that with higher ones.
    """
    apart = [
        name for name in condition.names if _figure_if_known(figures[0], name) != _figure_if_known(figures[1], name)
    ]
    ends = (
        itertools.product((0, 1), repeat=len(apart))
        if len(apart) <= _MAX_NAMES
        else ((0,) * len(apart), (1,) * len(apart))
    )
    return any(not _answer(condition, figures, dict(zip(apart, sides, strict=True))).holds for sides in ends)


def _answer(condition: Condition, figures: Sequence[Callable[[Name], float]], ends: Mapping[Name, int]) -> Answer:
    return condition.answer(lambda name: figures[ends.get(name, 0)](name))


def _figure_if_known(figures: Callable[[Name], float], name: Name) -> float | None:
    try:
        return figures(name)
    except UnknownValue:
        return None


def count_missing(matrix: MatrixDocument, names: Collection[Name], row: RowDocument | None) -> int:
    """Return how many missing cells figures rest on.

    Args:
        matrix: The matrix.
        names: Of figures.
        row: The row that they are of, unless they are of all rows or of the baseline.
    """
    numbers: set[tuple[int, str]] = set()
    for name in names:
        parts = name.parts[1:] if name.parts[0] == "baseline" else name.parts
        metric = next(
            (candidate for candidate in matrix["metrics"] if candidate in (".".join(parts), ".".join(parts[:-1]))), None
        )
        for number, other in enumerate(matrix["rows"]) if metric is not None else ():
            is_base = other["combination"] == matrix["baseline"]
            concerned = bool(name.extreme) or (is_base if name.parts[0] == "baseline" else other is row)
            if metric is not None and (concerned or (is_base and parts[-1] in _STATISTICS_OF_PAIRS)):
                numbers.add((number, metric))
    return sum(matrix["rows"][number]["metrics"][metric].get("missing", 0) for number, metric in numbers)
