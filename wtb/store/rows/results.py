"""Rows of cells, scores and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

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


class StoredNights(TypedDict):
    """The nights of a baseline: the sweep of each, whether it was worse, and whether it was accepted.

    repeats: the sweeps that the noise of the reference was measured by. count: of all nights, also those left out.
    """

    repeats: list[str]
    nights: list[tuple[str, bool, bool]]
    count: int


class ListedBaseline(Record):
    """A baseline with its sweep, whose name, status and end it has."""

    name: str
    session: str
    set_at: float
    sweep_id: str
    noise_floor: NoiseFloorDocument | None
    reference_id: str | None
    nights: StoredNights | None
    sweep: str
    status: SweepStatus
    finished_at: float | None
