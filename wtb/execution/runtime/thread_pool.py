"""The local pool: the slots of this process, which take executions and jobs as they become free, and their number."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from wtb.config.run_options import ASYNC_SLOTS, SYNC_SLOTS, Run
from wtb.core.stop import Stop
from wtb.execution.engine.protocol import Engine
from wtb.execution.execution import Execution

T = TypeVar("T")


def slots_of(
    run: Run,
    engine: Engine,
    vary: Mapping[str, Sequence[str]],
    seconds: Callable[[], Mapping[tuple[str, str], float]],
) -> int:
    """Return how many node runs a sweep makes at a time on one machine.

    Args:
        run: The options of the sweep, which may name a number.
        engine: The engine, for the variants that are async.
        vary: Varied node -> names of its variants.
        seconds: Returns the mean seconds of node runs by node and variant, if earlier sweeps measured them.

    Returns:
        The number of slots.
    """
    if run.concurrency is not None:
        return run.concurrency
    if any(engine.is_async(node, variant) for node, variants in vary.items() for variant in variants):
        return ASYNC_SLOTS
    nodes = engine.workflow.nodes
    if not any(engine.is_async(name, variant) for name, node in nodes.items() for variant in node.variants):
        return SYNC_SLOTS
    means = {key: mean for key, mean in seconds().items() if key[0] in nodes and key[1] in nodes[key[0]].variants}
    # The node that takes longest decides: many slots help only if it waits instead of computing.
    return ASYNC_SLOTS if means and engine.is_async(*max(means, key=means.__getitem__)) else SYNC_SLOTS


class Job(Generic[T]):
    """A job that several slots may run: the first one to take it does."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._claimed = threading.Lock()
        self._outcome: Future[T] = Future()

    def run(self) -> None:
        if not self._claimed.acquire(blocking=False):
            return
        try:
            self._outcome.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - handed to the slot that waits for the result
            self._outcome.set_exception(error)

    @property
    def is_taken(self) -> bool:
        """True if a slot runs it, or has run it."""
        return self._claimed.locked()

    @classmethod
    def run_shared(cls, works: Sequence[Callable[[], T]], share: Callable[[Sequence[Job[T]]], None]) -> list[T]:
        """Share all jobs but the first with other slots; run those that nobody has taken, then wait for the others.

        Args:
            works: The work of each job.
            share: Offers jobs to other slots.

        Returns:
            The results, in order. Raises the first error.
        """
        jobs = [cls(work) for work in works]
        share(jobs[1:])
        for job in jobs:
            job.run()
        # All of them, before the first error is raised: their node runs are recorded and count.
        wait([job._outcome for job in jobs])
        return [job._outcome.result() for job in jobs]


class LocalPool:
    """Threads that run executions, the deepest first, so that few are open at a time.

    `claim` claims more executions and returns them; none if nothing is pending.
    """

    def __init__(self, slots: int, claim: Callable[[], Sequence[Execution]], stop: Stop) -> None:
        self.slots = slots
        self._claim = claim
        self._stop = stop
        self._lock = threading.Condition()
        self._jobs: deque[Job[object]] = deque()
        self._stack: list[Execution] = []
        self._busy = 0
        self._claiming = False
        self._exhausted = False
        self._error: BaseException | None = None
        self.threads: list[threading.Thread] = []

    def serves(self, queue: str | None) -> bool:
        return True

    def requeued(self, execution: Execution) -> None:
        """Let a slot claim it again, unless the sweep is being stopped."""
        if not self._stop.requested:
            self.look_again()

    def passes_on(self, execution: Execution) -> bool:
        return False

    def dispatch(self, executions: Sequence[Execution]) -> None:
        with self._lock:
            self._stack.extend(reversed(executions))
            self._lock.notify(len(executions))

    def waiting(self) -> list[Execution]:
        """The executions that no slot has taken yet."""
        with self._lock:
            return list(self._stack)

    def drain(self, which: Callable[[Execution], bool]) -> list[Execution]:
        """Remove matching executions from those that wait for a slot, and return them."""
        with self._lock:
            stack, self._stack = self._stack, []
            mine: list[Execution] = []
            for execution in stack:
                (mine if which(execution) else self._stack).append(execution)
            self._lock.notify_all()
            return mine

    def look_again(self) -> None:
        """Claim again, because there may be pending executions although there were none before."""
        with self._lock:
            self._exhausted = False
            self._lock.notify()

    def run_parallel(self, execution: Execution, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs, those that free slots take on these."""
        return Job.run_shared(jobs, self._share)

    def _share(self, jobs: Sequence[Job[T]]) -> None:
        with self._lock:
            self._jobs.extend(jobs)  # type: ignore[arg-type]  # a queue of jobs of any result
            self._lock.notify(len(jobs))

    def start(self, run: Callable[[Execution], None]) -> None:
        """Start the slots."""
        for number in range(self.slots):
            thread = threading.Thread(target=self.work, args=(run,), name=f"wtb-slot-{number}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Return whether all slots have ended within `seconds`, or one of them by an error."""
        for thread in self.threads:
            thread.join(seconds / len(self.threads))
        return self._error is not None or not any(thread.is_alive() for thread in self.threads)

    def wait_all(self, seconds: float) -> None:
        """Wait for slots that are about to end."""
        ends = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def check(self) -> None:
        """Raises the error that ended a slot."""
        if self._error is not None:
            raise self._error

    def work(self, run: Callable[[Execution], None]) -> None:
        """The loop of one slot: jobs first, then executions, until nothing is left."""
        try:
            while (job_or_execution := self._next_work()) is not None:
                try:
                    if isinstance(job_or_execution, Job):
                        job_or_execution.run()
                    else:
                        run(job_or_execution)
                finally:
                    self._add_busy(-1)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            with self._lock:
                self._error = self._error or error
                self._lock.notify_all()
            self._stop.request(f"{type(error).__name__}: {error}")

    def _add_busy(self, change: int) -> None:
        with self._lock:
            self._busy += change
            if not self._busy:
                self._lock.notify_all()

    def _next_work(self) -> Job[object] | Execution | None:
        """Wait for a job, else an execution. Returns None when nothing is left to do."""
        with self._lock:
            while self._error is None:
                # Jobs first, because a slot waits for them to finish its step.
                if self._jobs:
                    self._busy += 1
                    return self._jobs.popleft()
                if self._stop.requested:
                    if not self._busy:
                        return None
                elif self._stack:
                    self._busy += 1
                    return self._stack.pop()
                elif not self._exhausted and not self._claiming:
                    self._refill()
                    continue
                elif self._exhausted and not self._busy:
                    return None
                # Ends by itself now and then, because a stop is requested without this lock.
                self._lock.wait(0.5)
        return None

    def _refill(self) -> None:
        """Claim more, without the lock that the other slots need."""
        self._claiming = True
        self._lock.release()
        try:
            claimed = self._claim()
        finally:
            self._lock.acquire()
            self._claiming = False
        self._stack.extend(reversed(claimed))
        self._exhausted = not claimed
        self._lock.notify_all()
