"""The slots of a worker process, the tasks that run on them, and the executions that wait in it for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from wtb.core.work_record import TaskRecord
from wtb.execution.execution import Execution
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb_workers.assignment import SweepAssignment

Work = tuple[SweepAssignment, Execution]
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

CHANGED = 1.25  # times the known duration: from there on another one is recorded
_LOOK_S = 1.0  # between two looks of a task for work, should a wake-up be missed


@dataclass(frozen=True)
class Worker:
    """Settings of a worker. `name` is its name in the monitor of the queue."""

    name: str
    slots: int
    queues: tuple[str, ...]


class Pace:
    """The pace of a repeated query, whose share of the time is bounded. Only `timed` may be called by any thread."""

    _INTERVAL_S = 0.01  # at least, between two
    _TIME_SHARE = 0.1  # of the time, at most

    def __init__(self) -> None:
        self._next_at = 0.0

    def is_due(self) -> bool:
        """Return whether the query is due; the next one then waits until `timed` has ended."""
        if time.monotonic() < self._next_at:
            return False
        self._next_at = float("inf")
        return True

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Make the query."""
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._next_at = ended + max(self._INTERVAL_S, (ended - began) / self._TIME_SHARE)


class Slots:
    """The numbers of a process's free slots."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._lock = threading.Condition()

    def __len__(self) -> int:
        return len(self._free)

    def acquire(self, patience_s: float = 0.0) -> int | None:
        """Return a free slot, which is no longer free; None if none becomes free within `patience_s` seconds."""
        with self._lock:
            self._lock.wait_for(lambda: self._free, patience_s)
            return self._free.pop() if self._free else None

    def acquire_many(self, limit: int) -> list[int]:
        """Return free slots, at most `limit`, which are no longer free."""
        with self._lock:
            return [self._free.pop() for _ in range(min(limit, len(self._free)))]

    def release(self, number: int) -> None:
        """Make a slot free again."""
        with self._lock:
            self._free.append(number)
            self._lock.notify()


class Combined(Generic[K, V, A]):
    """Combines simultaneous requests of several threads into one call: while one runs, the next is collected.

    `call` takes requests by key, and returns the answer to each.
    """

    def __init__(self, call: Callable[[Mapping[K, V]], Mapping[K, A]]) -> None:
        self._call = call
        self._pending: list[tuple[K, V, Future[A]]] = []
        self._turn = threading.Lock()

    def ask(self, key: K, request: V) -> A:
        """Return the answer to a request. Raises what the call raises."""
        answer: Future[A] = Future()
        self._pending.append((key, request, answer))
        with self._turn:
            # Another thread may have made the call for this request while this one waited for its turn.
            if not answer.done():
                self._answer()
        return answer.result()

    def _answer(self) -> None:
        """Make one call for all requests so far."""
        count = len(self._pending)
        batch, self._pending[:count] = self._pending[:count], []
        try:
            answers = self._call({key: request for key, request, _ in batch})
        except BaseException as error:  # noqa: BLE001 - raised where it is asked for
            for _, _, answer in batch:
                answer.set_exception(error)
        else:
            for key, _, answer in batch:
                answer.set_result(answers[key])


class WaitingWork:
    """A queue of executions, each with its assignment. Threads may share it."""

    def __init__(self) -> None:
        self._work: deque[Work] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._work)

    def add(self, assignment: SweepAssignment, executions: Sequence[Execution]) -> None:
        """Add executions, so that `pop` returns the first of them next."""
        with self._lock:
            self._work.extend((assignment, execution) for execution in reversed(executions))

    def pop(self, task_id: str | None) -> Work | None:
        """Take the newest work of a task: depth first, so that few branches of a tree are open at a time."""
        with self._lock:
            for place in range(len(self._work) - 1, -1, -1):
                if self._work[place][1].record.id == task_id:
                    work = self._work[place]
                    del self._work[place]
                    return work
            return None

    def pop_oldest_of(self, assignment: SweepAssignment) -> Work | None:
        """Take the oldest work of an assignment."""
        return next(iter(self.remove(lambda work: work[0] is assignment, 1)), None)

    def pop_oldest(self, limit: int) -> list[Work]:
        """Take the oldest work, at most `limit` of one assignment: most of a tree is still below it."""
        with self._lock:
            popped: list[Work] = []
            while self._work and len(popped) < limit and (not popped or self._work[0][0] is popped[0][0]):
                popped.append(self._work.popleft())
            return popped

    def remove(self, matches: Callable[[Work], bool], limit: int | None = None) -> list[Work]:
        """Take all work that matches, the oldest first, or at most `limit` of it."""
        with self._lock:
            removed = [work for work in self._work if matches(work)][:limit]
            for work in removed:
                self._work.remove(work)
        return removed

    def remove_of_queue(self, queue: str, limit: int) -> list[Work]:
        """Take work of one queue, the oldest first, at most `limit` of it."""
        return self.remove(lambda work: (work[1].queue or DEFAULT_QUEUE) == queue, limit)

    def executions_of(self, assignment: SweepAssignment) -> list[Execution]:
        with self._lock:
            return [execution for owner, execution in self._work if owner is assignment]


class TaskRun:
    """Counts the executions of a task that this process has. Threads share it.

    Attributes:
        record: Their outcomes so far.
        sweep_id: Their sweep.
        roots: The number of them that had not begun when they were claimed.
        root_s: Measured seconds of one of these with its tree; None if not measured yet.
        seconds: The time that slots have spent on them.
        given_up: The reason for which some were released without a request from other slots; None if none were.
        is_cancelled: Whether their sweep was cancelled.
    """

    def __init__(self, task_id: str, sweep_id: str, executions: int, roots: int, root_s: float | None = None) -> None:
        self.record = TaskRecord(task_id)
        self.sweep_id = sweep_id
        self.roots = roots
        self.root_s = root_s
        self.seconds = 0.0
        self.given_up: str | None = None
        self.is_cancelled = False
        self._open = executions
        self._changed = threading.Condition()

    def add(self, count: int) -> None:
        """Count executions that were taken (or, with a negative count, that ended or were released)."""
        with self._changed:
            self._open += count
            self._changed.notify_all()

    def spend(self, seconds: float) -> None:
        """Count time of a slot."""
        with self._changed:
            self.seconds += seconds

    @property
    def has_new_duration(self) -> bool:
        """True if the time of its roots differs from the recorded one, which decides the size of the next tasks."""
        if self.given_up is not None or not self.roots:
            return False
        return self.root_s is None or not 1 / CHANGED <= self.seconds / self.roots / self.root_s <= CHANGED

    def next(self, take: Callable[[], T | None]) -> T | None:
        """Return what `take` returns, as soon as it is not None; None once all executions have ended."""
        with self._changed:
            while self._open > 0:
                if (work := take()) is not None:
                    return work
                self._changed.wait(_LOOK_S)
            return None
