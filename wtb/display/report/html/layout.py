"""How much of a matrix a report shows, and what it calls the rows that something concerns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.display.matrix import summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


METRICS = 12
MANY, TOP = 300, 200  # of more combinations than MANY the TOP are shown, and the baseline

Numbered = tuple[int, "RowDocument"]


def metrics(matrix: MatrixDocument) -> list[str]:
    """Return the metrics that are shown: the first, and the one that decides."""
    names, primary = list(matrix["metrics"]), matrix["primary"]
    shown = names[:METRICS]
    return shown if primary is None or primary in shown else [*shown[:-1], primary]


def ranked(matrix: MatrixDocument, metric: str | None, most: int | None = None) -> list[Numbered]:
    """(number, row) of the rows that are shown, best first; those beyond `most` are left out, but for the baseline."""
    numbers = {id(row): number for number, row in enumerate(matrix["rows"])}
    every = summary.ranked(matrix, metric)
    rows = summary.shortened(matrix, every, MANY, TOP)
    if most is not None:
        rows = summary.shortened(matrix, rows, most, most)
    return [(numbers[id(row)], row) for row in rows]


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
    names = [summary.combination_name(matrix, rows[number]) for number in numbers[:3]]
    more = f" and {len(numbers) - 3} more combinations" if len(numbers) > 3 else ""
    return "; ".join(names) + more
