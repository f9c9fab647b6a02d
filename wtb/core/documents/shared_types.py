"""Types that several documents or events share. Times are ISO 8601 in UTC, durations seconds, money US dollars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NotRequired, get_args

from typing_extensions import TypedDict

# The variant of every varied node.
Combination = dict[str, str]
# The lower and the upper end.
Interval = list[float]
Better = Literal["higher", "lower"]
SweepStatus = Literal["pending", "running", "paused", "completed", "failed", "cancelled"]
# Of a single execution in a list.
RunStatus = Literal["pending", "running", "waiting", "paused", "completed", "failed", "cancelled"]
CellStatus = Literal["pending", "running", "waiting", "succeeded", "failed", "cancelled", "skipped", "set_aside"]
CELL_STATUSES: Final[tuple[CellStatus, ...]] = get_args(CellStatus)
Liveness = Literal["alive", "dead", "unknown"]


class AfterNode(TypedDict):
    """The approval mode that asks after a node."""

    after: str


ApprovalMode = Literal["none", "manual", "before", "on_error"] | AfterNode


class TriedEdge(TypedDict):
    """An edge of a decision: its target, its condition or branch key, and whether the execution took it."""

    to: str
    when: str | None
    taken: bool


class RouteDocument(TypedDict):
    """The reason why an execution went from a node to the next one, and the tried edges; for a branch, all of its
    edges.
    """

    node: str
    to: str
    key: str | None
    why: str
    tried: NotRequired[list[TriedEdge]]  # of executions that older versions ran: nothing


class CellCounts(TypedDict):
    """Cells of a sweep by status."""

    total: int
    pending: int
    running: int
    waiting: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    set_aside: int


def counts_by_status(cells: CellCounts) -> dict[CellStatus, int]:
    """Return cells by status, without zeros."""
    return {status: cells[status] for status in CELL_STATUSES if cells[status]}


def cell_counts(total: int, counts: Mapping[str, int]) -> CellCounts:
    """Return cells by status.

    Args:
        total: How many cells there are.
        counts: Status -> cells; a status without cells may be missing.
    """
    return {
        "total": total,
        "pending": counts.get("pending", 0),
        "running": counts.get("running", 0),
        "waiting": counts.get("waiting", 0),
        "succeeded": counts.get("succeeded", 0),
        "failed": counts.get("failed", 0),
        "cancelled": counts.get("cancelled", 0),
        "skipped": counts.get("skipped", 0),
        "set_aside": counts.get("set_aside", 0),
    }


class SweepHeading(TypedDict):
    """A sweep: its status, when it was submitted, and when the last of its cells ended."""

    id: str
    name: str
    status: SweepStatus
    started_at: str | None
    finished_at: str | None


class FixedReference(TypedDict):
    """The sweep that the nights of a schedule are compared with and that does not move."""

    sweep: str
    at: str | None
    mean: float | None
    ci: Interval | None


class NodeRunCounts(TypedDict):
    """Accepted node runs, their number without sharing, and attempts begun.

    Attributes:
        lag_s: For one node, the seconds by which the event loop was late on average while its runs were awaited, by
            variant; null if that was not measured.
    """

    executed: int
    unshared: int
    attempts: int
    lag_s: NotRequired[dict[str, float | None]]


class FailureExample(TypedDict):
    """One of the cells that failed for a cause, and the command that shows it."""

    case: str
    execution: str | None
    command: str


class FailedCase(TypedDict):
    """A case with cells that failed for a cause, and the execution of the first of them."""

    case: str
    cells: int
    execution: str | None


class FailureCause(TypedDict):
    """Failed cells whose errors differ only in numbers, addresses and quoted texts."""

    cells: int
    set_aside: int  # of these
    node: str | None
    type: str | None
    message: str | None
    retry: bool  # whether another try could end otherwise
    combinations: list[int]  # numbers of rows of the matrix
    example: FailureExample
    cases: NotRequired[list[FailedCase]]  # the first, as many as were asked for
    text: NotRequired[str | None]  # a part of the message that all of these cells have, by which they can be searched


class FailureCauses(TypedDict):
    """The most frequent causes, and the number of others."""

    causes: list[FailureCause]
    more: int


Severity = Literal["debug", "info", "warning", "error"]
# Metric -> score; of an evaluator that failed, its error.
Scores = dict[str, float | str | None]


class Event(TypedDict):
    """The common keys of events.

    `case` is present on request, None if the event is of no execution; so is `choices`, the variants by node of the
    combination whose number the event has.
    """

    id: int
    at: str
    severity: Severity
    sweep: str
    execution: str | None
    case: NotRequired[str | None]
    choices: NotRequired[dict[str, str]]
