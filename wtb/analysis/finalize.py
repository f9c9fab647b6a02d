"""Ending a sweep: its status, and the matrix that it leaves."""

from __future__ import annotations

from wtb.store.database import Database
from wtb.store.runs import maintenance


def complete(database: Database, sweep_id: str) -> bool:
    """End a sweep that has nothing left to run, and freeze its matrix. Returns True if this call did."""
    if not maintenance.finish(database, sweep_id):
        return False
    freeze(database, sweep_id)
    return True


def freeze(database: Database, sweep_id: str) -> None:
    """Keep the matrix of a sweep that is at its end."""
    from wtb.analysis.matrix import build  # with numpy: workers and schedulers start without it

    build.freeze(database, sweep_id)
