"""Decisions of people about one execution, for the command line and Python."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core.errors import ConflictError
from wtb.store.control import executions as store
from wtb.store.database import Database
from wtb.store.process_identity import is_not_dead
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.runs.leases import runs_now
from wtb.store.runs.retry import AGAIN
from wtb.store.runs.retry import retry as retry_cells

Row = Mapping[str, Any]

PATIENCE_S = 10.0  # for an execution to pause before its next step
LOOK_S = 0.05


def user() -> str:
    """Return the user at this machine, who decides."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def because(by: str, reason: str | None) -> str:
    """Return a person and their reason for a change, for the event log."""
    return f"by {by}" + (f": {reason}" if reason else "")


def pause(
    database: Database,
    execution_id: str,
    *,
    by: str,
    reason: str | None = None,
    at_once: bool = False,
    patience_s: float = PATIENCE_S,
) -> list[dict[str, Any]]:
    """Pause an execution, and wait until it is: its process ends the node first.

    Args:
        database: The database that it is in.
        execution_id: Its id.
        by: Who pauses it.
        reason: A reason for people.
        at_once: Take it from its process, as from one that is dead.
        patience_s: Seconds to wait at most.

    Returns:
        Its row, followed by those of what it forked into meanwhile, which pause too.

    Raises:
        ConflictError: If it cannot be paused.
    """
    words = because(by, reason)
    lost = _held_by_the_dead(database, [queries.find_execution(database, execution_id)])
    store.pause(database, execution_id, reason=words, by=by, at_once=at_once, lost=lost.get(execution_id))
    ends = time.monotonic() + patience_s
    while True:
        line = store.line_of(database, execution_id)
        lost = _held_by_the_dead(database, line)
        for row in line:
            waits = row["asked"] is not None and row["status"] == "waiting"
            if row["status"] == "pending" or waits or row["id"] in lost:
                try:  # its runner released it, or died
                    store.pause(database, row["id"], reason=words, by=by, lost=lost.get(row["id"]))
                except ConflictError:
                    continue
        if not any(row["status"] in ("pending", "running") for row in line) or time.monotonic() > ends:
            return line
        time.sleep(LOOK_S)


def _held_by_the_dead(database: Database, rows: Sequence[Row]) -> dict[str, str]:
    """Execution -> its runner, for executions whose runners are provably dead."""
    owners = {row["id"]: row["owner_id"] for row in rows if row["status"] == "running" and row["owner_id"]}
    dead = {id for id, owner in leases.runner_rows(database, set(owners.values())).items() if not is_not_dead(owner)}
    return {execution: owner for execution, owner in owners.items() if owner in dead}


def retry(database: Database, row: Row, *, failed_only: bool = False) -> str:
    """Give the failed cells of an execution a new one.

    Args:
        database: The database that it is in.
        row: Its row.
        failed_only: Leave out cells that were cancelled or set aside.

    Returns:
        The id of the new execution.

    Raises:
        ConflictError: If it has no such cells, or if its sweep is cancelled.
    """
    sweep = queries.find_sweep(database, row["sweep_id"])
    if sweep["status"] == "cancelled":
        raise ConflictError(f"sweep {sweep['id']} is cancelled for good; start a new one")
    if not retry_cells(database, sweep["id"], ("failed",) if failed_only else AGAIN, execution_id=row["id"]):
        abandoned = row["status"] in ("pending", "running") and not runs_now(database, sweep)
        raise store.impossible(row, "retried: none of its cells has failed", left=abandoned)
    return store.newest_retry(database, row["id"])
