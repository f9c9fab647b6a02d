"""Pivot tables: a figure by two factors, averaged over the combinations that share a level of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from wtb.core.documents.matrix import is_ranked
from wtb.core.factors.factors import label_columns, labels_of

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.results.matrix_view import PivotCell, PivotDocument

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
FIGURES = ("cost", "latency")
"""Figures of rows that are no metrics."""


def make_pivot(document: MatrixDocument, numbers: Sequence[int], factors: Sequence[str], metric: str) -> PivotDocument:
    """Return a figure by one or two factors.

    A cell is the mean over the means of the combinations that share both levels, each with the same weight. Its
    interval goes from the mean of their lower ends to the mean of their upper ends. It is a 95% interval if errors of
    the combinations go together, as they do over the same cases, and wider than needed if not. There is no test:
    differences between cells are those of the effects. Combinations that were stopped, or added after results were
    seen, are left out, since they have other cases.

    Args:
        document: The matrix.
        numbers: The rows of it that the table is made of.
        factors: The factor of the lines, and that of the columns if there are two.
        metric: A metric, or `cost` or `latency`.
    """
    labels = {number: labels_of(document["rows"][number]["combination"]) for number in numbers}
    axes = [levels_in_order(document, numbers, factor) for factor in factors]
    lines = axes[0]
    columns: list[str | None] = axes[1] if len(axes) > 1 else [None]
    places: dict[tuple[str | None, ...], list[int]] = {}
    for number in sorted(numbers):
        places.setdefault(tuple(labels[number].get(factor) for factor in factors), []).append(number)
    cells = [
        [_cell(document, places.get((line, column)[: len(factors)], []), metric) for column in columns]
        for line in lines
    ]
    others = [key for key in label_columns([row["combination"] for row in document["rows"]]) if key not in factors]
    averaged = {
        frozenset(tuple(labels[number].get(key) for key in others) for number in cell["rows"])
        for line in cells
        for cell in line
        if cell["rows"]
    }
    return {
        "factors": list(factors),
        "metric": metric,
        "lines": lines,
        "columns": columns,
        "cells": cells,
        "balanced": len(averaged) <= 1,
    }


def _cell(document: MatrixDocument, numbers: Sequence[int], metric: str) -> PivotCell:
    """Average the rows that share the levels of a cell."""
    figures = {number: figure_of(document["rows"][number], metric) for number in numbers}
    rows = [number for number in numbers if is_ranked(document["rows"][number]) and figures[number][0] is not None]
    means = [mean for number in rows if (mean := figures[number][0]) is not None]
    ends = [ci for number in rows if (ci := figures[number][1]) is not None]
    return {
        "mean": sum(means) / len(means) if means else None,
        "ci": [sum(end) / len(ends) for end in zip(*ends, strict=True)] if ends and len(ends) == len(rows) else None,
        "rows": rows,
        "left_out": [number for number in numbers if number not in rows],
    }


def figure_of(row: RowDocument, metric: str) -> tuple[float | None, Sequence[float] | None]:
    """Return a row's mean of a metric with its interval; or its cost or latency, if no metric has that name."""
    if metric in row["metrics"]:
        found = row["metrics"][metric]
        return found["mean"], found["ci"]
    if metric == "cost":
        return row["cost_usd"], None
    return (row["latency_s"]["p50"] if metric == "latency" else None), None


def levels_in_order(document: MatrixDocument, numbers: Collection[int], factor: str) -> list[str | None]:
    """Return the levels of a factor: by number if all are numbers, else as declared; None last, if a row has none."""
    found = dict.fromkeys(labels_of(document["rows"][number]["combination"]).get(factor) for number in sorted(numbers))
    levels = [level for level in found if level is not None]
    values = [_as_number(level) for level in levels]
    if all(value is not None for value in values):
        levels = [level for _, level in sorted(zip(values, levels, strict=True), key=lambda pair: pair[0] or 0.0)]
    return [*levels, *([None] if None in found else [])]


def _as_number(level: str) -> float | None:
    return float(level) if _NUMBER.fullmatch(level) else None
