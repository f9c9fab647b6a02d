"""Ending a sweep that workers ran: its status, and the matrix that it leaves."""

from __future__ import annotations

from wtb.matrix import freeze
from wtb.store import tending
from wtb.store.database import Database


def complete(database: Database, sweep_id: str) -> bool:
    """End a sweep that has nothing left to run, and freeze its matrix. Whether it was this call that did."""
    if not tending.finish(database, sweep_id):
        return False
    freeze(database, sweep_id)
    return True
