"""How much of a matrix a page shows, and what its rows are called and marked with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from wtb.display.matrix import summary
from wtb.display.report.html.markup import name, text

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


METRICS = 12
MANY, TOP = 300, 200  # of more combinations than MANY the TOP are shown, and the baseline
DRAWN = 400  # intervals on a page
TITLE = 240  # characters that pointing at a row shows

Numbered = tuple[int, "RowDocument"]


def metrics(matrix: MatrixDocument) -> list[str]:
    return list(matrix["metrics"])[:METRICS]


def ranked(matrix: MatrixDocument, metric: str | None, most: int | None = None) -> list[Numbered]:
    """(number, row) of the rows that are shown, best first; those beyond `most` are left out, but for the baseline."""
    numbers = {id(row): number for number, row in enumerate(matrix["rows"])}
    every = summary.ranked(matrix, metric)
    rows = summary.shortened(matrix, every, MANY, TOP)
    if most is not None:
        rows = summary.shortened(matrix, rows, most, most)
    return [(numbers[id(row)], row) for row in rows]


def full_name(matrix: MatrixDocument, number: int) -> str:
    """What a row chooses, in words."""
    return summary.combination_name(matrix, matrix["rows"][number])


def label(matrix: MatrixDocument, number: int, longest: int = 70) -> Markup:
    """HTML: a row by its variants alone, in the order of `nodes`; in full when pointed at."""
    row = matrix["rows"][number]
    variants = [summary.label(row, node, "–") for node in summary.shown_nodes(matrix)] or [full_name(matrix, number)]
    # Each by itself, so that names written from right to left do not change places with others.
    shown = (Markup("<bdi>{}</bdi>").format(text(one, max(12, longest // len(variants)))) for one in variants)
    title = text(full_name(matrix, number), TITLE)
    return Markup('<span title="{}">{}</span>').format(title, Markup(" · ").join(shown))


def nodes(matrix: MatrixDocument) -> Markup:
    """HTML: what the variants of a label are variants of."""
    return name(" · ".join(summary.shown_nodes(matrix)), 70)


def on_front(matrix: MatrixDocument, metric: str) -> Sequence[int]:
    """Numbers of the rows that no other is better than in the metric, cost and time at once."""
    return matrix["front"].get(metric, [])


def kind(matrix: MatrixDocument, number: int, metric: str) -> str:
    """The shape that a row is drawn with."""
    row = matrix["rows"][number]
    if summary.star(matrix, row, metric):
        return "diamond"
    return "square" if summary.is_baseline(matrix, row) else "dot"


def concerned(matrix: MatrixDocument, numbers: Sequence[int]) -> str:
    """Which combinations: all, those of one variant, or by name."""
    rows = matrix["rows"]
    if len(numbers) == len(rows):
        return "all combinations" if len(rows) > 1 else "the only combination"
    for node in summary.shown_nodes(matrix):
        variants = {summary.label(rows[number], node) for number in numbers}
        if len(variants) == 1:
            (variant,) = variants
            if sum(summary.label(row, node) == variant for row in rows) == len(numbers):
                return f"every combination with {node}={variant}"
    names = [full_name(matrix, number) for number in numbers[:3]]
    more = f" and {len(numbers) - 3} more combinations" if len(numbers) > 3 else ""
    return "; ".join(names) + more
