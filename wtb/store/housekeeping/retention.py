"""What keeps a sweep from removal: it has not ended, is a baseline or in a pool, is new, or has a pin on it."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.status import ENDED_SWEEPS, OPEN_EXECUTIONS
from wtb.store.bulk import fetch_record
from wtb.store.database import Database
from wtb.store.events import add_event, of_sweep
from wtb.store.read.queries import select_sweeps
from wtb.store.tables.schema import baselines, checkpoints, executions, pooled, sweeps
from wtb.store.tables.sweeps import SweepRow


def expired_sweeps(
    connection: sa.Connection, before: float, keep: int, *conditions: sa.ColumnElement[bool]
) -> list[str]:
    """Sweeps to delete: finished before then, and not among the newest `keep` finished ones of their name.

    Pinned sweeps and baselines stay, those with a pinned checkpoint, and those that something still runs on.
    conditions: which sweeps are looked at at all.
    """
    at = sa.func.coalesce(sweeps.c.finished_at, sweeps.c.created_at)
    place = sa.func.row_number().over(
        partition_by=(sweeps.c.session_id, sweeps.c.name), order_by=(at.desc(), sweeps.c.id.desc())
    )
    ranked = (
        sa.select(sweeps.c.id, at.label("at"), place.label("place"))
        .where(sweeps.c.status.in_(ENDED_SWEEPS), *conditions)
        .subquery()
    )
    query = (
        sa.select(ranked.c.id)
        .join(sweeps, sweeps.c.id == ranked.c.id)
        .where(ranked.c.at < before, ranked.c.place > keep, *removable())
        .order_by(ranked.c.at, ranked.c.id)
    )
    return list(connection.scalars(query))


def settled_sweeps(connection: sa.Connection, before: float) -> list[str]:
    """Sweeps that may have superseded checkpoints: older than that, not kept, and not running."""
    query = sa.select(sweeps.c.id).where(*settled(), sweeps.c.created_at < before)
    return list(connection.scalars(query.order_by(sweeps.c.id)))


def removable() -> list[sa.ColumnElement[bool]]:
    """What must hold of a sweep that is deleted."""
    pinned = sa.exists().where(checkpoints.c.sweep_id == sweeps.c.id, checkpoints.c.pinned)
    # A completed sweep that has open executions is about to be retried; a failed one may never be resumed.
    open_ = sa.exists().where(
        executions.c.sweep_id == sweeps.c.id,
        sa.or_(
            executions.c.status == "running",
            sa.and_(sweeps.c.status == "completed", executions.c.status.in_(OPEN_EXECUTIONS)),
        ),
    )
    return [sweeps.c.status.in_(ENDED_SWEEPS), *_not_kept(), ~pinned, ~open_]


def settled() -> list[sa.ColumnElement[bool]]:
    """What must hold of a sweep that loses its superseded checkpoints."""
    return [sweeps.c.status.in_(("paused", *ENDED_SWEEPS)), *_not_kept()]


def _not_kept() -> tuple[sa.ColumnElement[bool], ...]:
    columns = baselines.c.sweep_id, baselines.c.reference_id, pooled.c.sweep_id
    return ~sweeps.c.pinned, *(~sa.exists().where(column == sweeps.c.id) for column in columns)


def check_in_no_pool(connection: sa.Connection, sweep_id: str) -> None:
    """Raise ConflictError if a sweep that is to be deleted is a source of a pool."""
    query = sa.select(sweeps.c.id, sweeps.c.name).join(pooled, pooled.c.pool_id == sweeps.c.id)
    pool = connection.execute(query.where(pooled.c.sweep_id == sweep_id).order_by(sweeps.c.id).limit(1)).first()
    if pool is not None:
        raise ConflictError(
            f"sweep {sweep_id} is part of the pool {pool.name!r} ({pool.id}), which shows its cells: delete the pool "
            f"first, with `wtb delete {pool.id}`"
        )


def locked_sweep(connection: sa.Connection, sweep_id: str, *conditions: sa.ColumnElement[bool]) -> SweepRow | None:
    """The row of a sweep if it is there and the conditions hold; nothing is added to it before this transaction ends.

    Rows that refer to a sweep share a lock on it when they are inserted, so new executions and checkpoints wait.
    """
    # The conditions are asked once the lock is held: subqueries in a locking statement see what was before the wait.
    connection.scalar(sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update())
    return fetch_record(connection, SweepRow, select_sweeps().where(sweeps.c.id == sweep_id, *conditions))


def pin_sweep(database: Database, sweep_id: str, pinned: bool) -> None:
    """Keep a sweep with all that is its, or no longer. Raises ConflictError where it is being deleted."""
    with database.write() as connection:
        row = locked_sweep(connection, sweep_id)
        if row is None:
            raise ConflictError(f"sweep {sweep_id} is being deleted, or was")
        if row.pinned != pinned:
            connection.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(pinned=pinned))
            add_event(connection, of_sweep(row), "sweep.pinned" if pinned else "sweep.unpinned", {})


def pin_checkpoint(
    database: Database, checkpoint_id: str, sweep_id: str, pinned: bool, name: str | None = None
) -> None:
    """Keep a checkpoint with the line that leads to it, or no longer. Raises ConflictError where it is gone."""
    with database.write() as connection:
        row = locked_sweep(connection, sweep_id)
        query = checkpoints.update().where(checkpoints.c.id == checkpoint_id).values(pinned=pinned)
        if name is not None:
            query = query.values(name=name)
        if row is None or not connection.execute(query).rowcount:
            raise ConflictError(f"checkpoint {checkpoint_id} was removed meanwhile")
        kind = "checkpoint.pinned" if pinned else "checkpoint.unpinned"
        add_event(connection, of_sweep(row), kind, {"checkpoint": checkpoint_id, **({"name": name} if name else {})})
