"""Publishing: the pending executions that become tasks of workers, their order, and how many wait at a time.

A task is the work of one slot for about `TASK_S` seconds or longer: a case with its combinations, several cases if they
are quick, or a branch of a case. The database records which executions are in a task. The message of a task names the
task and nothing else that counts, so it may be lost, doubled or late: see `is_published`.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.core.ids import new_id
from wtb.core.tree.run_order import agreed
from wtb.store.access.sessions import Quota
from wtb.store.access.usage import memory_used
from wtb.store.bulk import fetch_among, fetch_records
from wtb.store.control import rescore
from wtb.store.database import Database
from wtb.store.database_url import LOCK_NOT_AVAILABLE, sqlstate
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
from wtb.store.tables.schema import (
    cases,
    combinations,
    executions,
    is_published,
    is_unpublished,
    now,
    runners,
    sweeps,
    working,
)

MOST_DESCRIBED = 50  # ids of cases that a monitor shows of a task; of more, the first and the last one


class Task(NamedTuple):
    """A published task, with what a monitor shows of it.

    Attributes:
        queue: As slots name it; empty for the default one.
        sweep_id: Its sweep, and `sweep`: the name of that.
        cases: Ids of its cases, in order; of more than MOST_DESCRIBED, the first and the last one.
        size: How many executions it has; 0 of one that scores the sweep again.
        choices: Node -> variant, as far as all combinations of the first execution agree.
        redact: The section `redact` of the sweep, as it is stored.
    """

    id: str
    queue: str
    sweep_id: str
    sweep: str
    cases: list[str]
    size: int
    choices: Mapping[str, str]
    redact: object


def describe(connection: sa.Connection, tasks: Mapping[tuple[str, str, str], Sequence[str]]) -> list[Task]:
    """Describe tasks for monitors.

    Args:
        connection: In a transaction.
        tasks: The ids of the executions, in order, by the id of the task, its queue and its sweep.
    """
    if not tasks:
        return []
    names = names_of(connection, {sweep_id for _, _, sweep_id in tasks})
    sample_ids = {task: ids if len(ids) < MOST_DESCRIBED else (ids[0], ids[-1]) for task, ids in tasks.items()}
    rows = _rows_of(connection, [id for ids in sample_ids.values() for id in ids])
    heads = {task: rows.get(ids[0]) for task, ids in tasks.items()}
    wide = [row for task, row in heads.items() if row and row.choices is None and len(tasks[task]) == 1]
    choices = _choices_of(connection, {(row.sweep_id, number) for row in wide for number in row.combinations[:1000]})
    described = []
    for task, ids in tasks.items():
        task_id, queue, sweep_id = task
        name, redact = names[sweep_id]
        case_ids = list(dict.fromkeys(rows[id].case_id for id in sample_ids[task] if id in rows))
        agree: Mapping[str, str] = {}
        if (head := heads[task]) is not None and head.choices is not None:
            agree = head.choices
        elif head is not None and len(ids) == 1:
            agree = agreed([choices[sweep_id, number] for number in head.combinations[:1000]])
        described.append(Task(task_id, queue, sweep_id, name, case_ids, len(ids), agree, redact))
    return described


def names_of(connection: sa.Connection, ids: Collection[str]) -> dict[str, tuple[str, object]]:
    """Return the name and the section `redact` of sweeps, by id."""
    query = sa.select(sweeps.c.id, sweeps.c.name, sweeps.c.spec["redact"]).where(sweeps.c.id.in_(list(ids)))
    return {id: (name, redact) for id, name, redact in connection.execute(query)}


def _rows_of(connection: sa.Connection, ids: Sequence[str]) -> dict[str, sa.Row[Any]]:
    """Return sweep, case, combinations and choices of executions, by id."""
    query = (
        sa.select(executions.c.id, executions.c.sweep_id, cases.c.id.label("case_id"))
        .add_columns(executions.c.combinations, executions.c.choices)
        .join(cases, sa.and_(cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number))
    )
    return {row.id: row for row in fetch_among(connection, query, executions.c.id, ids)}


def _choices_of(
    connection: sa.Connection, keys: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Mapping[str, str]]:
    """Return the choices of combinations, by sweep and number."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for sweep_id, number in keys:
        numbers[sweep_id].append(number)
    choices: dict[tuple[str, int], Mapping[str, str]] = {}
    for sweep_id, of_sweep in numbers.items():
        query = sa.select(combinations.c.number, combinations.c.choices).where(combinations.c.sweep_id == sweep_id)
        rows = fetch_among(connection, query, combinations.c.number, of_sweep)
        choices |= {(sweep_id, row.number): row.choices for row in rows}
    return choices


WINDOW = 16  # tasks that wait on a queue even where no worker serves it, so that autoscalers see work
TASKS_A_SLOT = 2
TASK_S = 0.75  # of work in a task, where cases are quick
MOST_CASES = 500  # in a task
_LOCK = 0x57544201  # advisory: those who publish take turns, so that together they keep to the window
TURN_WAIT_S = 0.5  # after which whoever publishes leaves it to the others
TURN_SILENT_S = 2.0  # between two statements in a turn: a process that is stopped holds up everybody
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
    return _in_turn(database, _publish)


def _publish(connection: sa.Connection) -> list[Task]:
    if not connection.scalar(_query_whether_work_waits()):  # as it is after most tasks; who publishes waits in line
        return []
    _take_turn(connection)
    scorings = _described_scorings(connection, rescore.publish_scorings(connection))
    candidates = fetch_records(connection, QueuedSweep, _query_of_candidates())
    if not candidates:
        return scorings
    state = _state(connection)
    room = _left_of_quotas(connection, candidates)
    tasks = [
        task
        for queue in sorted(_queues(connection, state))
        for task in _publish_on(connection, queue, candidates, state, room)
    ]
    heads = {(task_id, queue, sweep.id): [head.id for head in heads] for task_id, queue, sweep, heads in tasks}
    return [*describe(connection, heads), *scorings]


def _in_turn(database: Database, publish_tasks: Callable[[sa.Connection], list[Task]]) -> list[Task]:
    """Publish in a transaction. Returns no tasks if others publish for too long: a later round does so again."""
    try:
        with database.write() as connection:
            return publish_tasks(connection)
    except StoreError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return []


def _take_turn(connection: sa.Connection) -> None:
    """Wait until nobody else publishes, and keep others from publishing until the transaction ends."""
    # A process that is stopped within its turn would hold up everybody, so PostgreSQL ends its session.
    settings = {"lock_timeout": TURN_WAIT_S, "idle_in_transaction_session_timeout": TURN_SILENT_S}
    limits = [sa.func.set_config(name, f"{1000 * seconds:g}", True) for name, seconds in settings.items()]
    connection.execute(sa.select(*limits, sa.func.pg_advisory_xact_lock(_LOCK)))


@cache
def _query_whether_work_waits() -> sa.Select[Any]:
    return sa.select(sa.or_(_query_of_candidates().order_by(None).exists(), rescore.any_unpublished()))


@cache
def _query_of_candidates() -> sa.Select[Any]:
    """Return the query for open sweeps with executions to publish, in the order of priority and age."""
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
    """Return the queries for published tasks by sweep and queue, and for busy slots by sweep."""
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
    room: dict[str, float] = {}
    for sweep in candidates:
        if sweep.session_id in room:
            continue
        quota = Quota.of(sweep.quota)
        room[sweep.session_id] = math.inf
        if quota.memory is not None and sum(memory_used(connection, sweep.session_id).values()) > quota.memory:
            room[sweep.session_id] = 0
        elif quota.node_runs is not None:
            used = sum(row.slots for row in slot_holders(connection, sweep.session_id))
            room[sweep.session_id] = max(0, quota.node_runs - used - _tasks_of_session(connection, sweep.session_id))
    return room


def _tasks_of_session(connection: sa.Connection, session_id: str) -> int:
    count = sa.select(sa.func.count(executions.c.task_id.distinct()))
    return connection.scalar(count.where(executions.c.session_id == session_id, is_published)) or 0


def _queues(connection: sa.Connection, state: _State) -> set[str]:
    """Return the queues that may have executions to publish: those of workers, and those of pending executions."""
    pending = sa.select(some_pending().c.queue).distinct()
    return {queue for worker in state.workers for queue in worker.queues} | set(connection.scalars(pending))


def _publish_on(
    connection: sa.Connection, queue: str, candidates: Sequence[QueuedSweep], state: _State, room: dict[str, float]
) -> list[tuple[str, str, QueuedSweep, list[_Head]]]:
    """Publish on one queue. Returns (task, queue, sweep, executions) of each task."""
    published = []
    by_priority: defaultdict[int, list[QueuedSweep]] = defaultdict(list)
    for sweep in candidates:
        if not state.is_refused(sweep.id, queue):
            by_priority[sweep.priority].append(sweep)
    for sweeps_alike in by_priority.values():
        waiting = sum(state.tasks.get((sweep.id, queue), 0) for sweep in sweeps_alike)
        window = state.window(queue) - waiting
        for sweep, heads in _in_turns(connection, queue, sweeps_alike, state, window):
            # The task is passed over, not put back: its executions stay unpublished until the quota has room.
            if room[sweep.session_id] < 1:
                continue
            room[sweep.session_id] -= 1
            published.append((new_id(), queue, sweep, heads))
    _mark(connection, {head.id: task_id for task_id, _, _, heads in published for head in heads})
    return published


def _mark(connection: sa.Connection, task_ids: Mapping[str, str]) -> None:
    """Mark executions as published.

    Args:
        connection: In a transaction that writes.
        task_ids: The task of each execution. Times of publication follow the order of the tasks.
    """
    if task_ids:
        # Arrays as parameters: one statement of one text for any number of rows.
        places = sa.literal([*range(len(task_ids))], sa.ARRAY(sa.Integer))
        texts = [sa.literal([*column], sa.ARRAY(sa.String)) for column in (task_ids.keys(), task_ids.values())]
        new = sa.func.unnest(*texts, places).table_valued("id", "task_id", "place", name="new").render_derived()
        # A subquery, so that the clock is read once: by itself it advances from row to row.
        at = sa.select(now()).scalar_subquery() + new.c.place * _APART_S
        values = {"task_id": new.c.task_id, "task_token": executions.c.token, "published_at": at}
        connection.execute(executions.update().where(executions.c.id == new.c.id, is_unpublished).values(values))


def _in_turns(
    connection: sa.Connection, queue: str, alike: Sequence[QueuedSweep], state: _State, limit: int
) -> Iterator[tuple[QueuedSweep, list[_Head]]]:
    """Yield the next tasks of sweeps of one priority, at most `limit`: always of the sweep with the fewest."""
    turns = []
    for place, sweep in enumerate(alike if limit > 0 else ()):
        tasks = iter(_tasks_of(connection, queue, sweep, state.slots(queue), limit))
        turns.append((state.tasks.get((sweep.id, queue), 0) + state.busy.get(sweep.id, 0), place, sweep, tasks))
    heapify(turns)
    while turns and limit > 0:
        count, place, sweep, tasks = heappop(turns)
        if (task := next(tasks, None)) is not None:
            limit -= 1
            heappush(turns, (count + 1, place, sweep, tasks))
            yield sweep, task


def _tasks_of(connection: sa.Connection, queue: str, sweep: QueuedSweep, slots: int, limit: int) -> list[list[_Head]]:
    """Divide executions of a sweep into tasks, at most `limit`: those that have begun come first, each by itself."""
    started = _heads(connection, queue, sweep.id, limit, is_begun=True)
    tasks = [[head] for head in started]
    if len(tasks) == limit:
        return tasks
    # Before the first measurement a task has one case: it may take minutes.
    size = 1 if sweep.root_s is None else min(MOST_CASES, max(1, int(TASK_S / max(sweep.root_s, 1e-6))))
    if size > 1:  # the last ones are spread over all slots
        # A count up to a bound, because a queue may hold a million.
        pending = connection.scalar(_count_of_pending(sweep.id, queue)) or 0
        size = max(1, min(size, pending // (TASKS_A_SLOT * max(1, slots))))
    roots = _heads(connection, queue, sweep.id, (limit - len(tasks)) * size, is_begun=False)
    tasks += [[head] for head in roots if head.losses]  # one may be what kills its workers
    sound = [head for head in roots if not head.losses]
    tasks += [sound[place : place + size] for place in range(0, len(sound), size)]
    return tasks[:limit]


def _count_of_pending(sweep_id: str, queue: str) -> sa.Select[Any]:
    pending = sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id, is_unpublished, is_of((queue,)))
    return sa.select(sa.func.count()).select_from(pending.limit(COUNTED).subquery())


def _heads(connection: sa.Connection, queue: str, sweep_id: str, limit: int, *, is_begun: bool) -> list[_Head]:
    """Return executions to publish, the oldest first: those that have begun, or the others."""
    is_root = executions.c.head_id.is_(None)
    query = (
        sa.select(executions.c.id, executions.c.losses)
        .where(executions.c.sweep_id == sweep_id, is_unpublished, is_of((queue,)), ~is_root if is_begun else is_root)
        .order_by(executions.c.id)
        .limit(limit)
        # Rows that somebody has locked are being claimed, paused or flushed: a later round publishes them.
        .with_for_update(skip_locked=True)
    )
    return [_Head(*row) for row in connection.execute(query)]


def publish_again(database: Database, after_s: float) -> list[Task]:
    """Return tasks whose message may be lost, to be sent again under the same id.

    Args:
        database: The database, which is PostgreSQL.
        after_s: Seconds after which a task should have been claimed, given that a slot of its queue is free.
    """
    return _in_turn(database, lambda connection: _publish_again(connection, after_s))


def _publish_again(connection: sa.Connection, after_s: float) -> list[Task]:
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
    # Without a broker there are no queues by priority, so the query has the order that a broker would keep.
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
    # A moving average: roots of one sweep differ, and its cases may become slower later.
    each, before = seconds / roots, sweeps.c.root_s
    smoothed = sa.func.coalesce(before + _SMOOTHING * (each - before), each)
    database.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(root_s=smoothed))


def cluster_of(database: Database) -> str:
    """Return the short id of a database that names its queues, so that two databases on one broker never share
    messages.

    It does not depend on the name of the host by which a process reaches the database. A restored copy has another one.
    """
    query = sa.text(
        "SELECT (SELECT system_identifier FROM pg_control_system()) || '-' || oid "
        "FROM pg_database WHERE datname = current_database()"
    )
    with database.read() as connection:
        return hashlib.sha256(str(connection.scalar(query)).encode()).hexdigest()[:8]
