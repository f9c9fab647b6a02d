"""What is written of a sweep that waits for room on a disk: its reason, for people, and an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core.errors import StoreError
from wtb.store.database import Database
from wtb.store.events import add_event, of_sweep
from wtb.store.tables.sweeps import sweeps

FULL = "sweep.disk_full"
ROOMY = "sweep.disk_has_room"


def record_full(database: Database, sweep: Mapping[str, Any], reason: str, worker: str | None = None) -> None:
    """Say that a sweep waits for room."""
    shown = reason if worker is None else f"{worker}: {reason}"
    _say(database, sweep, FULL, "warning", {"reason": reason, **({} if worker is None else {"worker": worker})}, shown)


def record_room(database: Database, sweep: Mapping[str, Any], worker: str | None = None) -> None:
    """Record that there is room again."""
    _say(database, sweep, ROOMY, "info", {} if worker is None else {"worker": worker}, None)


def _say(
    database: Database, sweep: Mapping[str, Any], kind: str, severity: str, data: Mapping[str, Any], reason: str | None
) -> None:
    with database.write() as connection:
        connection.execute(
            sweeps.update()
            .where(sweeps.c.id == sweep["id"], sweeps.c.status.in_(("pending", "running")))
            .values(reason=reason)
        )
        add_event(connection, of_sweep(sweep), kind, data, severity)


def is_full(error: StoreError) -> bool:
    """Whether a write failed because the disk of the database is full."""
    cause = error.__cause__
    original = getattr(cause, "orig", cause)
    return getattr(original, "sqlstate", None) == "53100" or "disk is full" in str(original)
