"""Cost against quality: every combination as a mark, and the line of those that are worth their price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import (
    Scale,
    axis,
    block,
    cannot_tell,
    frame,
    name,
    note,
    scale,
    section,
    shape,
    table,
    text,
)

LETTERS = "ABCDEFGHIJKL"  # for the combinations on the line, best first
PLOTS = 3  # metrics that are drawn

Points = Mapping[int, tuple[float, float]]


def fronts(document: Mapping[str, Any]) -> str:
    """A chart for each of the first metrics: to the left is cheaper."""
    matrix = document["matrix"]
    costs = any(row["cost_usd"] for row in matrix["rows"])
    paid = "cost" if costs else "latency"  # as the evaluators are called that score the same: not against itself
    metrics = [metric for metric in layout.metrics(matrix) if metric != paid][:PLOTS]
    if not metrics or len(matrix["rows"]) < 2:
        return ""
    legend = f"◆ on the line: the best to be had up to {'a price' if costs else 'a time'}. □ baseline. "
    legend += "● not on the line, but nothing is better in metric, cost and time at once." if costs else ""
    return section("cost", "Cost and quality", note(legend), *(_chart(matrix, metric, costs) for metric in metrics))


def _chart(matrix: dict[str, Any], metric: str, costs: bool) -> str:
    points: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(matrix["rows"]):
        paid = row["cost_usd"] if costs else row["latency_s"]["p50"]
        mean = summary.estimate(row, metric).get("mean")
        if paid is not None and mean is not None:
            points[number] = (paid if costs else 1000 * paid, mean)
    other = "cost" if costs else "time, since no cost was recorded"
    title = f"<h3>{name(metric)} {summary.arrow(matrix, metric)} against {other}</h3>"
    if len(points) < 2:
        return title + cannot_tell("fewer than two combinations have both figures")
    lower = summary.better(matrix, metric) == "lower"
    x, y = scale(one[0] for one in points.values()), scale(one[1] for one in points.values())
    steps = _steps(points, lower)
    others = [number for number, _ in layout.ranked(matrix, metric) if number in points and number not in steps]
    marks = [_mark(matrix, number, points[number], x, y, metric, steps) for number in others]
    marks += [_mark(matrix, number, points[number], x, y, metric, steps) for number in steps]
    letters = dict(zip(reversed(steps), LETTERS, strict=False))
    named = [
        f'<text x="{x.at(points[number][0])}%" y="{y.up(points[number][1])}%" dx="9" dy="-5">{letter}</text>'
        for number, letter in letters.items()
    ]
    drawn = "".join([_line([points[number] for number in steps], x, y), *marks, *named])
    inside = f'<svg role="img" aria-label="{text(metric)} against {"cost" if costs else "time"}">{drawn}</svg>'
    labels = (
        "US dollars a cell" if costs else "median milliseconds a cell",
        f"{metric}, {'down' if lower else 'up'} is better",
    )
    headers = ["", layout.nodes(matrix), name(metric), summary.heading(matrix, "cost" if costs else "p50")]
    key = table(
        headers, [_told(matrix, number, letters[number], metric, costs) for number in letters], len(headers) - 2
    )
    return title + block("div", frame(x, y, inside, labels, axis(x, "$" if costs else "")) + key, "beside")


def _steps(points: Points, lower: bool) -> list[int]:
    """The rows that none as cheap or cheaper is as good as, cheapest first."""
    sign = -1.0 if lower else 1.0
    found: list[int] = []
    for number in sorted(points, key=lambda one: (points[one][0], -sign * points[one][1])):
        if not found or sign * points[number][1] > sign * points[found[-1]][1]:
            found.append(number)
    return found[-layout.TOP :]


def _mark(
    matrix: dict[str, Any],
    number: int,
    place: tuple[float, float],
    x: Scale,
    y: Scale,
    metric: str,
    steps: Sequence[int],
) -> str:
    kind = "diamond" if number in steps else "dot" if number in layout.on_front(matrix, metric) else "ring"
    if summary.is_baseline(matrix, matrix["rows"][number]):
        kind = "square"
    title = (
        f"{layout.called(matrix, number)[: layout.TITLE]}: {summary.number(place[1], summary.decimals(matrix, metric))}"
    )
    return shape(kind, x.at(place[0]), f"{y.up(place[1])}%", title)


def _line(best: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    drawn = []
    for (x1, y1), (x2, y2) in pairwise(best):
        a, b, c, d = x.at(x1), y.up(y1), x.at(x2), y.up(y2)
        drawn += [(a, b, c, b), (c, b, c, d)]
    drawn.append((x.at(best[-1][0]), y.up(best[-1][1]), 100, y.up(best[-1][1])))
    return "".join(f'<line class="front" x1="{a}%" y1="{b}%" x2="{c}%" y2="{d}%"/>' for a, b, c, d in drawn)


def _told(matrix: dict[str, Any], number: int, letter: str, metric: str, costs: bool) -> list[str]:
    row = matrix["rows"][number]
    largest = max(one["cost_usd"] or 0.0 for one in matrix["rows"])
    return [
        f"<b>{letter}</b>",
        layout.label(matrix, number),
        summary.number(summary.estimate(row, metric)["mean"], summary.decimals(matrix, metric)),
        texts.money(row["cost_usd"], largest) if costs else texts.duration(row["latency_s"]["p50"]),
    ]
