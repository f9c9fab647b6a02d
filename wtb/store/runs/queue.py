"""The work queue: claims by slots of workers, fair between sweeps, and the demand of free slots.

A worker process is a runner; the table `working` has its busy slots. An execution belongs to the queue that its next
node names, or to the default one, whose name in `runners.queues` is the empty string.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.tree.grouping import agreed
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.limits.session_memory import memory_used
from wtb.store.limits.sessions import Quota, locked_session
from wtb.store.process_identity import WorkerIdentity
from wtb.store.rows.executions import ExecutionRow
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs.leases import claim_rows, explain, try_move
from wtb.store.runs.slots import is_fresh, slot_holders
from wtb.store.tables.schema import (
    cases,
    combinations,
    executions,
    is_pending,
    is_running,
    now,
    runners,
    sessions,
    sweeps,
    working,
)

DEFAULT_QUEUE = ""
MOST_AT_ONCE = 16  # executions claimed by one slot
MOST_IN_TURN = 4  # the same while other sweeps wait for their turns
COUNTED = 4096  # pending executions; larger numbers make no difference


@dataclass(frozen=True)
class Slot:
    """A slot of a worker process. queues: those that it takes executions from; the default one is the empty string."""

    runner_id: str
    number: int
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """An open sweep with the quota of its session."""

    id: str
    status: str
    session_id: str
    quota: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class _Head:
    """A pending execution that a slot could take."""

    id: str
    queue: str | None
    sweep_id: str
    case_number: int
    combinations: list[int]
    choices: Mapping[str, str] | None


class Notification(NamedTuple):
    """A pending execution that a free slot could take, with what the monitor of the queue shows of it.

    sweep: its name. choices: the variants on which all its combinations agree. failed: why it failed, of one that did
    so on a slot that no message woke.
    """

    execution: str
    queue: str | None
    sweep: str
    case: str
    choices: Mapping[str, str]
    failed: str | None = None


def claim_for(
    database: Database,
    slot: Slot,
    lease_s: float,
    *,
    wanted: str | None = None,
    refused: Collection[str] = (),
    free: int = 1,
) -> list[ExecutionRow] | None:
    """Claim executions of one sweep for a slot, which counts as busy from then on; if there are none, as free.

    Args:
        database: The database, which is PostgreSQL.
        slot: The slot.
        lease_s: Seconds until others may claim them again, unless the lease is renewed.
        wanted: The execution that a message named. If it is None, or not pending any more, the next executions of the
            sweep whose turn it is are claimed: of the highest priority, and of those the one with the fewest busy
            slots.
        refused: Ids of sweeps to leave out.
        free: How many slots of the process are free, this one included: the claim may be for all of them.

    Returns:
        The claimed executions, those that have begun first; none if what is pending is not for this slot now, for
        example because of a quota; None if nothing is pending.
    """
    with database.write() as connection:
        turns = _turns(connection, slot, refused)
        named = None if wanted is None else _sweep_of(connection, wanted)
        tries = [(turn, executions.c.id == wanted) for turn in turns if turn.id == named]
        tries += [(turn, executions.c.sweep_id == turn.id) for turn in turns]
        for sweep, which in tries:
            if _room(connection, sweep, [slot]) < 1:
                continue
            most = _share(connection, sweep, len(turns), free)
            if rows := _claim(connection, slot, lease_s, which, most):
                if rows[0].id == wanted and most > 1 and not rows[0].losses:
                    whole = executions.c.sweep_id == sweep.id, executions.c.losses == 0
                    rows += _claim(connection, slot, lease_s, sa.and_(*whole), most - 1)
                if sweep.status == "pending":
                    _start(connection, sweep.id)
                _note(connection, {slot: rows[0].id}, sweep)
                return sorted(rows, key=lambda row: (row.head_id is None, row.id))
        connection.execute(_of([slot], working.delete()))
        return [] if turns else None


def _start(connection: sa.Connection, sweep_id: str) -> None:
    """Mark a sweep as running, unless a person has paused it since it was read: that would be undone."""
    status = sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id).with_for_update()
    if connection.scalar(status) == "pending":
        try_move(connection, sweep_id, "running", by="worker")


def _sweep_of(connection: sa.Connection, execution_id: str) -> str | None:
    return connection.scalar(sa.select(executions.c.sweep_id).where(executions.c.id == execution_id))


def _of(slots: Collection[Slot], statement: sa.Delete) -> sa.Delete:
    return statement.where(_are(slots))


def _are(slots: Collection[Slot]) -> sa.ColumnElement[bool]:
    """Whether a row of `working` is of one of these slots of a runner."""
    (runner_id,) = {slot.runner_id for slot in slots}
    return sa.and_(working.c.runner_id == runner_id, working.c.slot.in_([slot.number for slot in slots]))


def queue_of_row() -> sa.ColumnElement[str]:
    """The queue of an execution, by the name that slots use for it."""
    return sa.func.coalesce(executions.c.queue, DEFAULT_QUEUE)


def busy_slots() -> sa.ScalarSelect[int]:
    """The number of busy slots of a row of `runners`."""
    return sa.select(sa.func.count()).where(working.c.runner_id == runners.c.id).correlate(runners).scalar_subquery()


def _mine(queues: Iterable[str]) -> sa.ColumnElement[bool]:
    return queue_of_row().in_(list(queues))


def is_open() -> sa.ColumnElement[bool]:
    return sa.and_(sweeps.c.queued, sweeps.c.status.in_(("pending", "running")))


def _turns(connection: sa.Connection, slot: Slot, refused: Collection[str]) -> list[_Turn]:
    """Open sweeps that have pending executions for a slot, in the order of their turns."""
    return fetch_records(connection, _Turn, _query_of_turns(slot.queues, tuple(sorted(refused))))


@lru_cache(maxsize=100)  # making it takes as long as executing it
def _query_of_turns(queues: tuple[str, ...], refused: tuple[str, ...]) -> sa.Select[str, str, str, Any]:
    pending = sa.select(sa.literal(1)).where(executions.c.sweep_id == sweeps.c.id, is_pending, _mine(queues)).exists()
    busy = (
        sa.select(sa.func.count())
        .select_from(working.join(runners, runners.c.id == working.c.runner_id))
        .where(working.c.sweep_id == sweeps.c.id, is_fresh())
        .scalar_subquery()
    )
    return (
        sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.session_id, sessions.c.quota)
        .join(sessions, sessions.c.id == sweeps.c.session_id)
        .where(is_open(), sweeps.c.id.not_in(refused), pending)
        .order_by(sweeps.c.priority.desc(), busy, sweeps.c.created_at, sweeps.c.id)
    )


def _room(connection: sa.Connection, sweep: _Turn, slots: Collection[Slot]) -> int:
    """For how many of these slots of a runner the quotas of node runs and memory of the session leave room."""
    quota = Quota.of(sweep.quota)
    if quota.memory is not None and sum(memory_used(connection, sweep.session_id).values()) > quota.memory:
        return 0
    if quota.node_runs is None:
        return len(slots)
    most = Quota.of(locked_session(connection, sweep.session_id).quota).node_runs
    used = sum(row.slots for row in slot_holders(connection, sweep.session_id, but=_are(slots)))
    return len(slots) if most is None else max(0, min(len(slots), most - used))


def _share(connection: sa.Connection, sweep: _Turn, turns: int, free: int) -> int:
    """How many executions to claim at once: few enough that all slots get some, and every sweep its turn.

    They are for `free` slots of one process, or for a single one where others wait for turns, or a quota is counted.
    """
    quota = Quota.of(sweep.quota)
    if turns > 1 or quota.node_runs is not None or quota.memory is not None:
        free = 1
    slots, pending = connection.execute(_query_of_shares()).one()
    slots, pending = max(1, int(slots)), int(pending)
    each = max(1, min(MOST_IN_TURN if turns > 1 else MOST_AT_ONCE, pending // (2 * slots)))
    return max(1, min(each * free, math.ceil(pending * free / slots)))


@cache
def _query_of_shares() -> sa.Select[int, int]:
    """How many slots workers have, and how many executions are pending."""
    counted = sa.select(sa.func.count()).select_from(_some_pending()).scalar_subquery()
    has = sa.func.coalesce(sa.func.sum(runners.c.slots), 1)
    return sa.select(has, counted).where(runners.c.worker.is_not(None), is_fresh())


def _some_pending() -> sa.Subquery:
    """The queues of pending executions of open sweeps, up to a bound: beyond it their number makes no difference."""
    return (
        sa.select(queue_of_row().label("queue"))
        .join(sweeps, sweeps.c.id == executions.c.sweep_id)
        .where(is_open(), is_pending)
        .limit(COUNTED)
        .subquery()
    )


def _claim(
    connection: sa.Connection,
    slot: Slot,
    lease_s: float,
    which: sa.ColumnElement[bool],
    limit: int,
) -> list[ExecutionRow]:
    query = sa.select(executions.c.id, executions.c.losses).where(which, _mine(slot.queues))
    # Slots that claim at the same time skip what another one is about to get: nobody waits, nothing is claimed twice.
    pending = _firsts(connection, query.with_for_update(skip_locked=True), limit)
    if not pending:
        return []
    # One that was lost before may be what kills its workers: no other is to be in the same hands.
    sound = [row.id for row in pending if not row.losses]
    which = executions.c.id.in_([pending[0].id] if pending[0].losses else sound)
    return claim_rows(connection, which, slot.runner_id, lease_s)


def _firsts(connection: sa.Connection, query: sa.Select[Any], limit: int) -> list[sa.Row[*tuple[Any, ...]]]:
    """The pending executions to claim next: first those that have begun, so that reclaimed executions and forks do not
    wait behind roots, and the oldest of each kind first.
    """
    query = query.where(is_pending).order_by(executions.c.id)
    begun = list(connection.execute(query.where(executions.c.head_id.is_not(None)).limit(limit)))
    if len(begun) == limit:
        return begun
    return begun + list(connection.execute(query.where(executions.c.head_id.is_(None)).limit(limit - len(begun))))


def _note(connection: sa.Connection, begun: Mapping[Slot, str], sweep: _Turn) -> None:
    """Mark slots as busy. begun: the execution of each."""
    whose = {"session_id": sweep.session_id, "sweep_id": sweep.id}
    rows = [
        {"runner_id": slot.runner_id, "slot": slot.number, "execution_id": execution_id, **whose}
        for slot, execution_id in begun.items()
    ]
    connection.execute(_insert_of_slots(), rows)


@cache
def _insert_of_slots() -> sa.Insert:
    from sqlalchemy.dialects import postgresql  # imported here: SQLite, which has no such slots, does without

    insert = postgresql.insert(working).values(since=now())
    changed = {name: insert.excluded[name] for name in ("session_id", "sweep_id", "execution_id", "since")}
    return insert.on_conflict_do_update(index_elements=list(working.primary_key), set_=changed)


def occupy(database: Database, begun: Mapping[Slot, str], sweep_id: str) -> list[Slot]:
    """Mark slots of a process as busy with executions of a sweep that it has claimed.

    Args:
        database: The database, which is PostgreSQL.
        begun: The execution of each slot.
        sweep_id: The sweep of these executions.

    Returns:
        The slots that are busy now: all, or as many as the quota of the session leaves room for.
    """
    query = (
        sa.select(sweeps.c.id, sweeps.c.status, sweeps.c.session_id, sessions.c.quota)
        .join(sessions, sessions.c.id == sweeps.c.session_id)
        .where(sweeps.c.id == sweep_id)
    )
    with database.write() as connection:
        (sweep,) = fetch_records(connection, _Turn, query)
        allowed = list(begun)[: _room(connection, sweep, begun.keys())]
        if allowed:
            _note(connection, {slot: begun[slot] for slot in allowed}, sweep)
        return allowed


def leave(database: Database, slot: Slot) -> None:
    """A slot is free."""
    database.execute(_of([slot], working.delete()))


@dataclass(frozen=True)
class Demand:
    """Slots and work of one queue: `free` slots beyond the `pending` executions, and `busy` ones."""

    free: int
    busy: int
    pending: int

    @property
    def share(self) -> int:
        """How many executions one busy slot should release, so that all together fill the free ones."""
        return max(0, math.ceil((self.free - self.pending) / max(1, self.busy)))


def demand(database: Database, *, elsewhere_than: str | None = None) -> dict[str, Demand]:
    """Slots and work by queue. A slot that takes several queues counts for each of them.

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
            slots[queue] += works if runner == elsewhere_than else has
            busy[queue] += works
    pending = {row[0]: row[1] for row in connection.execute(counted)}
    return {
        queue: Demand(max(0, slots[queue] - busy[queue]), busy[queue], pending.get(queue, 0))
        for queue in slots.keys() | pending.keys()
    }


@cache
def _queries_of_demand() -> tuple[sa.Select[str, Any, int, int], sa.Select[str, int]]:
    """The slots of each worker, and the pending executions of each queue."""
    workers = sa.select(runners.c.id, runners.c.queues, runners.c.slots, busy_slots())
    some = _some_pending()
    counted = sa.select(some.c.queue, sa.func.count()).group_by(some.c.queue)
    return workers.where(runners.c.worker.is_not(None), is_fresh()), counted


def pending_notifications(database: Database, limit: int = COUNTED) -> list[Notification]:
    """Pending executions that free slots could take now, at most `limit`, in the order of turns, with a description."""
    with database.read() as connection:
        rows: list[_Head] = []
        for queue, demand in _demand(connection).items():
            most = min(demand.free, demand.pending, limit - len(rows))
            if most:
                rows += _heads(connection, queue, most)
    return _described(database, rows)


def _heads(connection: sa.Connection, queue: str, limit: int) -> list[_Head]:
    turns = _turns(connection, Slot("", 0, (queue,)), ())
    heads: list[_Head] = []
    each = max(1, limit // max(1, len(turns)))
    for place, turn in enumerate(turns):
        most = limit - len(heads) if place == len(turns) - 1 else min(each, limit - len(heads))
        query = (
            sa.select(executions.c.id, executions.c.queue, executions.c.sweep_id, executions.c.case_number)
            .add_columns(executions.c.combinations, executions.c.choices)
            .where(executions.c.sweep_id == turn.id, _mine((queue,)))
        )
        heads += [_Head(*row) for row in _firsts(connection, query, most)]
    return heads


def _described(database: Database, rows: Sequence[_Head]) -> list[Notification]:
    """Add what the monitor of the queue shows: names of sweep and case, and the choices."""
    described = []
    with database.read() as connection:
        for row in rows:
            name, case = connection.execute(
                sa.select(sweeps.c.name, cases.c.id).where(
                    sweeps.c.id == row.sweep_id,
                    cases.c.sweep_id == sweeps.c.id,
                    cases.c.number == row.case_number,
                )
            ).one()
            query = sa.select(combinations.c.choices).where(
                combinations.c.sweep_id == row.sweep_id, combinations.c.number.in_(row.combinations[:1000])
            )
            chosen = agreed(list(connection.scalars(query))) if row.choices is None else row.choices
            described.append(Notification(row.id, row.queue, name, case, chosen))
    return described


def release_claimed(database: Database, rows: Sequence[ExecutionRow], reason: str) -> None:
    """Release executions that were claimed and not begun; any worker may claim them again."""
    with database.write() as connection:
        for row in rows:
            connection.execute(
                executions.update()
                .where(executions.c.id == row.id, executions.c.token == row.token, is_running)
                .values(status="pending", owner_id=None, lease_until=None, reason=reason)
            )


def refuse(database: Database, sweep: SweepRow, runner: WorkerIdentity, reason: str) -> None:
    """Record that a worker cannot run a sweep: as the reason in the status of the sweep, and as an event."""
    data = {"worker": runner.worker, "runner": runner.id, "reason": reason}
    explain(database, sweep, f"{runner.worker}: {reason}", "worker.refused", data, "error")
