"""What a worker has in hand may be taken away from it at any moment: it goes on."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import sqlalchemy as sa

from benchmarks.distributed.query_plans import fill
from wtb.core.stop import Stop
from wtb.execution.journal import Lost
from wtb.execution.runtime.thread_pool import Job
from wtb.store.database import Database
from wtb.store.process_identity import WorkerIdentity, identity
from wtb.store.runs import leases, queue
from wtb.store.runs.queue import DEFAULT_QUEUE, claim_for, demand
from wtb_workers import session as session_module
from wtb_workers.process import WorkerProcess
from wtb_workers.session import WorkerSession
from wtb_workers.slots import Slots, WaitingWork


class TakenAway:
    """A share in a sweep that was cancelled in the moment when one of its executions forked."""

    def __init__(self) -> None:
        self.runner = self
        self.stop = Stop()
        self.uses = 1

    def release(self, execution: Any, reason: str) -> None:
        raise Lost("execution e was taken over by another runner")

    def use(self, count: int) -> None:
        self.uses += count

    def is_idle(self) -> bool:
        return self.uses == 0


def test_a_worker_outlives_a_cancelled_sweep_whose_executions_wait_in_it() -> None:
    session = WorkerSession.__new__(WorkerSession)
    session._lock = threading.RLock()
    assignment = TakenAway()
    session._waiting = WaitingWork()
    session._waiting.add(assignment, [SimpleNamespace(id="e")])  # type: ignore[arg-type, list-item]
    session._apply_decision(assignment, "cancelled", "no longer wanted")  # type: ignore[arg-type]
    assert assignment.uses == 0
    assert not session._waiting


def test_what_is_above_suspicion_does_not_run_as_suspects_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that begins with what was left by one that was killed commits each step of that, and of that only."""

    class Opened(TakenAway):
        sweep_id = "s"

        def __init__(self, *_: Any, apart: bool) -> None:
            super().__init__()
            self.apart = apart

        def knows(self, rows: Any) -> bool:
            return True

    monkeypatch.setattr(session_module, "SweepAssignment", Opened)
    monkeypatch.setattr(session_module, "find_sweep", MagicMock())
    session = WorkerSession.__new__(WorkerSession)
    session._opening, session._lock = threading.Lock(), threading.RLock()
    session.database = session.codes = MagicMock()
    session._assignments = []
    used = [session._use_assignment("s", [], apart=apart) for apart in (True, False, True, False)]
    assert [one.apart for one in used] == [True, False, True, False]
    assert len(session._assignments) == 2


def test_a_slot_is_lent_without_asking_the_database_where_the_job_is_taken_already() -> None:
    session = WorkerSession.__new__(WorkerSession)  # it has no database
    session._slots = Slots(1)
    number = session._slots.take()
    assert number is not None
    job = Job(lambda: None)
    job.run()
    session._run_lent(number, SimpleNamespace(), SimpleNamespace(), job)  # type: ignore[arg-type]
    assert len(session._slots) == 1


def test_work_is_released_for_free_slots_of_other_workers_only(fresh_postgres_url: str) -> None:
    """A worker wakes its own free slots, which the database counts as free until they have begun."""
    with closing(Database(fresh_postgres_url)) as database:
        database.prepare()
        own, other = (
            WorkerIdentity(**asdict(identity()), worker=name, queues=[DEFAULT_QUEUE], slots=slots, version="")
            for name, slots in (("a", 4), ("b", 2))
        )
        for runner in (own, other):
            leases.register(database, runner)
        assert demand(database)[DEFAULT_QUEUE].free == 6
        assert demand(database, elsewhere_than=own.id)[DEFAULT_QUEUE].free == 2


@pytest.mark.parametrize(("others", "claimed"), [(0, 8), (8, 4)], ids=["alone", "beside another worker"])
@pytest.mark.parametrize("by_message", [False, True])
def test_one_claim_is_for_all_free_slots_of_a_worker(
    fresh_postgres_url: str, tmp_path: Path, others: int, claimed: int, by_message: bool
) -> None:
    with closing(Database(fresh_postgres_url)) as database:
        filled = fill(database, tmp_path, finished=10, pending=8)  # for a worker with two slots
        rest = WorkerIdentity(**asdict(identity()), worker="more", queues=[DEFAULT_QUEUE], slots=6 + others, version="")
        leases.register(database, rest)
        wanted = database.scalar(sa.text("SELECT max(id) FROM executions WHERE status = 'pending'"))
        rows = claim_for(database, filled.slot, 30.0, wanted=wanted if by_message else None, free=8)
        assert rows is not None
        assert len(rows) == claimed
        assert wanted in {row.id for row in rows} or not by_message


def test_slots_that_become_free_at_the_same_time_ask_once_whether_anything_is_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claims, may_answer = threading.Semaphore(0), threading.Event()
    asked: list[int] = []

    def claim(database: Database, slot: queue.Slot, *rest: Any, free: int, **more: Any) -> None:
        asked.append(free)
        claims.release()
        may_answer.wait(10)

    monkeypatch.setattr(queue, "claim_for", claim)
    session = WorkerSession.__new__(WorkerSession)
    session.database = session.runner = session._refusals = session._home = MagicMock()
    session.stopping, session.queues, session._nothing_at, session._works_on = None, (DEFAULT_QUEUE,), 0.0, {}
    session._slots, session._waiting, session._lock = Slots(8), WaitingWork(), threading.RLock()
    session._next_demand_at, session._claiming, session._asking = 0.0, Line(), 0
    for _ in range(8):
        session._slots.take()
    slots = [threading.Thread(target=session.next, args=(number, None)) for number in range(8)]
    slots[0].start()
    assert claims.acquire(timeout=10)  # it has begun to look: it may miss what those behind it would find
    for slot in slots[1:]:
        slot.start()
    session._claiming.wait_for(8)
    may_answer.set()
    for slot in slots:
        slot.join(10)
    assert len(asked) == 2
    assert asked[1] == 7  # slots that wait for it


class Line:
    """A lock that says how many have come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._come = threading.Semaphore(0)

    def __enter__(self) -> None:
        self._come.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self._come.acquire(timeout=10)


def test_waiting_work_of_one_sweep_is_started_on_all_free_slots_at_once() -> None:
    """What is of another sweep comes next: a transaction marks the slots of one."""
    first, second = object(), object()
    waiting = WaitingWork()
    waiting.add(first, [3, 2, 1])  # type: ignore[arg-type, list-item]
    waiting.add(second, [4])  # type: ignore[arg-type, list-item]
    assert [number for _, number in waiting.pop_oldest(2)] == [1, 2]
    assert [number for _, number in waiting.pop_oldest(2)] == [3]
    assert [number for _, number in waiting.pop_oldest(2)] == [4]
    slots = Slots(3)
    assert len(slots.take_many(2)) == 2
    assert len(slots.take_many(2)) == 1
    assert slots.take_many(2) == []


def test_of_messages_that_find_all_slots_busy_one_is_passed_on() -> None:
    """Were each sent again, they would come back and keep the worker busy with themselves."""
    began, may_end = threading.Semaphore(0), threading.Event()

    def wake_slot() -> None:
        began.release()
        may_end.wait(10)

    process = WorkerProcess.__new__(WorkerProcess)
    process._passing_on, process._closing = threading.Lock(), threading.Event()
    process._slots = Slots(0)
    process._session = SimpleNamespace(ended=False, wake_slot=wake_slot)  # type: ignore[assignment]
    first = threading.Thread(target=process.execute, args=("e1",))
    first.start()
    assert began.acquire(timeout=10)
    assert process.execute("e2") == {"ended": "nothing to do", "executions": 0}
    may_end.set()
    first.join(10)
    assert not began.acquire(blocking=False)
