"""Pools of warm node processes, started as they are needed."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from wtb.core.errors import WTBError
from wtb.core.stop import Stopped
from wtb.execution.sandbox.node_process import PATIENCE_S, NodeProcess, ProcessDied

P = TypeVar("P", bound=NodeProcess)
STARTS = 3  # in a row that may die


class Pool(Generic[P]):
    """Node processes, each for so many threads at a time, which are replaced when they are spent or have died.

    Args:
        start: Starts a process, which may not be ready yet.
        max_processes: The maximum number of processes at a time.
        runs: The number of requests after which a process is replaced.
        places: The number of threads that may use a process at a time.
        crowd: The number of threads in each process from which another one is started; `places` without it.
    """

    def __init__(
        self, start: Callable[[], P], max_processes: int, runs: int, places: int = 1, crowd: int | None = None
    ) -> None:
        self._start = start
        self._max_processes = max_processes
        self._runs = runs
        self._places_each = places
        self._crowd = crowd or places
        # Starts at a time: starting uses the CPU, so more of them would only delay all.
        self._at_once = max(1, os.cpu_count() or 1)
        self._changed = threading.Condition()
        self._free: dict[P, None] = {}  # those that have a place left, in order of use
        self._users: dict[P, int] = {}  # of every process that is there
        self._count = 0  # of processes that are there or on the way
        self._starting = 0
        self._waiting = 0
        self._error: WTBError | None = None
        self.closed = False

    @contextmanager
    def lend(self) -> Iterator[P]:
        """Lend a place in a process for the duration of the block. A process for one thread ends with an exception.

        Raises:
            WTBError: None can start.
            Stopped: The pool was closed.
        """
        process = self._acquire()
        # A process can end while nobody uses it, for example by the kernel for lack of memory; no attempt should fail
        # for that.
        while not process.lives():
            process.spent = True
            self._release(process)
            process = self._acquire()
        try:
            yield process
        except BaseException:
            # An exception may leave a request half done, and the next answer would be that of another request.
            process.spent = process.spent or self._places_each == 1
            raise
        finally:
            self._release(process)

    def add_ready(self, process: P) -> None:
        """Add a process that is ready, and that nobody uses."""
        with self._changed:
            self._users[process] = 0
            self._free[process] = None
            self._count += 1
            self._changed.notify()

    def start_for(self, users: int) -> None:
        """Start as many processes as so many threads will need, up to the number that may start at a time."""
        with self._changed:
            target = min(math.ceil(users / self._crowd), self._max_processes, self._at_once)
            for _ in range(target - self._count):
                self._start_another()

    def _start_another(self) -> None:
        self._count += 1
        self._starting += 1
        threading.Thread(target=self._begin, name="wtb-start", daemon=True).start()

    def _acquire(self) -> P:
        """Wait for a free place; processes are started as needed. Raises the error of one that could not start."""
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    self.check()
                    if self._free and not self._is_crowded():
                        return self._acquire_place()
                    if self._error is None:
                        needed = math.ceil(self._waiting / self._crowd)
                        if self._count < self._max_processes and self._starting < min(self._at_once, needed):
                            self._start_another()
                    elif not self._free:
                        raise self._error
                    if self._free:
                        return self._acquire_place()
                    self._changed.wait()
            finally:
                self._waiting -= 1

    def _is_crowded(self) -> bool:
        """Return whether each process with a place left has as many users as it should have."""
        return self._crowd < self._places_each and all(self._users[process] >= self._crowd for process in self._free)

    def _acquire_place(self) -> P:
        """Acquire a place in the process that was used last, or, if shared, in the one with the fewest users."""
        newest = next(reversed(self._free))
        process = newest if self._places_each == 1 else min(self._free, key=self._users.__getitem__)
        self._users[process] += 1
        if self._users[process] == self._places_each:
            del self._free[process]
        return process

    def processes(self) -> dict[P, int]:
        """Return all processes, each with the number of threads that use it."""
        with self._changed:
            return dict(self._users)

    def end_idle(self) -> bool:
        """End the processes that nobody uses. Returns whether there were any."""
        with self._changed:
            idle = [process for process in self._free if not self._users[process]]
            for process in idle:
                del self._free[process]
        for process in idle:
            self._drop(process)
        return bool(idle)

    def check(self) -> None:
        """Raise Stopped if the pool was closed."""
        if self.closed:
            raise Stopped("the node processes were ended")

    def _begin(self) -> None:
        """Start a process. If it dies, which may be the machine's fault, try again."""
        started, error = None, None
        for _ in range(STARTS):
            started, error = self._try()
            if not isinstance(error, ProcessDied) or self.closed:
                break
        with self._changed:
            self._starting -= 1
            if started is not None and not self.closed:
                self._free[started] = None
                started = None
            elif started is None:
                self._count -= 1
                self._error = self._error or error
            self._changed.notify_all()
        if started is not None:
            self._drop(started)

    def _try(self) -> tuple[P | None, WTBError | None]:
        """Start one process, and wait until it is ready. Returns it, or why it is not."""
        try:
            process = self._start()
        except OSError as error:
            return None, WTBError(f"a node process cannot start: {error}")
        with self._changed:
            self._users[process] = 0
        try:
            process.ready()
        except WTBError as error:
            process.close()
            with self._changed:
                self._users.pop(process)
            return None, error
        return process, None

    def _release(self, process: P) -> None:
        """Release a place. A process that is spent is ended by its last user, and so is each if the pool was closed."""
        with self._changed:
            self._users[process] -= 1
            is_over = self.closed or process.spent or process.request_count >= self._runs
            if is_over:
                self._free.pop(process, None)
            else:
                self._free[process] = None
                self._changed.notify()
            is_last = not self._users[process]
        if is_over and is_last:
            self._drop(process)

    def _drop(self, process: P) -> None:
        """End a process, and make room for another one."""
        process.close()
        with self._changed:
            self._users.pop(process)
            self._count -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all processes, with their running attempts; the threads that use them get Stopped."""
        with self._changed:
            self.closed = True
            idle = [process for process in self._free if not self._users[process]]
            self._free.clear()
            busy = self._users.keys() - set(idle)
            self._changed.notify_all()
        for process in busy:
            process.end()
        for process in idle:
            self._drop(process)
        with self._changed:
            self._changed.wait_for(lambda: not self._count, PATIENCE_S)
