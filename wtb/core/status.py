"""Statuses and the transitions between them: one table for the code, the CHECKs and the WHERE of every update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Transitions = Mapping[str, frozenset[str]]


def _table(**rows: str) -> Transitions:
    return {status: frozenset(following.split()) for status, following in rows.items()}


SWEEP: Final = _table(
    submitting="pending",  # in batches: visible with the last one
    pending="running cancelled failed",
    running="paused completed failed cancelled",
    paused="running cancelled",
    completed="running",  # by `retry`
    failed="running cancelled",
    cancelled="",
    deleting="",  # from every other one; its rows go in batches
)
EXECUTION: Final = _table(
    pending="running paused cancelled",
    running="pending forked waiting paused completed failed cancelled",
    forked="paused",  # by a rollback, as from every other end
    waiting="pending paused cancelled",
    paused="pending cancelled",
    completed="paused",
    failed="paused",
    cancelled="paused",
)
CELL: Final = _table(
    pending="running waiting succeeded failed cancelled skipped set_aside",
    running="pending waiting succeeded failed cancelled skipped set_aside",
    waiting="running pending cancelled skipped failed",
    succeeded="pending",  # superseded by a retry or a rollback
    failed="pending",
    cancelled="pending",
    skipped="pending",  # where a stopped combination runs again
    set_aside="pending",
)
NODE_RUN: Final = _table(
    running="succeeded failed skipped",
    succeeded="failed",  # if one of its stored values is damaged
    failed="running succeeded skipped",  # by `retry`: the same identity, further attempts
    skipped="running succeeded failed",
)

HIDDEN_SWEEPS: Final = ("submitting", "deleting")  # invisible to all queries for sweeps
FINAL_CELLS: Final = ("succeeded", "failed", "cancelled", "skipped", "set_aside")
FAILED_CELLS: Final = ("failed", "set_aside")
ENDED_SWEEPS: Final = ("completed", "failed", "cancelled")
OPEN_SWEEPS: Final = ("pending", "running", "paused")
OPEN_EXECUTIONS: Final = ("pending", "running", "waiting", "paused")


def sources(table: Transitions, target: str) -> tuple[str, ...]:
    """Return the statuses from which `target` can be reached, for the WHERE of an update."""
    return tuple(status for status, following in table.items() if target in following)
