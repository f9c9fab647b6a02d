"""Who works on what: leases with fencing tokens, runners, and the status of a sweep."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.status import CELL, EXECUTION, OPEN_EXECUTIONS, SWEEP, sources
from wtb.store.bulk import fetch_rows, insert_rows
from wtb.store.database import Database
from wtb.store.limits.reservations import forget_lost
from wtb.store.process_identity import may_live
from wtb.store.tables.sweeps import cells, events, executions, now, runners, sweeps


def register(database: Database, runner: dict[str, Any]) -> None:
    """Make a runner known: id, host, boot, pid and process_started_at."""
    database.execute(runners.insert().values({**runner, "seen_at": now(), "clock_s": time.time() - now()}))


def runner_rows(database: Database, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Runners by id; those that the database does not know are left out."""
    found: dict[str, dict[str, Any]] = {}
    wanted = sorted(ids)
    with database.read() as connection:
        for start in range(0, len(wanted), 5000):
            query = sa.select(runners).where(runners.c.id.in_(wanted[start : start + 5000]))
            found.update((row["id"], dict(row)) for row in connection.execute(query).mappings())
    return found


def runner_ids(database: Database) -> list[str]:
    """Of all runners that the database knows."""
    return database.scalars(sa.select(runners.c.id))


def claim(
    database: Database, sweep_id: str, runner_id: str, limit: int, lease_s: float, *, only: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Claim up to `limit` pending executions, oldest first. Each gets a new token and a lease. only: none but these."""
    wanted = [] if only is None else [executions.c.id.in_(only)]
    pending = (
        sa.select(executions.c.id)
        .where(executions.c.sweep_id == sweep_id, executions.c.status == "pending", *wanted)
        .order_by(executions.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    query = (
        executions.update()
        .where(executions.c.id.in_(pending.scalar_subquery()))
        .values(
            status="running",
            owner_id=runner_id,
            token=executions.c.token + 1,
            lease_until=now() + lease_s,
            stalled_at=None,
        )
        .returning(executions)
    )
    with database.write() as connection:
        claimed = fetch_rows(connection, query)
        ids = [row["id"] for row in claimed]
        if ids:
            connection.execute(
                cells.update()
                .where(cells.c.execution_id.in_(ids), cells.c.status.in_(sources(CELL, "running")))
                .values(status="running")
            )
    return sorted(claimed, key=lambda row: str(row["id"]))


def renew(database: Database, runner_id: str, lease_s: float) -> None:
    """Heartbeat: this runner is seen to live, and each of its executions keeps its lease."""
    with database.write() as connection:
        clock = time.time() - now()
        connection.execute(runners.update().where(runners.c.id == runner_id).values(seen_at=now(), clock_s=clock))
        connection.execute(
            executions.update()
            .where(executions.c.owner_id == runner_id, executions.c.status == "running")
            .values(lease_until=now() + lease_s)
        )


def owners(database: Database, sweep_id: str) -> list[dict[str, Any]]:
    """Runners that run a sweep or have claimed executions of it, each with `expired`: whether its leases have."""
    held = executions.c.owner_id == runners.c.id, executions.c.sweep_id == sweep_id, executions.c.status == "running"
    runs = sa.select(sweeps.c.runner_id).where(sweeps.c.id == sweep_id)
    lease = sa.func.coalesce(sa.func.max(executions.c.lease_until), 0.0)
    query = (
        sa.select(runners, (lease < now()).label("expired"))
        .outerjoin(executions, sa.and_(*held))
        .where(sa.or_(executions.c.id.is_not(None), runners.c.id == runs.scalar_subquery()))
        .group_by(runners.c.id)
    )
    return database.rows(query)


def release_all(database: Database, runner_id: str) -> None:
    """Release all executions that a runner has claimed, of any sweep: they become pending."""
    with database.write() as connection:
        connection.execute(
            executions.update()
            .where(executions.c.owner_id == runner_id, executions.c.status == "running")
            .values(status="pending", owner_id=None, lease_until=None, token=executions.c.token + 1)
        )
        forget_lost(connection, [runner_id])


def release_runners(database: Database, sweep_id: str, runner_ids: Sequence[str]) -> int:
    """Release the executions of a sweep that these runners have claimed: they become pending at their last commit.

    Returns how many there were.
    """
    held = sa.select(executions.c.id).where(
        executions.c.sweep_id == sweep_id,
        executions.c.owner_id.in_(list(runner_ids)),
        executions.c.status == "running",
    )
    with database.write() as connection:
        ids = list(connection.scalars(held))
        for start in range(0, len(ids), 5000):
            part = ids[start : start + 5000]
            connection.execute(
                executions.update()
                .where(executions.c.id.in_(part), executions.c.status.in_(sources(EXECUTION, "pending")))
                .values(status="pending", owner_id=None, lease_until=None, token=executions.c.token + 1)
            )
            connection.execute(
                cells.update()
                .where(cells.c.execution_id.in_(part), cells.c.status == "running")
                .values(status="pending")
            )
        # Cells name their root until they have an outcome, so those of its forks are found only by the sweep.
        busy = sa.exists().where(executions.c.sweep_id == sweep_id, executions.c.status == "running")
        connection.execute(
            cells.update()
            .where(cells.c.sweep_id == sweep_id, cells.c.status == "running", ~busy)
            .values(status="pending")
        )
        forget_lost(connection, runner_ids)
    return len(ids)


def move_sweep(
    database: Database,
    sweep_id: str,
    to: str,
    *,
    reason: str | None = None,
    by: str = "wtb",
    runner_id: str | None = None,
) -> None:
    """Change the status of a sweep. Raises ConflictError if the table of transitions does not allow that.

    runner_id: the process that runs the sweep alone from now on.
    """
    with database.write() as connection:
        if not moved(connection, sweep_id, to, reason=reason, by=by, runner_id=runner_id):
            raise impossible(connection, sweep_id, to)


def pause(database: Database, sweep_id: str, reason: str, *, by: str) -> bool:
    """Pause a sweep unless it has ended. Returns True if this call made the change."""
    with database.write() as connection:
        return moved(connection, sweep_id, "paused", reason=reason, by=by)


def sweep_status(connection: sa.Connection, sweep_id: str) -> str | None:
    return connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id))


def impossible(connection: sa.Connection, sweep_id: str, to: str) -> ConflictError:
    """The error for a transition that is not allowed: names the present status and those that can follow it."""
    present = sweep_status(connection, sweep_id)
    following = ", ".join(sorted(SWEEP.get(present or "", ()))) or "nothing"
    return ConflictError(f"sweep {sweep_id} is {present or 'not there'}: it cannot become {to} (possible: {following})")


def moved(
    connection: sa.Connection,
    sweep_id: str,
    to: str,
    *,
    reason: str | None = None,
    by: str = "wtb",
    runner_id: str | None = None,
) -> bool:
    """The same within a transaction: whether the table of transitions allowed it."""
    finished = to in ("completed", "failed", "cancelled")
    session = connection.execute(
        sweeps.update()
        .where(sweeps.c.id == sweep_id, sweeps.c.status.in_(sources(SWEEP, to)))
        .values(
            status=to,
            reason=reason,
            runner_id=runner_id,
            finished_at=_last_outcome(sweep_id) if finished else None,
            **({"running_since": now()} if to == "running" else {}),
        )
        .returning(sweeps.c.session_id)
    ).scalar()
    if session is None:
        return False
    row = {"session_id": session, "sweep_id": sweep_id, "kind": f"sweep.{to}", "severity": "info"}
    data = {"reason": reason, "by": by}
    insert_rows(connection, events, [{**row, "at": time.time(), "data": data}])
    return True


def _last_outcome(sweep_id: str) -> sa.ScalarSelect[Any]:
    return sa.select(sa.func.max(cells.c.finished_at)).where(cells.c.sweep_id == sweep_id).scalar_subquery()


def unfinished(database: Database, sweep_id: str) -> int:
    """How many executions of a sweep have not come to an end."""
    query = sa.select(sa.func.count()).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS)
    )
    return database.scalar(query) or 0


def sweep_statuses(database: Database, ids: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Sweep -> (status, reason); those that were deleted are left out."""
    query = sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.reason).where(sweeps.c.id.in_(list(ids)))
    with database.read() as connection:
        return {row.id: (row.status, row.reason) for row in connection.execute(query)}


def record_code(database: Database, sweep_id: str, fingerprints: Mapping[str, Mapping[str, str]]) -> None:
    """Record the fingerprints of the code that a sweep continues with."""
    database.execute(
        sweeps.update()
        .where(sweeps.c.id == sweep_id)
        .values(fingerprints={node: dict(variants) for node, variants in fingerprints.items()})
    )


def runs_now(database: Database, sweep: Mapping[str, Any]) -> bool:
    """Whether pending executions of a sweep will be claimed: by workers, or by a process that may be alive."""
    return bool(sweep["queued"]) or any(may_live(owner) for owner in owners(database, sweep["id"]))
