"""Which rows of a matrix are shown, in which order and in which groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, meant_or_known
from wtb.core.factors.factors import label_columns, labels_of
from wtb.core.texts import plural, printable
from wtb.display.matrix import summary
from wtb.display.pivot.pivot_table import FIGURES, figure_of, levels_in_order, make_pivot

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.results.matrix_view import MatrixView, RowGroup

_DIRECTIONS = {"asc": False, "desc": True}


@frozen
class ViewOptions:
    """How somebody wants to see a matrix.

    Attributes:
        where: Filters as texts, which the caller has applied already.
        within: Only rows that are shown to be within the margin of the best.
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
        view["rows"] = [number for group in view["groups"] for number in group["rows"]]
    if options.pivot:
        if metric is None:
            raise InputError("pivot: nothing is scored; expected --metric cost or latency", argument="metric")
        view["pivot"] = make_pivot(document, view["rows"], options.pivot, metric)
    return view


def _metric(document: MatrixDocument, name: str | None, *, is_of_pivot: bool) -> str | None:
    """Return the metric of a view. Raises InputError if there is none of that name."""
    known = summary.metric_names(document)
    if name is None:
        return document["primary"] or next(iter(known), None)
    found = _named_metric(known, name)
    if found is None and is_of_pivot and name in FIGURES:
        return name
    if found is None:
        more = list(FIGURES) if is_of_pivot else []
        raise InputError(
            f"metric: the sweep has no metric {name!r}{meant_or_known(name, [*known, *more])}", argument="metric"
        )
    return found


def _named_metric(known: Sequence[str], name: str) -> str | None:
    """Return the metric of a name, or of what stands after the last colon of its import path."""
    short = [metric for metric in known if metric.rsplit(":")[-1] == name]
    return name if name in known else short[0] if len(short) == 1 else None


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
    found = (summary.estimate(row, metric).get("within") for row in document["rows"])
    return {number for number, within in enumerate(found) if within is not None and within["shown"]}


def _sorted(document: MatrixDocument, sort: str | None, metric: str | None, factors: Sequence[str]) -> list[int]:
    """Return the numbers of all rows in order; what has no figure comes last, whatever the direction."""
    rows = document["rows"]
    if sort is None:
        places = {id(row): number for number, row in enumerate(rows)}
        is_metric = metric in summary.metric_names(document)
        return [places[id(row)] for row in summary.ranked(document, metric if is_metric else None)]
    of, is_descending = _order(document, sort, factors)
    values = [of(row) for row in rows]
    known = [number for number, value in enumerate(values) if value is not None]
    known.sort(key=lambda number: values[number] or 0.0, reverse=is_descending)
    return known + [number for number, value in enumerate(values) if value is None]


def _order(
    document: MatrixDocument, sort: str, factors: Sequence[str]
) -> tuple[Callable[[RowDocument], float | None], bool]:
    """Return the value by which rows are sorted, and whether the highest comes first. Raises InputError."""
    name, _, suffix = sort.rpartition(":")
    name, chosen = (name, _DIRECTIONS[suffix]) if name and suffix in _DIRECTIONS else (sort, None)
    metrics = summary.metric_names(document)
    metric = _named_metric(metrics, name)
    if metric is not None:
        is_high_first = summary.better(document, metric) == "higher"
        return lambda row: summary.estimate(row, metric)["mean"], is_high_first if chosen is None else chosen
    if name in FIGURES:
        return lambda row: figure_of(row, name)[0], bool(chosen)
    if name == "number":
        numbers = {id(row): number for number, row in enumerate(document["rows"])}
        return lambda row: numbers[id(row)], bool(chosen)
    if name in factors:
        levels = levels_in_order(document, range(len(document["rows"])), name)
        places = {level: place for place, level in enumerate(levels) if level is not None}
        return lambda row: places.get(labels_of(row["combination"]).get(name, "")), bool(chosen)
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
    if view["sort"] is not None or view["group_by"]:
        return [rows[number] for number in view["rows"]]
    seen = {id(rows[number]) for number in view["rows"]}
    return [row for row in summary.ranked(document, metric) if id(row) in seen]


def first_of_groups(document: MatrixDocument) -> set[int]:
    """Return the numbers of the rows with which a group begins, except the first group."""
    groups = document["view"].get("groups", []) if "view" in document else []
    return {group["rows"][0] for group in groups[1:]}


def words(document: MatrixDocument) -> list[str]:
    """Say which rows a view shows, and that it changes no statistic; nothing without a filter."""
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
