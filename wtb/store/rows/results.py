"""Rows of cells, scores and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wtb.core.documents.common import SweepStatus
from wtb.store.rows.record import Record
from wtb.store.tables.results import CellRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import NoiseFloorDocument


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
