"""Cost against quality: every combination as a mark, and the line of those that are worth their price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.scales import Scale, scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.report import EvidenceDocument


LETTERS = "ABCDEFGHIJKL"  # for the combinations on the line, best first
PLOTS = 3  # metrics that are drawn

Points = Mapping[int, tuple[float, float]]


# The ends of a part of a line, in per cent: x1, y1, x2, y2.
Segment = tuple[float, float, float, float]


@frozen
class DrawnMark:
    """A row, by its number, with its price and mean; title: what pointing at it shows."""

    number: int
    kind: str
    paid: float
    mean: float
    title: str


@frozen
class Lettered:
    """A mark on the line with its letter, and its price as it is written."""

    mark: DrawnMark
    letter: str
    price: str


@frozen
class Plot:
    """What is drawn of a metric: the marks, the line of the best of each price, and those on it with letters."""

    digits: int
    x: Scale
    y: Scale
    y_label: str
    line: Sequence[Segment]
    marks: Sequence[DrawnMark]
    lettered: Sequence[Lettered]


@frozen
class FrontChart:
    """A chart of a metric; without a plot where too few have both figures."""

    metric: str
    plot: Plot | None


@frozen
class Fronts:
    """A chart for each of the first metrics. is_paid: whether it is against cost, else against time."""

    is_paid: bool
    charts: Sequence[FrontChart]


def fronts(document: EvidenceDocument) -> Fronts | None:
    """A chart for each of the first metrics: to the left is cheaper."""
    matrix = document["matrix"]
    is_paid = any(row["cost_usd"] for row in matrix["rows"])
    price = "cost" if is_paid else "latency"  # as the evaluators are called that score the same: not against itself
    metrics = [metric for metric in layout.metrics(matrix) if metric != price][:PLOTS]
    if not metrics or len(matrix["rows"]) < 2:
        return None
    return Fronts(is_paid, [FrontChart(metric, _plot(matrix, metric, is_paid)) for metric in metrics])


def _plot(matrix: MatrixDocument, metric: str, is_paid: bool) -> Plot | None:
    points: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(matrix["rows"]):
        price = row["cost_usd"] if is_paid else row["latency_s"]["p50"]
        mean = summary.estimate(row, metric).get("mean")
        if price is not None and mean is not None:
            points[number] = (price if is_paid else 1000 * price, mean)
    if len(points) < 2:
        return None
    lower = summary.better(matrix, metric) == "lower"
    x, y = scale(one[0] for one in points.values()), scale(one[1] for one in points.values())
    steps = _steps(points, lower)
    others = [number for number, _ in layout.ranked(matrix, metric) if number in points and number not in steps]
    marks = {number: _mark(matrix, number, points[number], metric, steps) for number in [*others, *steps]}
    largest = max(row["cost_usd"] or 0.0 for row in matrix["rows"])
    return Plot(
        digits=figures.decimals(matrix, metric),
        x=x,
        y=y,
        y_label=f"{metric}, {'down' if lower else 'up'} is better",
        line=list(_line([points[number] for number in steps], x, y)),
        marks=list(marks.values()),
        lettered=[
            Lettered(marks[number], letter, _price(matrix["rows"][number], largest, is_paid))
            for number, letter in zip(reversed(steps), LETTERS, strict=False)
        ],
    )


def _price(row: RowDocument, largest: float, is_paid: bool) -> str:
    return texts.money(row["cost_usd"], largest) if is_paid else texts.duration(row["latency_s"]["p50"])


def _steps(points: Points, lower: bool) -> list[int]:
    """The rows that none as cheap or cheaper is as good as, cheapest first."""
    sign = -1.0 if lower else 1.0
    found: list[int] = []
    for number in sorted(points, key=lambda one: (points[one][0], -sign * points[one][1])):
        if not found or sign * points[number][1] > sign * points[found[-1]][1]:
            found.append(number)
    return found[-layout.TOP :]


def _mark(
    matrix: MatrixDocument, number: int, point: tuple[float, float], metric: str, steps: Sequence[int]
) -> DrawnMark:
    kind = "diamond" if number in steps else "dot" if number in layout.on_front(matrix, metric) else "ring"
    if summary.is_baseline(matrix, matrix["rows"][number]):
        kind = "square"
    mean = figures.number(point[1], figures.decimals(matrix, metric))
    title = f"{layout.full_name(matrix, number)[: layout.TITLE]}: {mean}"
    return DrawnMark(number, kind, paid=point[0], mean=point[1], title=title)


def _line(best: Sequence[tuple[float, float]], x: Scale, y: Scale) -> Iterator[Segment]:
    """What the line is drawn of."""
    places = [(x.at(price), y.up(mean)) for price, mean in best]
    for (x1, y1), (x2, y2) in pairwise(places):
        yield from ((x1, y1, x2, y1), (x2, y1, x2, y2))
    yield (*places[-1], 100.0, places[-1][1])
