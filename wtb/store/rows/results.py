"""Rows of cells, scores and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wtb.core.documents.common import CellStatus, SweepStatus
from wtb.core.failures import StoredFailure
from wtb.core.scoring.measure import Better
from wtb.store.rows.record import Record

if TYPE_CHECKING:
    from wtb.core.documents.comparison import NoiseFloorDocument


class CellRow(Record):
    """A cell as it stands: what its execution has spent and how it failed is known at its end."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    status: CellStatus
    execution_id: str | None
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    failure: StoredFailure | None
    edited: bool
    finished_at: float | None


class ListedCell(CellRow):
    """A cell of a list: with its case's id, and the checkpoint at which its execution stands."""

    case: str
    head_id: str | None


class FoundCell(Record):
    """A cell that somebody looked for."""

    combination: int
    repeat: int
    status: str
    execution_id: str | None
    case: str


class ScoreRow(Record):
    """A score of a cell, or why it has none."""

    sweep_id: str
    metric: str
    case_number: int
    repeat: int
    combination: int
    value: float | None
    error: str | None
    observed: str | None
    version: str | None
    reason: str | None


class LabelRow(Record):
    """What a person says of a cell.

    Attributes:
        asked: Why it was asked for: `random`, or `disagreement` of other raters.
        probability: That its case was drawn with; None where it was not drawn here.
    """

    sweep_id: str
    metric: str
    case_number: int
    repeat: int
    combination: int
    rater: str
    value: float
    asked: str
    probability: float | None
    at: float


class ListedComment(Record):
    """What somebody wrote about a cell, with the id of its case."""

    sweep_id: str
    number: int
    case_number: int
    repeat: int
    combination: int
    by: str
    text: str
    at: float
    case: str


class MetricRow(Record):
    """A metric of a sweep, as its evaluator declared it."""

    sweep_id: str
    name: str
    number: int
    better: Better
    declared: bool
    by_median: bool
    low: float | None
    high: float | None
    on_failure: str | None
    figure: str | None


class ListedBaseline(Record):
    """A baseline with its sweep, whose name, status and end it has."""

    name: str
    session: str
    set_at: float
    sweep_id: str
    noise_floor: NoiseFloorDocument | None
    reference_id: str | None
    nights: Mapping[str, Any] | None
    sweep: str
    status: SweepStatus
    finished_at: float | None


class TallyRow(Record):
    """The scores of a combination by a metric.

    Attributes:
        n: How many cells have one.
        total: The sum of them.
    """

    sweep_id: str
    metric: str
    combination: int
    n: int
    total: float
