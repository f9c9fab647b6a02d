"""What documents of results say of the sweep that they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.serialization.plain_json import iso
from wtb.store.rows.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import SweepHeading


def sweep_heading(sweep: SweepRow) -> SweepHeading:
    """A sweep as the matrix and comparisons name it, given its row."""
    return {
        "id": sweep.id,
        "name": sweep.name,
        "status": sweep.status,
        "started_at": iso(sweep.started_at),
        "finished_at": iso(sweep.finished_at),
    }
