"""Publishing of tasks: their content, order and number at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace

import psycopg
import pytest
import sqlalchemy as sa

from tests.store.test_submission import submit_cases as submitted
from tests.support.databases import postgres_database
from wtb.core.ids import new_id
from wtb.store.access import sessions
from wtb.store.access.sessions import Quota
from wtb.store.database import Database
from wtb.store.process_identity import ProcessIdentity, WorkerIdentity
from wtb.store.runs import leases, publishing
from wtb.store.runs.publishing import (
    TURN_SILENT_S,
    TURN_WAIT_S,
    WINDOW,
    cluster_of,
    has_published,
    measure,
    next_published,
    publish,
    publish_again,
    published_ids,
)
from wtb.store.runs.queue import ClaimOutcome, Slot, claim_tasks, record_refused
from wtb.store.tables.schema import executions, sweeps, working


@pytest.fixture
def database(fresh_postgres_url: str) -> Iterator[Database]:
    new_database = Database(fresh_postgres_url)
    new_database.prepare()
    yield new_database
    new_database.close()


def worker(database: Database, slots: int, queues: Sequence[str] = ("",)) -> Slot:
    """Register a live worker, and return its first slot."""
    process = ProcessIdentity(new_id(), "w", "b", 9, 0.0)
    runner = WorkerIdentity(**asdict(process), worker=f"w{slots}", queues=[*queues], slots=slots, version="")
    leases.register(database, runner)
    return Slot(runner.id, 0, tuple(queues))


def change(database: Database, sweep: str, **values: object) -> None:
    database.execute(sweeps.update().where(sweeps.c.id == sweep).values(**values))


def sizes(database: Database, sweep: str) -> list[int]:
    """Return the number of executions of each task of a sweep."""
    count = sa.select(sa.func.count()).where(executions.c.sweep_id == sweep, executions.c.task_id.is_not(None))
    return sorted(database.scalars(count.group_by(executions.c.task_id)))


def test_as_many_tasks_wait_as_slots_could_take_twice_and_never_fewer_than_an_autoscaler_needs(
    database: Database,
) -> None:
    submitted(database, "s1", cases=100)
    assert len(publish(database)) == WINDOW
    assert publish(database) == []
    worker(database, 20)
    assert len(publish(database)) == 40 - WINDOW


def test_the_first_task_of_a_sweep_is_a_case_and_later_ones_have_as_many_as_are_quick(database: Database) -> None:
    submitted(database, "s1", cases=1000)
    slot = worker(database, 2)
    first, *_ = publish(database)
    assert (first.size, len(first.cases)) == (1, 1)
    assert claim_tasks(database, {slot: first.id}, 30.0)[slot].outcome is ClaimOutcome.CLAIMED
    measure(database, "s1", 0.1, 10)
    (task,) = publish(database)
    assert task.size == 75
    assert len(task.cases) == 2, "of many cases the first and the last one are shown"
    measure(database, "s1", 500.0, 1)
    assert claim_tasks(database, {slot: task.id}, 30.0)[slot].outcome is ClaimOutcome.CLAIMED
    (task,) = publish(database)
    assert task.size == 1


def test_the_last_cases_are_spread_over_all_slots(database: Database) -> None:
    submitted(database, "s1", cases=16)
    worker(database, 4)
    change(database, "s1", root_s=0.001)
    publish(database)
    assert sizes(database, "s1") == 8 * [2]


def test_an_execution_that_was_lost_with_a_worker_is_alone_in_its_task(database: Database) -> None:
    submitted(database, "s1", cases=16)
    worker(database, 4)
    change(database, "s1", root_s=0.001)
    database.execute(executions.update().where(executions.c.case_number == 7).values(losses=1))
    tasks = publish(database)
    assert [task.size for task in tasks if "7" in task.cases] == [1]
    assert sizes(database, "s1") == [1, 1, *([2] * 7)]


def test_of_what_a_quota_leaves_room_for_the_sweep_of_the_highest_priority_has_all(database: Database) -> None:
    sessions.create(database, "small", Quota(node_runs=2))
    for sweep in ("s1", "s2"):
        submitted(database, sweep, "small", cases=4)
    change(database, "s2", priority=5)
    assert [task.sweep_id for task in publish(database)] == ["s2", "s2"]


def test_sweeps_of_one_priority_share_the_window_and_higher_ones_do_not_wait_for_it(database: Database) -> None:
    submitted(database, "s1", cases=50)
    assert len(publish(database)) == WINDOW
    submitted(database, "s2", cases=50)
    assert publish(database) == [], "the window is full"
    change(database, "s2", priority=5)
    assert {task.sweep_id for task in publish(database)} == {"s2"}
    slot = worker(database, 1)
    low = published_ids(database, "s1")[0]
    assert claim_tasks(database, {slot: low}, 30.0)[slot].outcome is ClaimOutcome.OUTRANKED
    assert next_published(database, [""]) in published_ids(database, "s2")


def test_two_sweeps_that_begin_together_get_the_same_number_of_tasks(database: Database) -> None:
    for sweep in ("s1", "s2"):
        submitted(database, sweep, cases=50)
    tasks = publish(database)
    assert [sum(task.sweep_id == sweep for task in tasks) for sweep in ("s1", "s2")] == [WINDOW / 2, WINDOW / 2]


def test_a_task_is_claimed_once_and_released_executions_are_published_as_another_one(database: Database) -> None:
    submitted(database, "s1", cases=1)
    slot = worker(database, 2)
    (task,) = publish(database)
    (row,) = claim_tasks(database, {slot: task.id}, 30.0)[slot].rows
    assert row.task_id == task.id
    assert claim_tasks(database, {slot: task.id}, 30.0)[slot].outcome is ClaimOutcome.GONE
    leases.release_all(database, slot.runner_id)
    assert claim_tasks(database, {slot: task.id}, 30.0)[slot].outcome is ClaimOutcome.GONE
    (next_task,) = publish(database)
    assert next_task.id != task.id
    assert claim_tasks(database, {slot: next_task.id}, 30.0)[slot].outcome is ClaimOutcome.CLAIMED


def test_slots_that_claim_together_get_what_each_would_have_got_alone(database: Database) -> None:
    sessions.create(database, "small", Quota(node_runs=2))
    for sweep, session, count in (("s1", "default", 3), ("s2", "small", 2), ("s3", "default", 1), ("s4", "default", 1)):
        submitted(database, sweep, session, cases=count)
    first = worker(database, 8)
    slots = [replace(first, number=number) for number in range(8)]
    publish(database)
    small = sessions.find_session(database, "small")
    sessions.change(database, small.id, {"node_runs": 1})
    leases.move_sweep(database, "s3", "running")
    leases.pause(database, "s3", "for now", by="me")
    tasks = [task for sweep in ("s1", "s2", "s3", "s4") for task in sorted(published_ids(database, sweep))]
    task_by_slot = dict(zip(slots, [*tasks, tasks[0]], strict=True))  # the message of the first one came twice
    claims = claim_tasks(database, task_by_slot, 30.0, refused=["s4"])
    names = [claims[slot].outcome.name for slot in slots]
    assert sorted([names[0], names[7]]) == ["CLAIMED", "GONE"]
    assert names[1:3] == ["CLAIMED", "CLAIMED"]
    assert sorted(names[3:5]) == ["CLAIMED", "WITHDRAWN"], "the quota of their session leaves room for one"
    assert names[5:7] == ["WITHDRAWN", "REFUSED"]
    rows = {slot: row for slot, claim in claims.items() for row in claim.rows}
    assert sorted(row.sweep_id for row in rows.values()) == ["s1", "s1", "s1", "s2"]
    assert all(task_by_slot[slot] == row.task_id for slot, row in rows.items())
    busy = database.tuples(sa.select(working.c.slot, working.c.execution_id))
    assert sorted(busy) == sorted((slot.number, row.id) for slot, row in rows.items())


def test_a_task_whose_message_was_lost_is_sent_again_under_its_id_if_a_slot_is_free(database: Database) -> None:
    submitted(database, "s1", cases=1)
    (task,) = publish(database)
    assert publish_again(database, 0.0) == [], "no slot is free"
    slot = worker(database, 1)
    assert publish_again(database, 60.0) == []
    assert publish_again(database, 0.0) == [task]
    claim_tasks(database, {slot: task.id}, 30.0)
    assert publish_again(database, 0.0) == []


def test_nothing_is_published_that_every_live_worker_rejects(database: Database) -> None:
    submitted(database, "s1", cases=4)
    first, second = worker(database, 1), worker(database, 1)
    record_refused(database, first.runner_id, ["s1"])
    (some, *_) = publish(database)
    assert claim_tasks(database, {first: some.id}, 30.0, refused=["s1"])[first].outcome is ClaimOutcome.REFUSED
    assert claim_tasks(database, {second: some.id}, 30.0)[second].outcome is ClaimOutcome.CLAIMED
    submitted(database, "s2", cases=4)
    for runner in (first, second):
        record_refused(database, runner.runner_id, ["s2"])
    assert publish(database) == []
    record_refused(database, second.runner_id, [])
    assert len(publish(database)) == 4


def test_a_quota_of_node_runs_bounds_the_tasks_that_wait(database: Database) -> None:
    sessions.create(database, "small", Quota(node_runs=3))
    submitted(database, "s1", "small", cases=40)
    assert len(publish(database)) == 3
    assert publish(database) == []


def test_a_task_of_a_paused_sweep_is_withdrawn_and_published_again_when_it_continues(database: Database) -> None:
    submitted(database, "s1", cases=1)
    slot = worker(database, 1)
    (task,) = publish(database)
    leases.move_sweep(database, "s1", "running")
    leases.pause(database, "s1", "for now", by="me")
    assert claim_tasks(database, {slot: task.id}, 30.0)[slot].outcome is ClaimOutcome.WITHDRAWN
    assert not has_published(database, [""])
    leases.move_sweep(database, "s1", "running")
    assert len(publish(database)) == 1


def test_databases_on_one_server_have_clusters_of_their_own(
    database: Database, postgres_url: str, postgres_admin: psycopg.Connection
) -> None:
    url = database.url.render_as_string(hide_password=False)
    with closing(Database(url)) as same:
        assert cluster_of(same) == cluster_of(database)
    with postgres_database(postgres_url, postgres_admin) as other_url, closing(Database(other_url)) as other:
        assert cluster_of(other) != cluster_of(database)


def test_a_process_that_was_stopped_in_its_turn_holds_up_nobody_for_long(database: Database) -> None:
    """Its session is ended; until then others leave publishing to a later round and do the rest of theirs."""
    submitted(database, "s1", cases=4)
    with database.engine.connect() as stopped:
        publishing._take_turn(stopped)
        began = time.monotonic()
        assert publish(database) == publish_again(database, 0.0) == []
        assert time.monotonic() - began < 2 * TURN_WAIT_S + 1.0
        while not (tasks := publish(database)):
            assert time.monotonic() - began < TURN_SILENT_S + TURN_WAIT_S + 1.0
        assert time.monotonic() - began > TURN_SILENT_S - 0.1
        with pytest.raises(sa.exc.DBAPIError, match="idle-in-transaction"):
            stopped.scalar(sa.select(1))
    assert len(tasks) == 4
