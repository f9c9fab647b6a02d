"""A view of a matrix: which rows are shown, in which order and groups, and a table of two factors."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.common import Interval


class PivotCell(TypedDict):
    """The combinations that share a level of each factor of a pivot table.

    Attributes:
        mean: The mean over the means of `rows`; null if there is none.
        ci: From the mean of the lower ends of their intervals to the mean of the upper ends; null if one has none.
        rows: The numbers of the combinations that are averaged.
        left_out: The numbers of those that are not: stopped, exploratory, or without the figure.
    """

    mean: float | None
    ci: Interval | None
    rows: list[int]
    left_out: list[int]


class PivotDocument(TypedDict):
    """A figure by one or two factors, averaged over the levels of all others.

    Attributes:
        factors: One or two: that of the lines, and that of the columns.
        metric: A metric, or `cost` or `latency`.
        lines: The levels of the first factor; null for combinations without it.
        columns: The levels of the second factor; one null if there is no second factor.
        cells: By line, then by column.
        balanced: Whether all cells that have a mean average the same levels of the other factors.
    """

    factors: list[str]
    metric: str
    lines: list[str | None]
    columns: list[str | None]
    cells: list[list[PivotCell]]
    balanced: bool


class RowGroup(TypedDict):
    """Rows that share levels. `levels`: null for combinations without the factor."""

    levels: dict[str, str | None]
    rows: list[int]


class MatrixView(TypedDict):
    """What of a matrix is shown, and how. It changes no figure of it.

    Attributes:
        where: The filters, such as `answer.model=mini`.
        within: Whether only rows are shown that are within the margin of the best.
        metric: By which metric rows are filtered, and compared in a pivot table.
        sort: What orders the rows; null for the best first.
        group_by: The factors by whose levels rows stand together.
        rows: The numbers of the rows that are shown, in order.
        groups: The same in groups, if `group_by` has a factor.
        pivot: The pivot table, if one was requested.
    """

    where: list[str]
    within: bool
    metric: str | None
    sort: str | None
    group_by: list[str]
    rows: list[int]
    groups: NotRequired[list[RowGroup]]
    pivot: NotRequired[PivotDocument]
