"""A worker can lose its work at any moment, and continues."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.support.waiting import until
from wtb.core.stop import Stop
from wtb.core.work_record import TaskRecord
from wtb.execution.journal import Lost
from wtb.execution.runtime.thread_pool import Job
from wtb.store.database import Database
from wtb.store.process_identity import WorkerIdentity, identity
from wtb.store.runs import leases
from wtb.store.runs.queue import DEFAULT_QUEUE, demand
from wtb_workers import session as session_module
from wtb_workers.process import TaskState, Unfinished, WorkerProcess
from wtb_workers.session import WorkerSession
from wtb_workers.slots import Combined, Slots, TaskRun, WaitingWork


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
    session._waiting, session._runs = WaitingWork(), {}
    session._waiting.add(assignment, [SimpleNamespace(id="e", record=TaskRecord())])  # type: ignore[arg-type, list-item]
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
    assert [session.apart for session in used] == [True, False, True, False]
    assert len(session._assignments) == 2


def test_a_slot_is_lent_without_asking_the_database_where_the_job_is_taken_already() -> None:
    session = WorkerSession.__new__(WorkerSession)  # it has no database
    session._slots = Slots(1)
    number = session._slots.acquire()
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


def test_waiting_work_of_one_sweep_is_started_on_all_free_slots_at_once() -> None:
    """The work of another sweep comes next, because a transaction marks the slots of one sweep."""
    first, second = object(), object()
    waiting = WaitingWork()
    waiting.add(first, [3, 2, 1])  # type: ignore[arg-type, list-item]
    waiting.add(second, [4])  # type: ignore[arg-type, list-item]
    assert [number for _, number in waiting.pop_oldest(2)] == [1, 2]
    assert [number for _, number in waiting.pop_oldest(2)] == [3]
    assert [number for _, number in waiting.pop_oldest(2)] == [4]
    slots = Slots(3)
    assert len(slots.acquire_many(2)) == 2
    assert len(slots.acquire_many(2)) == 1
    assert slots.acquire_many(2) == []


def test_a_message_that_finds_all_slots_lent_goes_back_to_its_queue_within_a_second() -> None:
    process = WorkerProcess.__new__(WorkerProcess)
    process._closing, process._slots = threading.Event(), Slots(0)
    process._session = SimpleNamespace(ended=False)  # type: ignore[assignment]
    began = time.monotonic()
    with pytest.raises(Unfinished) as raised:
        process.execute("t1")
    assert raised.value.state is TaskState.REQUEUED
    assert time.monotonic() - began < 1


def test_a_task_ends_when_the_last_of_its_executions_has_wherever_it_ran() -> None:
    run = TaskRun("t1", "s", executions=1, roots=1)
    waiting = [1]
    assert run.next(lambda: waiting.pop() if waiting else None) == 1
    run.add(1)  # it has forked, and the fork was lent to another slot
    run.add(-1)
    done: list[object] = []
    owner = threading.Thread(target=lambda: done.append(run.next(lambda: None)))
    owner.start()
    owner.join(0.1)
    assert owner.is_alive(), "a branch of it runs elsewhere"
    run.add(-1)
    owner.join(10)
    assert done == [None]


def test_what_threads_ask_for_while_a_call_runs_is_answered_by_the_next_one() -> None:
    has_started, may_end = threading.Event(), threading.Event()
    calls: list[int] = []

    def call(numbers: Mapping[str, int]) -> dict[str, int]:
        calls.append(len(numbers))
        has_started.set()
        assert may_end.wait(30)
        if "broken" in numbers:
            raise ValueError("broken")
        return {key: 2 * number for key, number in numbers.items()}

    combined = Combined(call)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(combined.ask, "first", 1)
        assert has_started.wait(30)
        answers = [pool.submit(combined.ask, str(number), number) for number in range(5)]
        until(lambda: len(combined._pending) == 5, "all to wait for the next call", pause=0.001)
        may_end.set()
        assert first.result(30) == 2
        assert [answer.result(30) for answer in answers] == [0, 2, 4, 6, 8]
        assert calls == [1, 5]
        with pytest.raises(ValueError, match="broken"):
            combined.ask("broken", 1)
        assert combined.ask("later", 4) == 8


def test_a_task_records_how_long_its_roots_take_only_if_that_has_changed() -> None:
    for before, seconds, is_new in ((None, 3.0, True), (1.0, 3.3, False), (1.0, 4.0, True), (1.0, 2.0, True)):
        run = TaskRun("t", "s", executions=3, roots=3, root_s=before)
        run.spend(seconds)
        assert run.has_new_duration is is_new
        run.given_up = "stopped"
        assert not run.has_new_duration


def test_the_slot_of_a_task_takes_its_own_executions_the_deepest_first() -> None:
    assignment = object()
    waiting = WaitingWork()
    own, other = TaskRecord("own"), TaskRecord("other")
    executions = [SimpleNamespace(record=record, id=id) for record, id in ((own, 1), (other, 2), (own, 3))]
    for execution in executions:
        waiting.add(assignment, [execution])  # type: ignore[arg-type, list-item]
    works = [waiting.pop("own"), waiting.pop("own"), waiting.pop("own")]
    assert [None if work is None else work[1].id for work in works] == [3, 1, None]
    assert len(waiting) == 1
