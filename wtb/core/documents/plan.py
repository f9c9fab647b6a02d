"""Before a sweep runs: what `wtb plan` and `wtb submit` print."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.common import Combination, SweepStatus
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
    """Node runs that are to come, with and without sharing."""

    executed: Bounds
    unshared: Bounds
    by_node: dict[str, PlannedNode]


class MarginDocument(TypedDict):
    """How many cases a margin takes; null where it cannot be told."""

    metric: str
    margin: float
    rows: NotRequired[int]  # combinations that all have to show it
    cases: int
    needed: int | None
    sd: float | None
    because: str


class EstimatedAmount(TypedDict):
    """What is expected, and the ends of a 95% interval."""

    expected: float | None
    low: float | None
    high: float | None


class PilotEstimate(TypedDict):
    """What the whole sweep takes. `work_s`: seconds in nodes."""

    usd: EstimatedAmount
    tokens: EstimatedAmount
    node_runs: EstimatedAmount
    work_s: EstimatedAmount


class PilotDocument(TypedDict):
    """A few cases that ran, and what they say of the whole. `wall_s`: seconds at that concurrency."""

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
    """What fingerprints of the code leave out: `varying` globals and what they call, and what could not be followed."""

    varying: list[str]
    not_followed: list[str]


class LastSweepDocument(TypedDict):
    """The question that the last sweep of the same name leaves open, and the next step towards its answer."""

    sweep: str
    metric: str
    cases: int
    next_step: str


class PlannedPrice(TypedDict):
    """What the node runs will cost, by what those of the same nodes and variants in earlier sweeps have cost.

    usd: At least and at most; null if it is not known. node_runs, sweeps: what it is measured by. because: why it is
    not known, or null.
    """

    usd: list[float | None] | None
    node_runs: int
    sweeps: int
    because: str | None


class PlannedConcurrency(TypedDict):
    """How many node runs are made at a time on one machine.

    is_default: Whether the sweep names no number. seconds: How long all node runs take then, at least and at most; only
    if earlier sweeps measured them.
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
    """What a sweep would run.

    `data`: what the check of the cases found. `notes`: the same as sentences, and about rows that are no cases.
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
    """A sweep that was given to workers, or goes on with them; how many there are, and whether they were reached."""

    sweep: str
    name: str
    cells: int
    started: bool
    workers: int


class SubmissionDocument(SubmittedDocument):
    """The same as HTTP has it. problem: why workers could not be reached; null if they were."""

    problem: str | None


class StartedDocument(TypedDict):
    """A single input that was given to workers: its execution is found by `id`."""

    id: str
    submitted: bool


class PlannedExtensionDocument(TypedDict):
    """What would be added to a sweep."""

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
    """What was added to a sweep."""

    executions: int  # that are to run
    failed: int  # cells that failed before they came to what differs
    restarted: int  # cells of stopped combinations
    queued: bool
    status: str  # of the sweep
    problem: str | None  # why workers could not be reached
