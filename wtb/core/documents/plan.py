"""Plans, costs and budgets: the documents of `wtb plan`, `submit`, `costs`, `budget list` and `series`."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Combination, SweepStatus
from wtb.core.scoring.unknown_costs import UnknownCost
from wtb.core.tree.stored_spec import DataFinding, Limits

# The least and the most; null where there is no bound.
Bounds = list[int | None]


class PlannedNode(TypedDict):
    """A node of a plan."""

    variants: int
    executed: Bounds
    unshared: Bounds


class PlannedNodeRuns(TypedDict):
    """Expected node runs, with and without sharing."""

    executed: Bounds
    unshared: Bounds
    by_node: dict[str, PlannedNode]


class MarginDocument(TypedDict):
    """The number of cases that a margin requires; null if it is unknown."""

    metric: str
    margin: float
    rows: NotRequired[int]  # combinations that all have to show it
    cases: int
    needed: int | None
    sd: float | None
    because: str


class EstimatedAmount(TypedDict):
    """An expected amount, and the ends of a 95% interval."""

    expected: float | None
    low: float | None
    high: float | None


class PilotEstimate(TypedDict):
    """The estimate of a whole sweep. `work_s` is the seconds in nodes."""

    usd: EstimatedAmount
    tokens: EstimatedAmount
    node_runs: EstimatedAmount
    work_s: EstimatedAmount


class PilotDocument(TypedDict):
    """A few cases that ran, and the estimate from them. `wall_s` is the seconds at that concurrency."""

    sweep: str
    status: SweepStatus
    reason: str | None
    cases: int
    of: int
    repeats: int
    failed_cells: int
    estimate: PilotEstimate
    wall_s: EstimatedAmount
    concurrency: int
    method: str


class PlannedCode(TypedDict):
    """The code that fingerprints leave out: `varying` globals and the code they call, and code that could not be
    followed.
    """

    varying: list[str]
    not_followed: list[str]


class LastSweepDocument(TypedDict):
    """The open question of the last sweep of the same name, and the next step towards its answer."""

    sweep: str
    metric: str
    cases: int
    next_step: str


class PlannedPrice(TypedDict):
    """The expected cost of node runs, from the costs of the same nodes and variants in earlier sweeps.

    Attributes:
        usd: At least and at most; null if it is unknown.
        node_runs: How many earlier node runs the estimate is based on.
        sweeps: How many earlier sweeps the estimate is based on.
        because: Why it is unknown, or null.
    """

    usd: list[float | None] | None
    node_runs: int
    sweeps: int
    because: str | None


class PlannedConcurrency(TypedDict):
    """The number of node runs at a time on one machine.

    Attributes:
        is_default: Whether the sweep names no number.
        seconds: How long all node runs take then, at least and at most, if earlier sweeps measured them.
    """

    at_once: int
    is_default: bool
    seconds: NotRequired[list[float | None]]


class PlannedFactor(TypedDict):
    """A parameter of a node that is varied. `levels`: their labels. `is_nested`: some variants do not have it."""

    node: str
    parameter: str
    levels: list[str]
    is_nested: bool


class PlanDocument(TypedDict):
    """The plan of a sweep.

    `data` are the findings of the check of its cases; `notes` are the same as sentences, and about rows that are no
    cases.
    """

    version: Literal[1]
    sweep: str
    workflow: str
    vary: dict[str, list[str]]
    factors: NotRequired[list[PlannedFactor]]
    combinations: int
    cases: int
    repeats: int
    cells: int
    baseline: Combination | None
    evaluators: list[str]
    limits: Limits
    node_runs: PlannedNodeRuns
    margins: list[MarginDocument]
    notes: NotRequired[list[str]]
    data: NotRequired[list[DataFinding]]
    sampled_from: NotRequired[int]  # cases, of which `cases` were drawn at random
    code: NotRequired[PlannedCode]
    unknown_costs: NotRequired[list[UnknownCost]]  # of the pilot, else of the last sweep of the workflow
    concurrency: NotRequired[PlannedConcurrency]
    warnings: NotRequired[list[str]]
    price: NotRequired[PlannedPrice]  # without a pilot
    pilot: NotRequired[PilotDocument]
    last_sweep: NotRequired[LastSweepDocument]  # if it has ended, and no combination is clearly the best


class SubmittedDocument(TypedDict):
    """A sweep that was submitted to workers, or continues on them; their number, and whether they were reached."""

    sweep: str
    name: str
    cells: int
    started: bool
    workers: int


class SubmissionDocument(SubmittedDocument):
    """The HTTP form of a submission; `problem` is why workers could not be reached, null if they were."""

    problem: str | None


class StartedDocument(TypedDict):
    """A single input that was submitted to workers: its execution is found by `id`."""

    id: str
    submitted: bool


class PlannedExtensionDocument(TypedDict):
    """A planned extension of a sweep."""

    sweep: str
    name: str
    cases: int  # new ones
    present: int  # cases that are there already
    held_out: int  # cases that `holdout` leaves out
    combinations: list[Combination]  # new ones
    repeats: int  # in all
    cells: int  # new ones
    node_runs: list[float | None]  # at least, and at most; null if there is no bound
    usd: list[float | None] | None  # by what node runs of the sweep have cost; null if that is not known
    notes: list[str]


class ExtensionDocument(PlannedExtensionDocument):
    """An extension of a sweep."""

    executions: int  # that are to run
    failed: int  # cells that failed before they came to what differs
    restarted: int  # cells of stopped combinations
    queued: bool
    status: str  # of the sweep
    problem: str | None  # why workers could not be reached


BudgetScope = Literal["sweep", "node", "project", "session", "token"]
BudgetKind = Literal["usd", "tokens", "node_runs"]


class CostFigures(TypedDict):
    """US dollars, tokens, attempts and recorded calls; null if nothing is known by these dimensions.

    By tool they are of calls of tools: failed ones, seconds, and those that rollbacks undid. Innocent attempts ended
    with the process that they shared, because another one failed; they are not among the failed ones.
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
    """The amounts of one group, with its name in each requested dimension."""

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
    """The sum of everything, including failed and innocent attempts; by tool the calls are those of tools."""

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
    """Costs in the requested dimensions, the dearest first."""

    by: list[str]
    since: str | None
    rows: list[CostRow]
    total: CostTotal
    unknown: NotRequired[list[UnknownCost]]  # why less is recorded than was spent


class BudgetDocument(TypedDict):
    """A budget: its size, the amount spent, and the amount that running attempts have reserved."""

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
