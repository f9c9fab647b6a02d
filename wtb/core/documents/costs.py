"""What was spent and measured: what `wtb costs`, `wtb budget list` and `wtb series` print."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.scoring.unknown_costs import UnknownCost

BudgetScope = Literal["sweep", "node", "project", "session", "token"]
BudgetKind = Literal["usd", "tokens", "node_runs"]


class CostFigures(TypedDict):
    """US dollars, tokens, attempts and recorded calls; null if nothing is known by these dimensions.

    By tool they are of calls of tools: failed ones, seconds, and those that rollbacks undid.
    Innocent attempts ended with the process that they shared, for the sake of another one; no failed one is among them.
    """

    usd: float
    tokens_in: int | None
    tokens_out: int | None
    attempts: int | None
    calls: int | None
    failed_attempts: int | None
    failed_usd: float | None
    innocent_attempts: NotRequired[int | None]
    innocent_usd: NotRequired[float | None]
    failed_calls: NotRequired[int]  # these three by tool only
    duration_s: NotRequired[float]
    reversed_calls: NotRequired[int]


class CostRow(CostFigures):
    """What was spent for one thing: of each dimension that was asked for its name."""

    project: NotRequired[str | None]
    session: NotRequired[str | None]
    sweep: NotRequired[str | None]
    sweep_name: NotRequired[str | None]
    workflow: NotRequired[str | None]
    node: NotRequired[str | None]
    variant: NotRequired[str | None]
    model: NotRequired[str | None]
    tool: NotRequired[str]


class CostTotal(TypedDict):
    """The sum of everything, failed and innocent attempts included; by tool the calls are those of tools."""

    usd: float
    tokens_in: int
    tokens_out: int
    attempts: int
    calls: int
    failed_attempts: int
    failed_usd: float
    innocent_attempts: NotRequired[int]
    innocent_usd: NotRequired[float]
    failed_calls: NotRequired[int]
    duration_s: NotRequired[float]
    reversed_calls: NotRequired[int]


class CostsDocument(TypedDict):
    """What was spent, by what was asked for, the dearest first."""

    by: list[str]
    since: str | None
    rows: list[CostRow]
    total: CostTotal
    unknown: NotRequired[list[UnknownCost]]  # why less is recorded than was spent


class BudgetDocument(TypedDict):
    """A budget: most, spent, and reserved by attempts that are under way."""

    scope: BudgetScope
    name: str
    key: str  # the id of a session or sweep, else the name
    node: str | None
    kind: BudgetKind
    most: float | None
    spent: float
    reserved: float


class BudgetsDocument(TypedDict):
    """Budgets of all, or those that bind a sweep."""

    budgets: list[BudgetDocument]


class NodeSeries(TypedDict):
    """One series of one node run. A point is its time and its value."""

    node_run: str | None
    execution: str | None
    case: str | None
    node: str
    variant: str
    name: str
    measured: bool  # by WTB, and not recorded by the node
    unit: str | None
    points: list[tuple[str, float]]
    n: int
    min: float
    last: float
    max: float


class SeriesOf(TypedDict):
    """The sweep or execution that series are of."""

    id: str


class AllSeriesDocument(TypedDict):
    """Series of a sweep (`sweep`) or of an execution (`execution`)."""

    sweep: NotRequired[SeriesOf]
    execution: NotRequired[SeriesOf]
    series: list[NodeSeries]
