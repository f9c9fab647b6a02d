"""Decisions of people about a running sweep: pause, cancel, resume. Each is one transaction.

Executions are locked before the sweep, as claims and flushes do, so that they never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from wtb.core.status import CELL, EXECUTION, sources
from wtb.core.tree.stored_spec import Limits
from wtb.store.access.budgets import set_limits
from wtb.store.bulk import parts
from wtb.store.control.approvals import withdraw
from wtb.store.control.rescore import cancel_scorings
from wtb.store.database import Database
from wtb.store.runs.leases import move, releasing, stop_nodes, sweep_status, try_move
from wtb.store.tables.schema import cells, checkpoints, events, executions, now, sweeps

_PART = 5_000


def pause(database: Database, sweep_id: str, *, reason: str, by: str) -> None:
    """Pause a sweep: nothing more of it is claimed. Raises ConflictError if it has ended, or is paused already."""
    with database.write() as connection:
        if sweep_status(connection, sweep_id) == "pending":  # nothing leads from there to paused but a start
            try_move(connection, sweep_id, "running", by=by)
        move(connection, sweep_id, "paused", reason=reason, by=by)


def cancel(database: Database, sweep_id: str, *, reason: str, by: str) -> int:
    """Cancel a sweep with its open executions and cells; workers can write nothing more of them.

    Args:
        database: The database.
        sweep_id: The sweep.
        reason: Why, for people.
        by: The person who cancels it.

    Returns:
        How many cells were cancelled.

    Raises:
        ConflictError: If it has ended.
    """
    return _end(database, sweep_id, "cancelled", "cancelled", reason=reason, by=by)


def skip_rest(database: Database, sweep_id: str, *, reason: str, by: str) -> int:
    """Complete a sweep without its unfinished cells: they are skipped, and runners can write nothing more of them.

    Returns:
        The number of cells skipped.

    Raises:
        ConflictError: If the sweep is not running.
    """
    return _end(database, sweep_id, "completed", "skipped", reason=reason, by=by)


def _end(database: Database, sweep_id: str, to: str, cell: str, *, reason: str, by: str) -> int:
    """Cancel what is unfinished in a sweep, and end it. Returns how many cells this call gave an outcome."""
    unfinished = (executions.c.sweep_id == sweep_id, executions.c.status.in_(sources(EXECUTION, "cancelled")))
    any_unfinished = sa.select(sa.literal(1)).where(*unfinished).limit(1)
    end_cells = (
        cells.update()
        .where(cells.c.sweep_id == sweep_id, cells.c.status.in_(sources(CELL, cell)))
        .values(status=cell, finished_at=now())
    )
    ended = 0
    with database.write(long=True) as connection:
        while True:
            # Repeated, because an execution may fork between the query and its lock.
            while connection.execute(any_unfinished).first() is not None:
                unfinished_ids = sa.select(executions.c.id).where(*unfinished).order_by(executions.c.id).limit(_PART)
                cancel_executions(connection, list(connection.scalars(unfinished_ids.with_for_update())), reason)
            ended += connection.execute(end_cells).rowcount  # most of them, before the sweep is locked and others wait
            # A savepoint releases the lock of the sweep again: executions are locked before sweeps, everywhere.
            with connection.begin_nested() as sweep:
                sweep_query = sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id)
                connection.execute(sweep_query.with_for_update(key_share=True))
                if connection.execute(any_unfinished).first() is None:
                    break
                sweep.rollback()  # a rollback or fork made another one, to be locked first
        ended += connection.execute(end_cells).rowcount
        if to == "cancelled":
            cancel_scorings(connection, sweep_id, reason)
        move(connection, sweep_id, to, reason=reason, by=by)
        return ended


def cancel_executions(connection: sa.Connection, ids: list[str], reason: str) -> None:
    """End executions, whose rows are locked, and the node runs that they are in."""
    connection.execute(
        releasing()
        .where(executions.c.id.in_(ids), executions.c.status.in_(sources(EXECUTION, "cancelled")))
        .values(status="cancelled", reason=reason, asked=None, finished_at=now())
    )
    stop_nodes(connection, ids)
    withdraw(connection, ids)


def resume(database: Database, sweep_id: str, *, by: str, limits: Limits | None = None) -> None:
    """Let workers claim a sweep again, with new limits if given, and clear the reason of its pause.

    Raises:
        ConflictError: If it is cancelled.
        InputError: If a limit is below the amount spent.
    """
    with database.write() as connection:
        if limits:
            set_limits(connection, sweep_id, limits)
        query = sweeps.update().where(sweeps.c.id == sweep_id).values(reason=None).returning(sweeps.c.status)
        status = connection.scalar(query)
        if status in (None, "pending", "running"):
            return
        move(connection, sweep_id, "running", by=by)


def requeue(database: Database, sweep_id: str, queue_for: Callable[[Sequence[str] | None], str | None]) -> None:
    """Move executions that a retry made to the queue of their next nodes.

    Args:
        database: The database.
        sweep_id: The sweep.
        queue_for: Returns the queue for nodes; for None, that of the first nodes.
    """
    query = (
        sa.select(executions.c.id, checkpoints.c.position)
        .outerjoin(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(
            executions.c.sweep_id == sweep_id,
            executions.c.status == "pending",
            executions.c.origin == "retry",
            executions.c.queue.is_(None),
        )
        .order_by(executions.c.id)
    )
    with database.write() as connection:
        by_queue: dict[str, list[str]] = {}
        for execution, position in connection.execute(query):
            queue = queue_for(None if position is None else position["next"])
            if queue is not None:
                by_queue.setdefault(queue, []).append(execution)
        for queue, ids in by_queue.items():
            for part in parts(ids):
                pending = executions.update().where(executions.c.id.in_(part), executions.c.status == "pending")
                connection.execute(pending.values(queue=queue))


def stands_still_for(database: Database, sweep_id: str) -> float:
    """Return the seconds since the status of a sweep last changed."""
    last = sa.select(sa.func.max(events.c.at)).where(events.c.sweep_id == sweep_id, events.c.kind.startswith("sweep."))
    return float(database.scalar(sa.select(now() - last.scalar_subquery())) or 0.0)
