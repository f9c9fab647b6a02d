"""What a worker has in hand may be taken away from it at any moment: it goes on."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from wtb.core.stop import Stop
from wtb.execution.journal import Lost
from wtb.execution.runtime.thread_pool import Job
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


def test_a_slot_is_lent_without_asking_the_database_where_the_job_is_taken_already() -> None:
    session = WorkerSession.__new__(WorkerSession)  # it has no database
    session._slots = Slots(1)
    number = session._slots.take()
    assert number is not None
    job = Job(lambda: None)
    job.run()
    session._run_lent(number, SimpleNamespace(), SimpleNamespace(), job)  # type: ignore[arg-type]
    assert len(session._slots) == 1
