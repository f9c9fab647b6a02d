"""Memory of node processes counts against the quota of a session while their runners live."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.distributed.query_plans import claim_next
from tests.store.test_submission import submit_cases
from tests.support.inputs import name_in_errors
from wtb.core.errors import InputError
from wtb.core.ids import new_id
from wtb.store.access import sessions
from wtb.store.access.sessions import Quota
from wtb.store.access.usage import Allowed, Memory, memory_of_others, memory_quota, memory_used, record_memory, usage
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.process_identity import ProcessIdentity, WorkerIdentity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases, slots
from wtb.store.runs.publishing import publish
from wtb.store.runs.queue import ClaimOutcome, Slot, claim_tasks, mark_busy
from wtb.store.tables.schema import events, executions, now, runners, session_memory

GB = 10**9
FRESH_S = 30.0


@pytest.fixture
def small(database: Database) -> str:
    """The id of a session that may use 4 GB."""
    return str(sessions.create(database, "small", Quota(memory=4 * GB)).id)


def started(database: Database, session: str, host: str = "here") -> str:
    """Register a runner of a session. Returns its id."""
    identity = ProcessIdentity(new_id(), host, "b", 7, 0.0)
    slots.register_runner(database, identity, session, 1)
    return identity.id


def used(database: Database, session: str | None = None) -> dict[str, int]:
    with database.read() as connection:
        return memory_used(connection, session)


def test_a_session_has_the_memory_quota_that_it_was_given_last(database: Database, small: str) -> None:
    assert memory_quota(database, small) == Allowed("small", 4 * GB)
    assert memory_quota(database, DEFAULT_SESSION) is None
    assert memory_quota(database, "gone") is None
    sessions.change(database, small, {"memory": GB, "disk": 5})
    assert memory_quota(database, small) == Allowed("small", GB)
    sessions.change(database, small, {"memory": None})
    assert memory_quota(database, small) is None
    assert sessions.quota_of(database, small) == Quota(disk=5)


def test_what_is_no_number_of_bytes_is_refused(database: Database, small: str) -> None:
    wrong_sizes: list[Any] = [0, -1, 2**63, 1.5, True, "4GB", float("nan")]
    for wrong in wrong_sizes:
        with name_in_errors(wrong), pytest.raises(InputError, match=r"^memory is .*; expected "):
            Quota(memory=wrong)
        with name_in_errors(wrong), pytest.raises(InputError):
            sessions.change(database, small, {"memory": wrong})
    assert memory_quota(database, small) == Allowed("small", 4 * GB)


def test_all_runners_of_a_session_count_together(database: Database, small: str) -> None:
    other = str(sessions.create(database, "other").id)
    first, second = started(database, small), started(database, small, "there")
    record_memory(database, first, small, Memory(GB, GB))
    record_memory(database, second, small, Memory(2 * GB, GB // 2))
    record_memory(database, second, other, Memory(5))
    assert used(database) == {small: 3 * GB, other: 5}
    assert used(database, small) == {small: 3 * GB}
    assert [usage(database, id).memory for id in (small, DEFAULT_SESSION)] == [3 * GB, None]
    assert memory_of_others(database, small, first) == Memory(2 * GB, GB // 2)
    assert memory_of_others(database, small, second) == Memory(GB, GB)
    record_memory(database, second, small, Memory(7, 3))
    assert memory_of_others(database, small, first) == Memory(7, 3)
    record_memory(database, second, small, None)
    assert memory_of_others(database, small, first) == Memory()
    assert used(database) == {small: GB, other: 5}


def test_a_runner_that_has_ended_died_or_measures_no_more_counts_no_more(database: Database, small: str) -> None:
    ended, silent, stuck, dead = (started(database, small, host) for host in ("a", "b", "c", "d"))
    for runner in (ended, silent, stuck, dead):
        record_memory(database, runner, small, Memory(GB))
    assert used(database) == {small: 4 * GB}
    slots.end_runner(database, ended)
    assert used(database) == {small: 3 * GB}
    database.execute(runners.update().where(runners.c.id == silent).values(seen_at=now() - FRESH_S - 1))
    assert used(database) == {small: 2 * GB}
    measured = session_memory.update().where(session_memory.c.runner_id == stuck)
    database.execute(measured.values(measured_at=now() - FRESH_S - 1))
    assert used(database) == {small: GB}
    assert memory_of_others(database, small, "me", alive=lambda owner: owner.host != "d") == Memory()
    record_memory(database, stuck, small, Memory(GB))
    assert used(database) == {small: 2 * GB}


def test_impossible_sizes_are_refused_by_the_database(database: Database, small: str) -> None:
    runner = started(database, small)
    for wrong in (Memory(-1, 0), Memory(0, -1)):
        with pytest.raises(Exception, match=r"(?i)check constraint|sizes"):
            record_memory(database, runner, small, wrong)
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        record_memory(database, "nobody", small, Memory(1))


def test_what_is_used_goes_with_the_runner_and_with_the_session(database: Database, small: str) -> None:
    other = str(sessions.create(database, "other").id)
    runner = started(database, small)
    record_memory(database, runner, other, Memory(GB))
    record_memory(database, runner, small, Memory(GB))
    database.execute(sa.text("DELETE FROM sessions WHERE name = 'other'"))
    assert used(database) == {small: GB}
    database.execute(runners.delete().where(runners.c.id == runner))
    assert used(database) == {}


def test_no_worker_claims_for_a_session_above_its_quota(database: Database, small: str) -> None:
    if database.is_sqlite:
        pytest.skip("workers need PostgreSQL")
    submit_cases(database, "s1", "small")
    process = asdict(ProcessIdentity(new_id(), "w", "b", 9, 0.0))
    worker = WorkerIdentity(**process, worker="one", queues=[""], slots=2, version="")
    leases.register(database, worker)
    runner = started(database, small)
    slot = Slot(worker.id, 0, ("",))
    published = publish(database)[0].id
    record_memory(database, runner, small, Memory(4 * GB + 1))
    assert claim_tasks(database, {slot: published}, 30.0)[slot].outcome is ClaimOutcome.WITHDRAWN
    assert publish(database) == [], "there is work, and not for now"
    with database.read() as connection:
        (first, _) = connection.scalars(sa.select(executions.c.id).order_by(executions.c.id)).all()
    assert mark_busy(database, {slot: first}, "s1") == []

    submit_cases(database, "s2")
    claimed = claim_next(database, slot)
    assert {row.sweep_id for row in claimed} == {"s2"}, "other sessions are not held up"

    record_memory(database, runner, small, Memory(4 * GB))
    while claimed and claimed[0].sweep_id == "s2":
        claimed = claim_next(database, Slot(worker.id, 1, ("",)))
    assert [row.sweep_id for row in claimed] == ["s1"], "one at a time, since each may need memory"


def test_why_a_sweep_waits_for_memory_is_its_reason_and_an_event(database: Database, small: str) -> None:
    submit_cases(database, "s1", "small")
    sweep = find_sweep(database, "s1")
    leases.record_memory_wait(database, sweep, "memory quota of session 'small' reached: ...")
    assert find_sweep(database, "s1").reason == "memory quota of session 'small' reached: ..."
    leases.record_memory_wait(database, sweep, None)
    assert find_sweep(database, "s1").reason is None
    leases.move_sweep(database, "s1", "running")
    assert leases.pause(database, "s1", "a person", by="me")
    leases.record_memory_wait(database, sweep, "memory quota")
    assert find_sweep(database, "s1").reason == "a person", "a paused sweep waits for somebody, not for memory"
    with database.read() as connection:
        kinds = connection.scalars(sa.select(events.c.kind).where(events.c.kind.like("sweep.memory%"))).all()
    assert sorted(kinds) == ["sweep.memory_full", "sweep.memory_has_room"]
