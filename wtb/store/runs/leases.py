"""Leases of executions with fencing tokens, runners, and the status of a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.status import CELL, ENDED_SWEEPS, EXECUTION, OPEN_EXECUTIONS, SWEEP, sources
from wtb.core.tree.stored_code import RecordedCode, StoredCode, keeping_written
from wtb.core.tree.stored_spec import StoredEvaluators, StoredSpec
from wtb.store.access.reservations import forget_reservations_of_lost
from wtb.store.bulk import fetch_records, parts
from wtb.store.cell_status import end_waiting, of_place
from wtb.store.database import Database
from wtb.store.log import add_event, of_sweep, subject
from wtb.store.process_identity import ProcessIdentity, may_live
from wtb.store.records import OfExecution, OwnerRow
from wtb.store.runs.node_progress import record_first_attempts
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import (
    cells,
    executions,
    is_pending,
    is_running,
    is_visible,
    node_runs,
    now,
    runners,
    sweeps,
    workflows,
)
from wtb.store.tables.sweeps import RunnerRow, SweepRow

_MOST_WRITING = 100  # sweeps of a workflow that are looked at for files that nodes write, the newest ones


def releasing() -> sa.Update:
    """Return the statement that releases executions. It changes their tokens, so their runner can write nothing
    more.
    """
    return executions.update().values(status="pending", owner_id=None, lease_until=None, token=executions.c.token + 1)


def register(database: Database, runner: ProcessIdentity) -> None:
    """Register a runner."""
    database.execute(runners.insert().values({**asdict(runner), "seen_at": now(), "clock_s": time.time() - now()}))


def runner_rows(database: Database, ids: Iterable[str]) -> dict[str, RunnerRow]:
    """Return the runners by id; those that the database does not know are left out."""
    return {row.id: RunnerRow(*row) for row in database.rows_among(sa.select(runners), runners.c.id, ids)}


def runner_ids(database: Database) -> list[str]:
    """Return the ids of all runners that the database knows."""
    return database.scalars(sa.select(runners.c.id))


def claim(
    database: Database, sweep_id: str, runner_id: str, limit: int, lease_s: float, *, only: Sequence[str] | None = None
) -> list[ExecutionRow]:
    """Claim pending executions of a sweep, the oldest first.

    Args:
        database: The database.
        sweep_id: The sweep.
        runner_id: The runner that gets them.
        limit: How many to claim at most.
        lease_s: Seconds until others may claim them again, unless the lease is renewed.
        only: Ids of the executions that may be claimed; by default all.

    Returns:
        The claimed executions by id, each with its new token.
    """
    conditions = [] if only is None else [executions.c.id.in_(only)]
    pending = (
        sa.select(executions.c.id)
        .where(executions.c.sweep_id == sweep_id, is_pending, *conditions)
        # Ids sort by time, except that those of roots are shuffled by case when a sweep is submitted.
        .order_by(executions.c.id)
        .limit(limit)
        # Claims of other runners do not wait for this one, and take those that come after.
        .with_for_update(skip_locked=True)
    )
    with database.write() as connection:
        return claim_rows(connection, executions.c.id.in_(pending.scalar_subquery()), runner_id, lease_s)


def claim_rows(
    connection: sa.Connection, which: sa.ColumnElement[bool], runner_id: str, lease_s: float
) -> list[ExecutionRow]:
    """Claim executions with their cells, within a transaction.

    Args:
        connection: In a transaction that writes.
        which: The condition for the executions. They are pending and locked, or the condition itself requires that.
        runner_id: The runner that gets them.
        lease_s: Seconds until their leases expire.

    Returns:
        The claimed executions by id.
    """
    query = (
        executions.update()
        # Nothing beside `which`: with another condition PostgreSQL may execute its subquery, and so its LIMIT, for
        # each row.
        .where(which)
        .values(
            status="running",
            owner_id=runner_id,
            # The fencing token: whoever had the execution before still has the old one, and can write nothing more.
            token=executions.c.token + 1,
            lease_until=now() + lease_s,
            stalled_at=None,
        )
        .returning(executions)
    )
    claimed = fetch_records(connection, ExecutionRow, query)
    end_waiting(connection, [row for row in claimed if row.head_id is not None])  # others have not begun to wait
    return sorted(claimed, key=lambda row: row.id)


def of_cells(table: sa.Table, execution: OfExecution) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that rows of `cells` or `scores` are of the cells of an execution."""
    return [*of_place(table, execution), table.c.combination.in_(list(execution.combinations))]


def move_cells(connection: sa.Connection, execution: OfExecution, status: str, **changes: Any) -> list[int]:
    """Set the status of an execution's cells as far as transitions allow, and make them its own.

    Args:
        connection: In a transaction that writes.
        execution: Its row.
        status: The new status of the cells.
        changes: Other columns of the cells.

    Returns:
        The combinations of the cells that were changed.
    """
    query = (
        cells.update()
        .where(*of_cells(cells, execution), cells.c.status.in_(sources(CELL, status)))
        .values(status=status, execution_id=execution.id, **changes)
    )
    return list(connection.scalars(query.returning(cells.c.combination)))


def continuing(id: str, origin: str, first: ExecutionRow, combinations: list[int]) -> NewExecution:
    """Return an execution that continues cells of another one from its head."""
    return {
        "id": id,
        "session_id": first.session_id,
        "sweep_id": first.sweep_id,
        "parent_id": first.id,
        "origin": origin,
        "case_number": first.case_number,
        "repeat": first.repeat,
        "combinations": combinations,
        "head_id": first.head_id,
        "queue": first.queue,
        "edited": first.edited,
    }


def stop_nodes(connection: sa.Connection, ids: Sequence[str]) -> None:
    """End the running node runs of these executions, which no runner is in any more."""
    running = sa.and_(node_runs.c.execution_id.in_(list(ids)), node_runs.c.status == "running")
    # Before the update: it selects the node runs by the status that the update changes.
    record_first_attempts(connection, running)
    connection.execute(node_runs.update().where(running).values(status="failed"))


def renew(database: Database, runner_id: str, lease_s: float) -> None:
    """Renew the leases of all executions of a runner, and record its heartbeat."""
    with database.write() as connection:
        clock = time.time() - now()
        connection.execute(runners.update().where(runners.c.id == runner_id).values(seen_at=now(), clock_s=clock))
        connection.execute(
            executions.update()
            .where(executions.c.owner_id == runner_id, is_running)
            .values(lease_until=now() + lease_s)
        )


def owners(database: Database, sweep_id: str) -> list[OwnerRow]:
    """Return the runners that run a sweep or have claimed executions of it, as `owners_of` does."""
    with database.read() as connection:
        return owners_of(connection, sweeps.c.id == sweep_id)


def owners_of(connection: sa.Connection, which: sa.ColumnElement[bool]) -> list[OwnerRow]:
    """Find the runners that run sweeps or have claimed executions of them.

    Args:
        connection: In a transaction.
        which: A condition for rows of `sweeps`.

    Returns:
        The runners by id.
    """
    theirs = sa.select(sweeps.c.id).where(which)
    has_claimed = sa.and_(executions.c.owner_id == runners.c.id, is_running)
    alone = sa.select(sweeps.c.runner_id).where(which, sweeps.c.runner_id.is_not(None))
    runs = sa.select(sa.func.max(sweeps.c.id)).where(which, sweeps.c.runner_id == runners.c.id).scalar_subquery()
    # A runner without claimed executions has no lease, which counts as expired.
    lease = sa.func.coalesce(sa.func.max(executions.c.lease_until), 0.0)
    sweep = sa.func.coalesce(sa.func.max(executions.c.sweep_id), runs).label("sweep")
    query = (
        sa.select(runners, (lease < now()).label("expired"), sweep)
        .select_from(runners)
        .outerjoin(executions, sa.and_(has_claimed, executions.c.sweep_id.in_(theirs)))
        .where(sa.or_(executions.c.id.is_not(None), runners.c.id.in_(alone)))
        .group_by(runners.c.id)
        .order_by(runners.c.id)
    )
    return fetch_records(connection, OwnerRow, query)


def release_all(database: Database, runner_id: str) -> None:
    """Release all executions that a runner has claimed, of any sweep: they become pending."""
    with database.write() as connection:
        mine = executions.c.owner_id == runner_id, is_running
        connection.execute(releasing().where(*mine))
        forget_reservations_of_lost(connection, [runner_id])


def release_runners(database: Database, sweep_id: str, runner_ids: Sequence[str]) -> int:
    """Release the executions of a sweep that these runners have claimed: they become pending at their last commit.

    Returns how many there were.
    """
    claimed = sa.select(executions.c.id).where(
        executions.c.sweep_id == sweep_id, executions.c.owner_id.in_(list(runner_ids)), is_running
    )
    with database.write() as connection:
        ids = list(connection.scalars(claimed))
        # They were read without locks, so each update checks the status again.
        for part in parts(ids):
            connection.execute(
                releasing().where(executions.c.id.in_(part), executions.c.status.in_(sources(EXECUTION, "pending")))
            )
        forget_reservations_of_lost(connection, runner_ids)
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
        move(connection, sweep_id, to, reason=reason, by=by, runner_id=runner_id)


def pause(database: Database, sweep_id: str, reason: str, *, by: str) -> bool:
    """Pause a sweep unless it has ended. Returns True if this call made the change."""
    with database.write() as connection:
        return try_move(connection, sweep_id, "paused", reason=reason, by=by)


def explain(
    database: Database, sweep: SweepRow, reason: str | None, kind: str, details: Mapping[str, str], severity: str
) -> None:
    """Give a sweep that has not ended or paused a reason for people, with an event of this kind."""
    conditions = sweeps.c.id == sweep.id, sweeps.c.status.in_(("pending", "running"))
    with database.write() as connection:
        if connection.execute(sweeps.update().where(*conditions).values(reason=reason)).rowcount:
            add_event(connection, of_sweep(sweep), kind, details, severity)


def record_full(database: Database, sweep: SweepRow, reason: str, worker: str | None = None) -> None:
    """Record that a sweep waits for room on a disk, and on which worker."""
    details = {"reason": reason} if worker is None else {"reason": reason, "worker": worker}
    text = reason if worker is None else f"{worker}: {reason}"
    explain(database, sweep, text, "sweep.disk_full", details, "warning")


def record_room(database: Database, sweep: SweepRow, worker: str | None = None) -> None:
    """Record that there is room again."""
    explain(database, sweep, None, "sweep.disk_has_room", {} if worker is None else {"worker": worker}, "info")


def record_memory_wait(database: Database, sweep: SweepRow, reason: str | None) -> None:
    """Record why node runs of a sweep wait for memory of their session; None if they wait no longer."""
    if reason is None:
        explain(database, sweep, None, "sweep.memory_has_room", {}, "info")
    else:
        explain(database, sweep, reason, "sweep.memory_full", {"reason": reason}, "warning")


def sweep_status(connection: sa.Connection, sweep_id: str) -> str | None:
    return connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id, is_visible))


def move(
    connection: sa.Connection,
    sweep_id: str,
    to: str,
    *,
    reason: str | None = None,
    by: str | None = "wtb",
    runner_id: str | None = None,
) -> None:
    """Change the status of a sweep as `try_move` does, or raise ConflictError that names what is possible."""
    if not try_move(connection, sweep_id, to, reason=reason, by=by, runner_id=runner_id):
        present = sweep_status(connection, sweep_id) or "not there"
        following = ", ".join(sorted(SWEEP.get(present, ()))) or "nothing"
        raise ConflictError(f"sweep {sweep_id} is {present}: it cannot become {to} (possible: {following})")


def try_move(
    connection: sa.Connection,
    sweep_id: str,
    to: str,
    *,
    reason: str | None = None,
    by: str | None = "wtb",
    runner_id: str | None = None,
    finished_at: float | None = None,
) -> bool:
    """Change the status of a sweep within a transaction, with an event, if the table of transitions allows it.

    Args:
        connection: In a transaction that writes.
        sweep_id: The sweep.
        to: Its new status.
        reason: Why, for people.
        by: The person or component that changes it.
        runner_id: The process that runs the sweep alone from now on.
        finished_at: When its last cell ended, if the caller has read that: the query reads all cells.

    Returns:
        True if this call made the change.
    """
    finished = to in ENDED_SWEEPS
    session = connection.execute(
        sweeps.update()
        .where(sweeps.c.id == sweep_id, sweeps.c.status.in_(sources(SWEEP, to)))
        .values(
            status=to,
            reason=reason,
            runner_id=runner_id,
            finished_at=(finished_at or last_outcome(sweep_id).scalar_subquery()) if finished else None,
            **({"running_since": now()} if to == "running" else {}),
        )
        .returning(sweeps.c.session_id)
    ).scalar()
    if session is None:
        return False
    add_event(connection, subject(session, sweep_id), f"sweep.{to}", {"reason": reason, "by": by})
    return True


def last_outcome(sweep_id: str) -> sa.Select[Any]:
    """Return the query for the time at which the last cell of a sweep ended."""
    return sa.select(sa.func.max(cells.c.finished_at)).where(cells.c.sweep_id == sweep_id)


def unfinished(database: Database, sweep_id: str) -> int:
    """Return the number of executions of a sweep that have not ended."""
    return database.count(executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS))


def sweep_statuses(database: Database, ids: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Return the status of sweeps with its reason, by id; deleted sweeps are left out."""
    query = sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.reason).where(sweeps.c.id.in_(list(ids)), is_visible)
    return {id: (status, reason) for id, status, reason in database.tuples(query)}


def record_code(
    database: Database, sweep_id: str, fingerprints: Mapping[str, Mapping[str, str]], code: StoredCode
) -> None:
    """Record the code that a sweep continues with: its fingerprints and its files."""
    plain = {node: dict(variants) for node, variants in fingerprints.items()}
    _change_spec(database, sweep_id, lambda spec: {"code": keeping_written(code, spec.get("code"))}, fingerprints=plain)


def record_evaluators(database: Database, sweep_id: str, evaluators: StoredEvaluators) -> None:
    """Record the code of the evaluators by which a sweep continues to be scored."""
    _change_spec(database, sweep_id, lambda spec: {"evaluators": evaluators})


def record_written(database: Database, sweep_id: str, written: Mapping[str, str]) -> None:
    """Record the files of a sweep's code that its nodes write: the node by file."""

    def with_written(spec: StoredSpec) -> dict[str, Any]:
        if "code" not in spec:
            return {}
        return {"code": {**spec["code"], "written": {**written, **spec["code"].get("written", {})}}}

    _change_spec(database, sweep_id, with_written)


def _change_spec(
    database: Database, sweep_id: str, changed: Callable[[StoredSpec], dict[str, Any]], **columns: Any
) -> None:
    """Change keys of the spec of a sweep, and other columns, if the sweep is there and there are such keys."""
    this = sweeps.c.id == sweep_id
    with database.write() as connection:
        # The whole document is read, changed and written, so the lock keeps two writers from losing a change.
        spec = connection.scalar(sa.select(sweeps.c.spec).where(this).with_for_update())
        if spec is not None and (keys := changed(spec)):
            connection.execute(sweeps.update().where(this).values(spec={**spec, **keys}, **columns))


def recorded_code(database: Database, sweep: SweepRow) -> RecordedCode:
    """Return the code that a sweep records, with the files among it that nodes write: see `written_files`."""
    return sweep.recorded_code.writing(written_files(database, sweep))


def written_files(database: Database, sweep: SweepRow) -> set[str]:
    """Return the files among its code that nodes of a sweep write, or nodes of others of the same workflow."""
    name = sa.select(workflows.c.name).where(workflows.c.id == sweep.workflow_id).scalar_subquery()
    newest = (
        sa.select(sweeps.c.id)
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .where(sweeps.c.project == sweep.project, workflows.c.name == name)
        .order_by(sweeps.c.created_at.desc())
        .limit(_MOST_WRITING)
    )
    written = sweeps.c.spec["code"]["written"]
    query = sa.select(written).where(
        sa.or_(sweeps.c.id == sweep.id, sweeps.c.id.in_(newest)), written.as_string().is_not(None)
    )
    return {file for (written,) in database.tuples(query) for file in written}


def record_tools(database: Database, sweep_id: str, tools: Mapping[str, Mapping[str, str]]) -> None:
    """Record the tools of servers that a sweep continues with. Tools that were called before stay in the rows of the
    calls.
    """

    def with_tools(spec: StoredSpec) -> dict[str, Any]:
        of_servers = {server: dict(versions) for server, versions in tools.items()}
        return {"environment": {**spec["environment"], "tools": spec["environment"]["tools"] | of_servers}}

    _change_spec(database, sweep_id, with_tools)


def runs_now(database: Database, sweep: SweepRow) -> bool:
    """Return whether pending executions of a sweep will be claimed: by workers, or by a process that may be alive."""
    return bool(sweep.queued) or any(may_live(owner, expired=owner.expired) for owner in owners(database, sweep.id))
