"""The work queue in the database: claims of published tasks by slots of workers, and the demand of free slots.

A worker process is a runner; the table `working` has its busy slots. An execution belongs to the queue that its next
node names, or to the default one, whose name in `runners.queues` is the empty string. Module
`wtb.store.runs.publishing` decides which executions make up a task, and when it is published.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

import sqlalchemy as sa

from wtb.store.access.sessions import Quota, locked_session
from wtb.store.access.usage import memory_used
from wtb.store.bulk import fetch_record, fetch_records
from wtb.store.database import Database
from wtb.store.process_identity import WorkerIdentity
from wtb.store.runs.leases import claim_rows, explain, try_move
from wtb.store.runs.slots import is_fresh, slot_holders
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import (
    executions,
    is_pending,
    is_published,
    is_running,
    now,
    runners,
    sessions,
    sweeps,
    working,
)
from wtb.store.tables.sweeps import SweepRow

DEFAULT_QUEUE = ""
COUNTED = 4096  # pending executions; larger numbers make no difference


@dataclass(frozen=True)
class Slot:
    """A slot of a worker process.

    Attributes:
        runner_id: The process.
        number: Its number among the slots of the process.
        queues: The queues from which it takes executions; the default queue is the empty string.
    """

    runner_id: str
    number: int
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueuedSweep:
    """A sweep with the quota of its session; `root_s` is the column `sweeps.root_s`."""

    id: str
    status: str
    session_id: str
    quota: Mapping[str, float] | None
    priority: int
    root_s: float | None


class ClaimOutcome(Enum):
    """The outcome of a claim of a task.

    Attributes:
        CLAIMED: The slot has the executions.
        GONE: Another slot claimed the task before, or its executions were published again in another task.
        WITHDRAWN: Its sweep does not run now, or a quota is used up. Its executions wait to be published again.
        REFUSED: The worker rejects the code of its sweep.
        OUTRANKED: A task of higher priority waits on a queue of the slot.
    """

    CLAIMED = "claimed"
    GONE = "gone"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    OUTRANKED = "outranked"


@dataclass(frozen=True)
class TaskClaim:
    """The result of a claim.

    Attributes:
        outcome: The outcome.
        rows: The claimed executions, those that have begun first.
        root_s: The column `sweeps.root_s` of the sweep.
    """

    outcome: ClaimOutcome
    rows: list[ExecutionRow] = field(default_factory=list)
    root_s: float | None = None


def claim_tasks(
    database: Database, tasks_by_slot: Mapping[Slot, str], lease_s: float, *, refused: Collection[str] = ()
) -> dict[Slot, TaskClaim]:
    """Claim the executions of published tasks for slots of a runner, which count as busy from then on.

    Args:
        database: The database, which is PostgreSQL.
        tasks_by_slot: The id of the task of each slot.
        lease_s: Seconds until others may claim the executions, unless the lease is renewed.
        refused: Ids of sweeps whose code the worker rejects.

    Returns:
        The result of the claim of each slot.
    """
    claims = {slot: TaskClaim(ClaimOutcome.GONE) for slot in tasks_by_slot}
    slots = {
        task_id: slot for slot, task_id in tasks_by_slot.items()
    }  # of a message that came twice one slot has the task
    # Slots that claim at the same time skip what another one is about to get: nobody waits, nothing is claimed twice.
    theirs = (
        sa.select(executions.c.id, executions.c.sweep_id, executions.c.task_id)
        .where(executions.c.task_id == sa.any_(sa.literal([*slots], sa.ARRAY(sa.String))), is_published)
        .with_for_update(skip_locked=True)
    )
    with database.write() as connection:
        by_sweep: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        # Skipped or changed tasks are in no row, and stay GONE.
        for id, sweep_id, task_id in connection.execute(theirs):
            by_sweep[sweep_id][slots[task_id]].append(id)
        if not by_sweep:
            return claims
        running = sweeps_of_queue().where(is_open(), sweeps.c.id.in_(list(by_sweep)))
        # In one order for all, so that two transactions never wait for each other's sessions and sweeps.
        for sweep in sorted(fetch_records(connection, QueuedSweep, running), key=lambda row: (row.session_id, row.id)):
            claims |= _claim_of_sweep(connection, sweep, by_sweep.pop(sweep.id), lease_s, refused)
        for tasks in by_sweep.values():
            claims |= _withdraw_tasks(connection, tasks)
    return claims


def _claim_of_sweep(
    connection: sa.Connection,
    sweep: QueuedSweep,
    tasks: Mapping[Slot, list[str]],
    lease_s: float,
    refused: Collection[str],
) -> dict[Slot, TaskClaim]:
    """Claim the locked executions of tasks of one sweep. tasks: their executions, by slot."""
    if sweep.id in refused:
        return dict.fromkeys(tasks, TaskClaim(ClaimOutcome.REFUSED))
    first = next(iter(tasks))
    if _is_outranked(connection, sweep, first.queues, refused):
        return dict.fromkeys(tasks, TaskClaim(ClaimOutcome.OUTRANKED))
    allowed = list(tasks)[: room(connection, sweep, tasks.keys())]
    claims = _withdraw_tasks(connection, {slot: ids for slot, ids in tasks.items() if slot not in allowed})
    if not allowed:
        return claims
    which = executions.c.id.in_([id for slot in allowed for id in tasks[slot]])
    rows = {row.id: row for row in claim_rows(connection, which, first.runner_id, lease_s)}
    if sweep.status == "pending":
        _start(connection, sweep.id)
    for slot in allowed:
        of_slot = sorted((rows[id] for id in tasks[slot]), key=lambda row: (row.head_id is None, row.id))
        claims[slot] = TaskClaim(ClaimOutcome.CLAIMED, of_slot, sweep.root_s)
    _mark_busy(connection, {slot: claims[slot].rows[0].id for slot in allowed}, sweep)
    return claims


def _withdraw_tasks(connection: sa.Connection, tasks: Mapping[Slot, list[str]]) -> dict[Slot, TaskClaim]:
    """Make the executions of tasks unpublished. tasks: their executions, by slot."""
    if ids := [id for of_slot in tasks.values() for id in of_slot]:
        withdraw(connection, executions.c.id.in_(ids))
    return dict.fromkeys(tasks, TaskClaim(ClaimOutcome.WITHDRAWN))


def sweeps_of_queue() -> sa.Select[Any]:
    """Return the query for sweeps, as `QueuedSweep`."""
    return (
        sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.session_id, sessions.c.quota)
        .add_columns(sweeps.c.priority, sweeps.c.root_s)
        .join(sessions, sessions.c.id == sweeps.c.session_id)
    )


def withdraw(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Make pending executions unpublished: their messages have no effect any more."""
    connection.execute(executions.update().where(which, is_published).values(task_id=None, task_token=None))


def _is_outranked(
    connection: sa.Connection, sweep: QueuedSweep, queues: tuple[str, ...], refused: Collection[str]
) -> bool:
    """Return whether a published task of a sweep of higher priority waits on one of these queues."""
    above = sa.select(sweeps.c.id).where(is_open(), sweeps.c.priority > sweep.priority, sweeps.c.id.not_in(refused))
    waits = sa.select(executions.c.id).where(executions.c.sweep_id.in_(above), is_published, is_of(queues))
    return connection.execute(waits.limit(1)).first() is not None


def _start(connection: sa.Connection, sweep_id: str) -> None:
    """Mark a sweep as running, unless a person has paused it since it was read: that would be undone."""
    status = sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id).with_for_update()
    if connection.scalar(status) == "pending":
        try_move(connection, sweep_id, "running", by="worker")


def _are(slots: Collection[Slot]) -> sa.ColumnElement[bool]:
    """Return the condition that a row of `working` is of one of these slots of a runner."""
    (runner_id,) = {slot.runner_id for slot in slots}
    return sa.and_(working.c.runner_id == runner_id, working.c.slot.in_([slot.number for slot in slots]))


def queue_of_row() -> sa.ColumnElement[str]:
    """Return the queue of an execution, by the name that slots use for it."""
    return sa.func.coalesce(executions.c.queue, DEFAULT_QUEUE)


def busy_slots() -> sa.ScalarSelect[int]:
    """Return the number of busy slots of a row of `runners`."""
    return sa.select(sa.func.count()).where(working.c.runner_id == runners.c.id).correlate(runners).scalar_subquery()


def is_live_worker() -> sa.ColumnElement[bool]:
    """Return the condition that a runner is a worker that was seen lately."""
    return sa.and_(runners.c.worker.is_not(None), is_fresh())


def is_of(queues: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that an execution is of one of these queues."""
    return queue_of_row().in_(list(queues))


def is_open() -> sa.ColumnElement[bool]:
    return sa.and_(sweeps.c.queued, sweeps.c.status.in_(("pending", "running")))


def room(connection: sa.Connection, sweep: QueuedSweep, slots: Collection[Slot]) -> int:
    """Return for how many of these slots of a runner the quotas of node runs and memory of the session leave room."""
    quota = Quota.of(sweep.quota)
    if quota.memory is not None and sum(memory_used(connection, sweep.session_id).values()) > quota.memory:
        return 0
    if quota.node_runs is None:
        return len(slots)
    # Read again under the lock of the session, so that claims at the same time stay within the quota together.
    node_run_limit = Quota.of(locked_session(connection, sweep.session_id).quota).node_runs
    used = sum(row.slots for row in slot_holders(connection, sweep.session_id, but=_are(slots)))
    return len(slots) if node_run_limit is None else max(0, min(len(slots), node_run_limit - used))


def some_pending() -> sa.Subquery:
    """Return the queues of pending executions of open sweeps, up to a bound beyond which larger numbers change
    nothing.
    """
    return (
        sa.select(queue_of_row().label("queue"))
        .join(sweeps, sweeps.c.id == executions.c.sweep_id)
        .where(is_open(), is_pending)
        .limit(COUNTED)
        .subquery()
    )


def _mark_busy(connection: sa.Connection, execution_ids: Mapping[Slot, str], sweep: QueuedSweep) -> None:
    """Mark slots as busy, each with its execution."""
    whose = {"session_id": sweep.session_id, "sweep_id": sweep.id}
    rows = [
        {"runner_id": slot.runner_id, "slot": slot.number, "execution_id": execution_id, **whose}
        for slot, execution_id in execution_ids.items()
    ]
    connection.execute(_insert_of_slots(), rows)


@cache
def _insert_of_slots() -> sa.Insert:
    from sqlalchemy.dialects import postgresql  # imported here: SQLite, which has no such slots, does without

    insert = postgresql.insert(working).values(since=now())
    changed = {name: insert.excluded[name] for name in ("session_id", "sweep_id", "execution_id", "since")}
    return insert.on_conflict_do_update(index_elements=list(working.primary_key), set_=changed)


def mark_busy(database: Database, execution_ids: Mapping[Slot, str], sweep_id: str) -> list[Slot]:
    """Mark slots of a process as busy with executions of a sweep that it has claimed.

    Args:
        database: The database, which is PostgreSQL.
        execution_ids: The execution of each slot.
        sweep_id: The sweep of these executions.

    Returns:
        The slots that are busy now: all, or as many as the quota of the session leaves room for.
    """
    with database.write() as connection:
        sweep = fetch_record(connection, QueuedSweep, sweeps_of_queue().where(sweeps.c.id == sweep_id))
        if sweep is None:
            return []
        allowed = list(execution_ids)[: room(connection, sweep, execution_ids.keys())]
        if allowed:
            _mark_busy(connection, {slot: execution_ids[slot] for slot in allowed}, sweep)
        return allowed


def mark_free(database: Database, slot: Slot) -> None:
    """Mark a slot as free."""
    database.execute(working.delete().where(_are([slot])))


@dataclass(frozen=True)
class Demand:
    """The slots of one queue, free and busy, and its pending executions up to `COUNTED`."""

    free: int
    busy: int
    pending: int

    @property
    def share(self) -> int:
        """The number of executions that one busy slot should release, so that all together fill the free slots."""
        return max(0, math.ceil((self.free - self.pending) / max(1, self.busy)))


def demand(database: Database, *, elsewhere_than: str | None = None) -> dict[str, Demand]:
    """Count slots and work by queue. A slot that takes several queues counts for each of them.

    Args:
        database: The database, which is PostgreSQL.
        elsewhere_than: A runner whose free slots do not count.
    """
    with database.read() as connection:
        return _demand(connection, elsewhere_than)


def _demand(connection: sa.Connection, elsewhere_than: str | None = None) -> dict[str, Demand]:
    slots: defaultdict[str, int] = defaultdict(int)
    busy: defaultdict[str, int] = defaultdict(int)
    workers, counted = _queries_of_demand()
    for runner, queues, has, works in connection.execute(workers):
        for queue in queues or ():
            # Of this runner only the busy slots count, so that it has no free ones.
            slots[queue] += works if runner == elsewhere_than else has
            busy[queue] += works
    pending = {row[0]: row[1] for row in connection.execute(counted)}
    return {
        queue: Demand(max(0, slots[queue] - busy[queue]), busy[queue], pending.get(queue, 0))
        for queue in slots.keys() | pending.keys()
    }


@cache
def _queries_of_demand() -> tuple[sa.Select[str, Any, int, int], sa.Select[str, int]]:
    """Return the queries for the slots of each worker, and for the pending executions of each queue."""
    workers = sa.select(runners.c.id, runners.c.queues, runners.c.slots, busy_slots())
    some = some_pending()
    counted = sa.select(some.c.queue, sa.func.count()).group_by(some.c.queue)
    return workers.where(is_live_worker()), counted


def release_claimed(database: Database, rows: Sequence[ExecutionRow], reason: str) -> None:
    """Release executions that were claimed and not begun; any worker may claim them again."""
    with database.write() as connection:
        for row in rows:
            connection.execute(
                executions.update()
                .where(executions.c.id == row.id, executions.c.token == row.token, is_running)
                .values(status="pending", owner_id=None, lease_until=None, reason=reason)
            )


def record_refused(database: Database, runner_id: str, sweep_ids: Collection[str]) -> None:
    """Record the sweeps whose code a worker rejects now: no task of theirs is published that only it could run."""
    refused = sorted(sweep_ids) or sa.null()
    database.execute(runners.update().where(runners.c.id == runner_id).values(refused=refused))


def refuse(database: Database, sweep: SweepRow, runner: WorkerIdentity, reason: str) -> None:
    """Record that a worker cannot run a sweep: as the reason in the status of the sweep, and as an event."""
    details = {"worker": runner.worker, "runner": runner.id, "reason": reason}
    explain(database, sweep, f"{runner.worker}: {reason}", "worker.refused", details, "error")
