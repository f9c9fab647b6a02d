"""Publishing: which pending executions become tasks of workers, in which order, and how many wait at a time.

A task is the work of one slot for about `TASK_S` seconds or longer: a case with its combinations, several cases where
they are quick, or a branch of a case. The database keeps which executions are in a task; the message of a task names
it and nothing else that counts. A message may be lost, doubled or late: see `is_published`.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.ids import new_id
from wtb.store.bulk import fetch_records
from wtb.store.control import rescore
from wtb.store.database import Database
from wtb.store.limits.session_memory import memory_used
from wtb.store.limits.sessions import Quota
from wtb.store.runs.queue import (
    COUNTED,
    QueuedSweep,
    busy_slots,
    is_live_worker,
    is_of,
    is_open,
    queue_of_row,
    some_pending,
    sweeps_of_queue,
    withdraw,
)
from wtb.store.runs.slots import is_fresh, slot_holders
from wtb.store.runs.task_labels import Task as Task
from wtb.store.runs.task_labels import describe, names_of
from wtb.store.tables.schema import (
    executions,
    is_published,
    is_unpublished,
    now,
    runners,
    sweeps,
    working,
)

WINDOW = 16  # tasks that wait on a queue even where no worker serves it, so that autoscalers see work
TASKS_A_SLOT = 2
TASK_S = 0.75  # of work in a task, where cases are quick
MOST_CASES = 500  # in a task
_LOCK = 0x57544201  # advisory: those who publish take turns, so that together they keep to the window
_APART_S = 1e-6  # between the times of what is published together
_SMOOTHING = 0.5  # weight of the last task in the seconds that a root takes


class _Head(NamedTuple):
    """A pending execution that is not published."""

    id: str
    losses: int


@dataclass(frozen=True)
class _Worker:
    queues: tuple[str, ...]
    slots: int
    busy: int
    refused: frozenset[str]


@dataclass(frozen=True)
class _State:
    """The workers, the tasks that wait, by (sweep, queue), and the busy slots, by sweep."""

    workers: Sequence[_Worker]
    tasks: Mapping[tuple[str, str], int]
    busy: Mapping[str, int]

    def window(self, queue: str) -> int:
        """Return how many tasks of one priority may wait on a queue."""
        return max(WINDOW, TASKS_A_SLOT * self.slots(queue))

    def slots(self, queue: str) -> int:
        return sum(worker.slots for worker in self.workers if queue in worker.queues)

    def is_refused(self, sweep_id: str, queue: str) -> bool:
        """Return whether every live worker of a queue rejects a sweep."""
        serving = [worker for worker in self.workers if queue in worker.queues]
        return bool(serving) and all(sweep_id in worker.refused for worker in serving)


def publish(database: Database) -> list[Task]:
    """Publish pending executions as tasks, as far as windows and quotas leave room. Returns the tasks, to be sent.

    Sweeps of higher priority come first, whatever of others waits; among those of one priority the one with the fewest
    tasks and busy slots. Executions that were lost with their workers are alone in their tasks.
    """
    with database.write() as connection:
        if not connection.scalar(_query_whether_work_waits()):  # as it is after most tasks; who publishes waits in line
            return []
        _take_turn(connection)
        scorings = _described_scorings(connection, rescore.publish_scorings(connection))
        candidates = fetch_records(connection, QueuedSweep, _query_of_candidates())
        if not candidates:
            return scorings
        state = _state(connection)
        left = _left_of_quotas(connection, candidates)
        tasks = [
            task
            for queue in sorted(_queues(connection, state))
            for task in _publish_on(connection, queue, candidates, state, left)
        ]
        return [*_described(connection, tasks), *scorings]


def _take_turn(connection: sa.Connection) -> None:
    """Wait until nobody else publishes, to the end of the transaction."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


@cache
def _query_whether_work_waits() -> sa.Select[Any]:
    return sa.select(sa.or_(_query_of_candidates().order_by(None).exists(), rescore.any_unpublished()))


@cache
def _query_of_candidates() -> sa.Select[Any]:
    """Open sweeps with executions to publish, in the order of priority and age."""
    waits = sa.select(sa.literal(1)).where(executions.c.sweep_id == sweeps.c.id, is_unpublished).exists()
    order = sweeps.c.priority.desc(), sweeps.c.created_at, sweeps.c.id
    return sweeps_of_queue().where(is_open(), waits).order_by(*order)


def _state(connection: sa.Connection) -> _State:
    workers = [
        _Worker(tuple(row.queues or ()), row.slots, row.busy, frozenset(row.refused or ()))
        for row in connection.execute(_query_of_workers())
    ]
    waiting, at_work = _queries_of_tasks()
    tasks = {(row[0], row[1]): row[2] for row in connection.execute(waiting)}
    return _State(workers, tasks, {row[0]: row[1] for row in connection.execute(at_work)})


@cache
def _query_of_workers() -> sa.Select[Any]:
    columns = runners.c.queues, runners.c.slots, busy_slots().label("busy"), runners.c.refused
    return sa.select(*columns).where(is_live_worker())


@cache
def _queries_of_tasks() -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Published tasks by sweep and queue, and busy slots by sweep."""
    queue = queue_of_row()
    count = sa.func.count(executions.c.task_id.distinct())
    waiting = sa.select(executions.c.sweep_id, queue, count).where(is_published).group_by(executions.c.sweep_id, queue)
    at_work = (
        sa.select(working.c.sweep_id, sa.func.count())
        .join(runners, runners.c.id == working.c.runner_id)
        .where(is_fresh())
        .group_by(working.c.sweep_id)
    )
    return waiting, at_work


def _left_of_quotas(connection: sa.Connection, candidates: Sequence[QueuedSweep]) -> dict[str, float]:
    """Return how many more tasks the quotas of each session leave room for."""
    left: dict[str, float] = {}
    for sweep in candidates:
        if sweep.session_id in left:
            continue
        quota = Quota.of(sweep.quota)
        left[sweep.session_id] = math.inf
        if quota.memory is not None and sum(memory_used(connection, sweep.session_id).values()) > quota.memory:
            left[sweep.session_id] = 0
        elif quota.node_runs is not None:
            used = sum(row.slots for row in slot_holders(connection, sweep.session_id))
            left[sweep.session_id] = max(0, quota.node_runs - used - _tasks_of_session(connection, sweep.session_id))
    return left


def _tasks_of_session(connection: sa.Connection, session_id: str) -> int:
    count = sa.select(sa.func.count(executions.c.task_id.distinct()))
    return connection.scalar(count.where(executions.c.session_id == session_id, is_published)) or 0


def _queues(connection: sa.Connection, state: _State) -> set[str]:
    """Queues that may have executions to publish: those of workers, and those of pending executions."""
    pending = sa.select(some_pending().c.queue).distinct()
    return {queue for worker in state.workers for queue in worker.queues} | set(connection.scalars(pending))


def _publish_on(
    connection: sa.Connection,
    queue: str,
    candidates: Sequence[QueuedSweep],
    state: _State,
    left: dict[str, float],
) -> list[tuple[str, str, QueuedSweep, list[_Head]]]:
    """Publish on one queue. Returns (task, queue, sweep, executions) of each task."""
    published = []
    by_priority: defaultdict[int, list[QueuedSweep]] = defaultdict(list)
    for sweep in candidates:
        if not state.is_refused(sweep.id, queue):
            by_priority[sweep.priority].append(sweep)
    for sweeps_alike in by_priority.values():
        waiting = sum(state.tasks.get((sweep.id, queue), 0) for sweep in sweeps_alike)
        most = state.window(queue) - waiting
        for sweep, heads in _in_turns(connection, queue, sweeps_alike, state, most):
            if left[sweep.session_id] < 1:
                continue
            left[sweep.session_id] -= 1
            published.append((new_id(), queue, sweep, heads))
    _mark(connection, {head.id: task_id for task_id, _, _, heads in published for head in heads})
    return published


def _mark(connection: sa.Connection, task_ids: Mapping[str, str]) -> None:
    """Mark executions as published. task_ids: the task of each, in the order of the tasks, which their times keep."""
    if task_ids:
        places = sa.literal([*range(len(task_ids))], sa.ARRAY(sa.Integer))
        texts = [sa.literal([*column], sa.ARRAY(sa.String)) for column in (task_ids.keys(), task_ids.values())]
        new = sa.func.unnest(*texts, places).table_valued("id", "task_id", "place", name="new").render_derived()
        at = sa.select(now()).scalar_subquery() + new.c.place * _APART_S
        values = {"task_id": new.c.task_id, "task_token": executions.c.token, "published_at": at}
        connection.execute(executions.update().where(executions.c.id == new.c.id, is_unpublished).values(values))


def _in_turns(
    connection: sa.Connection, queue: str, alike: Sequence[QueuedSweep], state: _State, most: int
) -> Iterator[tuple[QueuedSweep, list[_Head]]]:
    """Yield the next tasks of sweeps of one priority, at most `most`: always of the sweep with the fewest."""
    turns = []
    for place, sweep in enumerate(alike if most > 0 else ()):
        tasks = iter(_tasks_of(connection, queue, sweep, state.slots(queue), most))
        turns.append((state.tasks.get((sweep.id, queue), 0) + state.busy.get(sweep.id, 0), place, sweep, tasks))
    heapify(turns)
    while turns and most > 0:
        count, place, sweep, tasks = heappop(turns)
        if (task := next(tasks, None)) is not None:
            most -= 1
            heappush(turns, (count + 1, place, sweep, tasks))
            yield sweep, task


def _tasks_of(connection: sa.Connection, queue: str, sweep: QueuedSweep, slots: int, most: int) -> list[list[_Head]]:
    """Divide executions of a sweep into tasks, at most `most`: those that have begun come first, each by itself."""
    begun = _heads(connection, queue, sweep.id, most, begun=True)
    tasks = [[head] for head in begun]
    if len(tasks) == most:
        return tasks
    size = 1 if sweep.root_s is None else min(MOST_CASES, max(1, int(TASK_S / max(sweep.root_s, 1e-6))))
    if size > 1:  # the last ones are spread over all slots
        pending = connection.scalar(_count_of_pending(sweep.id, queue)) or 0
        size = max(1, min(size, pending // (TASKS_A_SLOT * max(1, slots))))
    roots = _heads(connection, queue, sweep.id, (most - len(tasks)) * size, begun=False)
    tasks += [[head] for head in roots if head.losses]  # one may be what kills its workers
    sound = [head for head in roots if not head.losses]
    tasks += [sound[place : place + size] for place in range(0, len(sound), size)]
    return tasks[:most]


def _count_of_pending(sweep_id: str, queue: str) -> sa.Select[Any]:
    pending = sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id, is_unpublished, is_of((queue,)))
    return sa.select(sa.func.count()).select_from(pending.limit(COUNTED).subquery())


def _heads(connection: sa.Connection, queue: str, sweep_id: str, limit: int, *, begun: bool) -> list[_Head]:
    """Return executions to publish, the oldest first: those that have begun, or the others."""
    is_root = executions.c.head_id.is_(None)
    query = (
        sa.select(executions.c.id, executions.c.losses)
        .where(executions.c.sweep_id == sweep_id, is_unpublished, is_of((queue,)), ~is_root if begun else is_root)
        .order_by(executions.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return [_Head(*row) for row in connection.execute(query)]


def _described(connection: sa.Connection, tasks: Sequence[tuple[str, str, QueuedSweep, list[_Head]]]) -> list[Task]:
    """Add what a monitor shows of tasks that were published just now."""
    return describe(
        connection,
        {(task_id, queue, sweep.id): [head.id for head in heads] for task_id, queue, sweep, heads in tasks},
    )


def publish_again(database: Database, after_s: float) -> list[Task]:
    """Return tasks whose message may be lost, to be sent again under the same id.

    Args:
        database: The database, which is PostgreSQL.
        after_s: Seconds after which a task should have been claimed, given that a slot of its queue is free.
    """
    with database.write() as connection:
        _take_turn(connection)
        state = _state(connection)
        free = {queue for worker in state.workers if worker.busy < worker.slots for queue in worker.queues}
        query = (
            executions.update()
            .where(is_published, is_of(free), executions.c.published_at < now() - after_s)
            .where(executions.c.sweep_id.in_(sa.select(sweeps.c.id).where(is_open())))
            .values(published_at=now())
            .returning(executions.c.task_id, queue_of_row(), executions.c.sweep_id, executions.c.id)
        )
        by_task: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        for task_id, queue, sweep_id, id in connection.execute(query) if free else ():
            by_task[task_id, queue, sweep_id].append(id)
        tasks = describe(connection, {task: sorted(ids) for task, ids in by_task.items()})
        return [*tasks, *_described_scorings(connection, rescore.publish_scorings(connection, after_s))]


def _described_scorings(connection: sa.Connection, published: Sequence[tuple[str, str, str]]) -> list[Task]:
    """Describe the tasks that score sweeps again."""
    if not published:
        return []
    names = names_of(connection, {sweep_id for _, _, sweep_id in published})
    return [
        Task(id, queue, sweep_id, names[sweep_id][0], [], 0, {}, names[sweep_id][1])
        for id, queue, sweep_id in published
    ]


def next_published(database: Database, queues: Collection[str]) -> str | None:
    """Return the task that a free slot should take where no broker delivers messages; None if there is none."""
    query = (
        sa.select(executions.c.task_id)
        .join(sweeps, sweeps.c.id == executions.c.sweep_id)
        .where(is_open(), is_published, is_of(queues))
        .order_by(sweeps.c.priority.desc(), executions.c.published_at, executions.c.id)
        .limit(1)
    )
    return database.scalar(query)


def has_published(database: Database, queues: Collection[str]) -> bool:
    """Return whether a published task waits on one of these queues."""
    return next_published(database, queues) is not None


def withdraw_task(database: Database, task_id: str) -> None:
    """Make the executions of a task that nobody has claimed unpublished: they become parts of other tasks."""
    with database.write() as connection:
        withdraw(connection, executions.c.task_id == task_id)


def published_ids(database: Database, sweep_id: str) -> list[str]:
    """Return the tasks of a sweep that wait for a slot."""
    query = sa.select(executions.c.task_id).where(executions.c.sweep_id == sweep_id, is_published)
    return database.scalars(query.distinct())


def measure(database: Database, sweep_id: str, seconds: float, roots: int) -> None:
    """Record how long roots of a sweep with their trees took, by which the next tasks are cut.

    Args:
        database: Where.
        sweep_id: The sweep.
        seconds: Of the slots that ran them, together.
        roots: How many there were.
    """
    each, before = seconds / roots, sweeps.c.root_s
    smoothed = sa.func.coalesce(before + _SMOOTHING * (each - before), each)
    database.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(root_s=smoothed))


def cluster_of(database: Database) -> str:
    """Return the short id of a database that names its queues, so that two on one broker never share messages.

    It is the same for whoever reaches the database, whatever it calls the host, and another one for a restored copy.
    """
    query = sa.text(
        "SELECT (SELECT system_identifier FROM pg_control_system()) || '-' || oid "
        "FROM pg_database WHERE datname = current_database()"
    )
    with database.read() as connection:
        return hashlib.sha256(str(connection.scalar(query)).encode()).hexdigest()[:8]
