"""A task while it runs in this process: from its claim until the last of its executions has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from wtb.execution.task_record import TaskRecord

T = TypeVar("T")
_LOOK_S = 1.0  # between two looks for work, should a wake-up be missed


class TaskRun:
    """Counts the executions of a task that this process has. Threads share it.

    Attributes:
        record: What came of them so far.
        sweep_id: Their sweep.
        roots: How many of them had not begun when they were claimed.
        seconds: That slots have spent on them.
        given_up: Why some were released although nobody asked for them; None if that did not happen.
        is_cancelled: Whether their sweep was cancelled.
    """

    def __init__(self, task_id: str, sweep_id: str, executions: int, roots: int) -> None:
        self.record = TaskRecord(task_id)
        self.sweep_id = sweep_id
        self.roots = roots
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

    def next(self, take: Callable[[], T | None]) -> T | None:
        """Return what `take` returns, as soon as it is not None; None once all executions have ended."""
        with self._changed:
            while self._open > 0:
                if (work := take()) is not None:
                    return work
                self._changed.wait(_LOOK_S)
            return None
