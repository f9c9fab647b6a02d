"""The assignment of a sweep to a worker process: its journal, its code, and the runner of the library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from wtb.core.errors import WTBError
from wtb.core.stop import Stop
from wtb.execution.execution import Execution, NodeRun
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.sweep_context import PendingRequests, SweepContext
from wtb.execution.runtime.thread_pool import Job
from wtb.execution.state import Progress
from wtb.execution.waits import NoRoom
from wtb.store.database import Database
from wtb.store.process_identity import WorkerIdentity
from wtb.store.runs import leases
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow
from wtb_workers.warm import Codes, Refused, Warm

IDLE_S = 30.0  # that an assignment is kept without work


class Host(Protocol):
    """The worker session of an assignment."""

    database: Database
    queues: tuple[str, ...]
    runner: WorkerIdentity
    stopping: str | None
    publish: Callable[[], None]

    def wait_for_slot(self, assignment: SweepAssignment, executions: Sequence[Execution]) -> None: ...

    def wait_with_others(self, sweep_id: str, execution: Execution) -> None: ...

    def lend(self, assignment: SweepAssignment, execution: Execution, job: Job[NodeRun]) -> None: ...

    def suspend_for_disk(self, assignment: SweepAssignment, reason: str) -> None: ...


class SweepAssignment:
    """A sweep that this process works on. It is the dispatcher of the runner: it hands executions to slots.

    With `apart`, user code runs in node processes, whatever pool the sweep sets. Raises Refused.
    """

    _warm: Warm | None

    def __init__(self, session: Host, codes: Codes, row: SweepRow, *, apart: bool) -> None:
        bound, self._warm = codes.acquire(row, WrittenFiles(session.database, row), apart=apart)
        self._session = session
        self.apart = apart
        # On threads of this process, a node could kill it before the database has the node: it stays apart to its end.
        self._passes_on = apart and bound.pool != "thread"
        self.stop = Stop()
        self.sweep_id: str = row.id
        self.grace_s = bound.spec.run.grace
        self._codes = codes
        progress, room = Progress(row.cells, row.id), NoRoom(self.stop)
        self.context = SweepContext(session.database, row, bound, session.runner.id, progress, room)
        self.sweep = self.context.sweep
        # Executions that run apart may have killed their process before. If that happens again, the database has to
        # know in which node, so every step is committed at once.
        self.runner = self.context.runner(self._warm.code, self._warm.workspaces, self, sync=apart)
        self.journal = self.runner.journal
        self._lock = threading.Lock()
        self._users = 0
        self._used_at = time.monotonic()

    def use(self, count: int = 1) -> None:
        """Count executions that this process has claimed (or, with a negative count, ended)."""
        with self._lock:
            self._users += count
            self._used_at = time.monotonic()

    def knows(self, rows: Iterable[ExecutionRow | Execution]) -> bool:
        """Return whether executions have only combinations and variants that the sweep had when this was opened."""
        combinations = self.sweep.combinations
        return all(
            all(number < len(combinations) for number in row.combinations)
            and not combinations.lacks(row.choices or {}, row.choices or {})
            for row in rows
        )

    def is_idle(self) -> bool:
        return not self._users

    @property
    def is_expired(self) -> bool:
        """True if it has been idle for IDLE_S seconds."""
        return self.is_idle() and time.monotonic() - self._used_at > IDLE_S

    def serves(self, queue: str | None) -> bool:
        return (queue or DEFAULT_QUEUE) in self._session.queues

    def dispatch(self, executions: Sequence[Execution]) -> None:
        self._session.wait_for_slot(self, executions)

    def requeued(self, execution: Execution) -> None:
        if self.stop.decided is None and self.stop.limit is None:
            # Published only once the release is committed, because publishing reads the database.
            self.journal.after_commit(self._session.publish)

    def passes_on(self, execution: Execution) -> bool:
        """Hand an execution that is no longer a suspect to the other assignment of its sweep, if that can be opened.

        Raises Lost if its lease is gone.
        """
        if execution.suspect or not self._passes_on:
            return False
        # The other assignment has a journal of its own, which may commit the end of the execution first. Rows that were
        # still buffered here would then count as lost, and its cells would succeed without their last node.
        self.journal.flush(execution.id, force=True)
        try:
            self._session.wait_with_others(self.sweep_id, execution)
        except Refused:
            return False
        return True

    def run_parallel(self, execution: Execution, jobs: Sequence[Callable[[], NodeRun]]) -> list[NodeRun]:
        """Run jobs on free slots of this process, and the rest one after the other on this slot."""

        def lend(shared: Sequence[Job[NodeRun]]) -> None:
            for job in shared:
                self._session.lend(self, execution, job)

        return Job.run_shared(jobs, lend)

    def pause_where_limited(self) -> None:
        """Pause the sweep for all workers if a limit was reached; for a full disk, only this process suspends it."""
        stop = self.stop
        if stop.requested and stop.decided is None and not self._session.stopping:
            # A full disk is a matter of this machine, so that workers elsewhere continue.
            if stop.full:
                stop.decided = "running"
                self._session.suspend_for_disk(self, stop.reason or "a disk is full")
                return
            stop.decided = "paused"
            leases.pause(self._session.database, self.sweep_id, stop.reason or "stopped", by="worker")

    def poll_requests(self, waiting: Sequence[Execution]) -> PendingRequests:
        """Read the requests of people for executions of this process; `waiting` are those without a slot yet."""
        assert self._warm is not None, "a closed assignment is not polled"
        return self.context.poll_requests(self._warm.code, waiting)

    def end_nodes(self) -> None:
        """Kill the nodes that still run."""
        if self._warm is not None:
            self._warm.code.close()

    def close(self, *, broken: bool = False) -> None:
        """Commit what is left and release the code, which stays warm unless it may be damaged."""
        warm, self._warm = self._warm, None
        if warm is None:
            return
        self.context.close()
        try:
            self.journal.close()
        except WTBError:
            if not broken:
                raise
        finally:
            is_damaged = broken or (self.stop.requested and self.stop.decided != "completed")
            # Warm processes of an idle sweep would take memory from the quota of its session.
            if is_damaged or self.sweep.limits.memory.is_limited:
                warm.close()
            else:
                self._codes.release(warm)
