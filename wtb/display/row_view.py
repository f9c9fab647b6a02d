"""Which rows of a matrix are shown, in which order and in which groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from wtb.core.documents.matrix import is_ranked
from wtb.core.errors import InputError, meant_or_known
from wtb.core.factors import label_columns, labels_of
from wtb.core.frozen import frozen
from wtb.core.texts import plural, printable
from wtb.display import summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, MatrixView, PivotCell, PivotDocument, RowDocument, RowGroup

# Stricter than float(), which also accepts `nan`, `inf` and `1_0`: those are names of variants here.
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
    other_factors = [
        key for key in label_columns([row["combination"] for row in document["rows"]]) if key not in factors
    ]
    # Cells differ by the factors of the table alone only if each averages the same levels of the others.
    averaged = {
        frozenset(tuple(labels[number].get(key) for key in other_factors) for number in cell["rows"])
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
        # The mean is over all rows, so intervals of only some of them would belong to another mean.
        "ci": [sum(end) / len(ends) for end in zip(*ends, strict=True)] if ends and len(ends) == len(rows) else None,
        "rows": rows,
        "left_out": [number for number in numbers if number not in rows],
    }


def figure_of(row: RowDocument, metric: str) -> tuple[float | None, Sequence[float] | None]:
    """Return a row's mean of a metric with its interval; or its cost or latency, if no metric has that name."""
    if metric in row["metrics"]:
        estimate = row["metrics"][metric]
        return estimate["mean"], estimate["ci"]
    if metric == "cost":
        return row["cost_usd"], None
    return (row["latency_s"]["p50"] if metric == "latency" else None), None


def levels_in_order(document: MatrixDocument, numbers: Collection[int], factor: str) -> list[str | None]:
    """Return the levels of a factor: by number if all are numbers, else as declared; None last, if a row has none."""
    # Rows are numbered in the order of declaration, and `numbers` may be a set.
    distinct_levels = dict.fromkeys(
        labels_of(document["rows"][number]["combination"]).get(factor) for number in sorted(numbers)
    )
    levels = [level for level in distinct_levels if level is not None]
    values = [float(level) if _NUMBER.fullmatch(level) else None for level in levels]
    if all(number is not None for number in values):
        levels = [level for _, level in sorted(zip(values, levels, strict=True), key=lambda pair: pair[0] or 0.0)]
    return [*levels, *([None] if None in distinct_levels else [])]


_DIRECTIONS = {"asc": False, "desc": True}


@frozen
class ViewOptions:
    """The choices of a person about the rows and columns of a matrix.

    Attributes:
        where: Filters as texts, which the caller has applied already.
        within: Only rows shown to be within the margin of the best.
        sort: A metric, `cost`, `latency`, `number`, or a factor; `:asc` or `:desc` may follow.
        group_by: Factors by whose levels rows stand together.
        pivot: One or two factors of a pivot table.
        metric: The metric of `within` and `pivot`; None for the one that decides.
    """

    where: Sequence[str] = ()
    within: bool = False
    sort: str | None = None
    group_by: Sequence[str] = ()
    pivot: Sequence[str] = ()
    metric: str | None = None

    def __bool__(self) -> bool:
        # `metric` alone makes no view, because it only belongs to `within` and `pivot`.
        return bool(self.where or self.within or self.sort or self.group_by or self.pivot)


def make_view(document: MatrixDocument, options: ViewOptions, numbers: Collection[int] | None = None) -> MatrixView:
    """Return a view of a matrix.

    Args:
        document: The matrix.
        options: How it is seen.
        numbers: The rows that the filters `where` leave; None for all.

    Raises:
        InputError: If there is no such metric or factor, or no margin to be within.
    """
    factors = label_columns([row["combination"] for row in document["rows"]])
    metric = _metric(document, options.metric, is_of_pivot=bool(options.pivot))
    for name, keys in (("group_by", options.group_by), ("pivot", options.pivot)):
        _check_factors(name, keys, factors)
    allowed = set(range(len(document["rows"])) if numbers is None else numbers)
    if options.within:
        allowed &= _within(document, metric)
    rows = [number for number in _sorted(document, options.sort, metric, factors) if number in allowed]
    view: MatrixView = {
        "where": list(options.where),
        "within": options.within,
        "metric": metric,
        "sort": options.sort,
        "group_by": list(options.group_by),
        "rows": rows,
    }
    if options.group_by:
        view["groups"] = _grouped(document, rows, options.group_by)
        # Tables print `rows` in its order, so groups have to stand together in it.
        view["rows"] = [number for group in view["groups"] for number in group["rows"]]
    if options.pivot:
        if metric is None:
            raise InputError("pivot: nothing is scored; expected --metric cost or latency", argument="metric")
        view["pivot"] = make_pivot(document, view["rows"], options.pivot, metric)
    return view


def _metric(document: MatrixDocument, name: str | None, *, is_of_pivot: bool) -> str | None:
    """Return the metric of a view. Raises InputError if there is none of that name."""
    metric_names = summary.metric_names(document)
    if name is None:
        return document["primary"] or next(iter(metric_names), None)
    metric = _named_metric(metric_names, name)
    if metric is None and is_of_pivot and name in FIGURES:
        return name
    if metric is None:
        more = list(FIGURES) if is_of_pivot else []
        raise InputError(
            f"metric: the sweep has no metric {name!r}{meant_or_known(name, [*metric_names, *more])}", argument="metric"
        )
    return metric


def _named_metric(metric_names: Sequence[str], name: str) -> str | None:
    """Return the metric of a name, or of what stands after the last colon of its import path."""
    short = [metric for metric in metric_names if metric.rsplit(":")[-1] == name]
    return name if name in metric_names else short[0] if len(short) == 1 else None


def _check_factors(argument: str, keys: Sequence[str], factors: Sequence[str]) -> None:
    """Raise InputError for what is neither a factor nor a varied node, and for too many of them."""
    for key in keys:
        if key not in factors:
            near = meant_or_known(key, factors)
            raise InputError(f"{argument}: the sweep has no factor {key!r}{near}", argument=argument)
    if len(set(keys)) < len(keys):
        raise InputError(f"{argument} names a factor twice; expected different factors", argument=argument)
    if argument == "pivot" and len(keys) > 2:
        raise InputError(f"pivot has {len(keys)} factors; expected one or two", argument=argument)


def _within(document: MatrixDocument, metric: str | None) -> set[int]:
    """Return the rows that are shown to be within the margin. Raises InputError if the metric has no margin."""
    if metric is None or summary.margin_of(document, metric) is None:
        what = metric or "the sweep"
        example = f"{{{metric or 'METRIC'}: 0.05}}"
        raise InputError(f"within: {what} has no margin; set `margin: {example}` in the sweep file", argument="within")
    verdicts = (summary.estimate(row, metric).get("within") for row in document["rows"])
    return {number for number, within in enumerate(verdicts) if within is not None and within["shown"]}


def _sorted(document: MatrixDocument, sort: str | None, metric: str | None, factors: Sequence[str]) -> list[int]:
    """Return the numbers of all rows in order; what has no figure comes last, whatever the direction."""
    rows = document["rows"]
    if sort is None:
        # Rows are dictionaries, which have no hash. `ranked` returns the same objects, so their ids are keys.
        places = {id(row): number for number, row in enumerate(rows)}
        is_metric = metric in summary.metric_names(document)
        return [places[id(row)] for row in summary.ranked(document, metric if is_metric else None)]
    of, is_descending = _order(document, sort, factors)
    values = [of(row) for row in rows]
    with_figure = [number for number, figure in enumerate(values) if figure is not None]
    # Rows without a figure are not in this list: `reverse` would put them first.
    with_figure.sort(key=lambda number: values[number] or 0.0, reverse=is_descending)
    return with_figure + [number for number, figure in enumerate(values) if figure is None]


def _order(
    document: MatrixDocument, sort: str, factors: Sequence[str]
) -> tuple[Callable[[RowDocument], float | None], bool]:
    """Return the value by which rows are sorted, and whether the highest comes first. Raises InputError."""
    name, _, suffix = sort.rpartition(":")
    # A metric may be an import path with a colon, so only a direction is cut off.
    name, is_descending = (name, _DIRECTIONS[suffix]) if name and suffix in _DIRECTIONS else (sort, None)
    metrics = summary.metric_names(document)
    metric = _named_metric(metrics, name)
    if metric is not None:
        is_high_first = summary.better(document, metric) == "higher"
        return lambda row: summary.estimate(row, metric)[
            "mean"
        ], is_high_first if is_descending is None else is_descending
    if name in FIGURES:
        return lambda row: figure_of(row, name)[0], bool(is_descending)
    if name == "number":
        numbers = {id(row): number for number, row in enumerate(document["rows"])}
        return lambda row: numbers[id(row)], bool(is_descending)
    if name in factors:
        levels = levels_in_order(document, range(len(document["rows"])), name)
        places = {level: place for place, level in enumerate(levels) if level is not None}
        return lambda row: places.get(labels_of(row["combination"]).get(name, "")), bool(is_descending)
    near = meant_or_known(name, [*metrics, *FIGURES, "number", *factors])
    raise InputError(f"sort: {name!r} is no metric, figure or factor{near}", argument="sort")


def _grouped(document: MatrixDocument, rows: Sequence[int], keys: Sequence[str]) -> list[RowGroup]:
    """Return rows in groups by their levels, which stand in their order."""
    orders = {key: levels_in_order(document, rows, key) for key in keys}
    groups: dict[tuple[int, ...], RowGroup] = {}
    for number in rows:
        labels = labels_of(document["rows"][number]["combination"])
        levels = {key: labels.get(key) for key in keys}
        place = tuple(orders[key].index(levels[key]) for key in keys)
        groups.setdefault(place, {"levels": levels, "rows": []})["rows"].append(number)
    return [groups[place] for place in sorted(groups)]


def viewed_rows(document: MatrixDocument, metric: str | None) -> list[RowDocument]:
    """Return the rows that a table by a metric shows, in order: those of the view, or all, the best first."""
    view = document.get("view")
    if view is None:
        return summary.ranked(document, metric)
    rows = document["rows"]
    # Without these options each table is sorted by its own metric; `rows` is sorted by the metric of the view.
    if view["sort"] is not None or view["group_by"]:
        return [rows[number] for number in view["rows"]]
    seen = {id(rows[number]) for number in view["rows"]}
    return [row for row in summary.ranked(document, metric) if id(row) in seen]


def first_of_groups(document: MatrixDocument) -> set[int]:
    """Return the numbers of the rows with which a group begins, except the first group."""
    groups = document["view"].get("groups", []) if "view" in document else []
    return {group["rows"][0] for group in groups[1:]}


def words(document: MatrixDocument) -> list[str]:
    """Return sentences on the rows that a view shows; empty without a filter."""
    view = document.get("view")
    if view is None or not (view["where"] or view["within"]):
        return []
    filters = list(view["where"])
    if view["within"] and view["metric"] is not None:
        filters.append(f"within {summary.margin_of(document, view['metric']):g} of the best by {view['metric']}")
    every = len(document["rows"])
    return [
        printable(f"{len(view['rows']):,} of {plural(every, 'combination')}: {'; '.join(filters)}."),
        f"Filters change no statistic: intervals, tests and corrections are those of all {every:,} combinations.",
    ]
