"""The share that a worker process has in a sweep: its journal, its code, and the library's runner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from wtb.core.errors import WTBError
from wtb.core.stop import Stop
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal
from wtb.execution.node_run import NodeRun
from wtb.execution.runner import Runner
from wtb.execution.runtime.disk_space import NoRoom
from wtb.execution.runtime.sweep_context import Heeded, Opened
from wtb.execution.runtime.thread_pool import Job
from wtb.execution.state import Progress
from wtb.store.database import Database
from wtb.store.runs import leases
from wtb.store.runs.flush import flush
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb.store.runs.slots import LEASE_S
from wtb_workers.code import Codes, Warm, bind_as_recorded
from wtb_workers.notifications import Notifier

IDLE_S = 30.0  # that a share is kept without work


class Host(Protocol):
    """The session of the worker that a share belongs to: its slots, and what it knows of others."""

    database: Database
    queues: tuple[str, ...]
    runner: dict[str, Any]
    notifier: Notifier
    stopping: str | None

    def wait_for_slot(self, share: Share, executions: Sequence[Execution]) -> None: ...

    def lend(self, share: Share, execution: Execution, job: Job[NodeRun]) -> None: ...

    def wait_for_room(self, share: Share, reason: str) -> None: ...


class Share:
    """A sweep that this process works on. As the runner's dispatcher it hands executions to the process's slots.

    apart: user code runs in node processes, whatever the worker's pool. Raises Refused.
    """

    def __init__(self, life: Host, codes: Codes, row: Mapping[str, Any], *, apart: bool) -> None:
        bound = bind_as_recorded(row)
        self._life = life
        self.apart = apart
        self.stop = Stop()
        self.sweep_id: str = row["id"]
        self.grace_s = bound.spec.run.grace
        self._codes = codes
        self._warm: Warm | None = codes.take(row, bound, apart=apart)
        # What is run apart may kill again: that it was in a node then has to be known.
        durability = "sync" if apart else bound.spec.run.durability
        self.journal = Journal(
            lambda batch: flush(life.database, batch, LEASE_S, self.journal.handed_over),
            0.0 if durability == "sync" else float(durability),
        )
        self.opened = Opened(
            life.database, row, bound, life.runner["id"], self.stop, Progress(row["cells"]), NoRoom(self.stop)
        )
        self.sweep = self.opened.sweep
        self.runner = Runner(self.sweep, self._warm.code, self.journal, self._warm.workspaces, self)
        self._lock = threading.Lock()
        self._users = 0
        self._used_at = time.monotonic()

    def use(self, count: int = 1) -> None:
        """So many executions more are in hand."""
        with self._lock:
            self._users += count
            self._used_at = time.monotonic()

    def is_idle(self) -> bool:
        return not self._users

    @property
    def forgotten(self) -> bool:
        """Whether nobody used it for a while."""
        return self.is_idle() and time.monotonic() - self._used_at > IDLE_S

    def serves(self, queue: str | None) -> bool:
        return (queue or DEFAULT_QUEUE) in self._life.queues

    def offer(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            execution.failures = []  # its own from here on
        self._life.wait_for_slot(self, executions)

    def returned(self, execution: Execution) -> None:
        if self.stop.decided is None and self.stop.limit is None:
            words = self.sweep.words(execution)
            self.journal.then(lambda: self._life.notifier.notify([words]))

    def together(self, execution: Execution, jobs: Sequence[Callable[[], NodeRun]]) -> list[NodeRun]:
        """Run jobs on slots of this process that are free just now, and on this one in turn."""
        shared = [Job(job) for job in jobs]
        for job in shared[1:]:
            self._life.lend(self, execution, job)
        for job in shared:
            job.run()
        for job in shared:
            job.wait()
        return [job.result() for job in shared]

    def pause_where_limited(self) -> None:
        """A limit that was reached here pauses the sweep for all; a full disk has this process do without it."""
        stop = self.stop
        if stop.requested and stop.decided is None and not self._life.stopping:
            if stop.full:
                stop.decided = "running"
                self._life.wait_for_room(self, stop.reason or "a disk is full")
                return
            stop.decided = "paused"
            leases.pause(self._life.database, self.sweep_id, stop.reason or "stopped", by="worker")

    def heed(self, waiting: Sequence[Execution]) -> Heeded:
        """See what people want of the executions in hand; `waiting` have no slot yet."""
        assert self._warm is not None, "only an open share is looked after"
        return self.opened.heed(self._warm.code, waiting)

    def end_nodes(self) -> None:
        """End what its nodes still do."""
        if self._warm is not None:
            self._warm.code.close()

    def close(self, *, broken: bool = False) -> None:
        """Commit what is left and let go. The code stays warm where it is sound."""
        warm, self._warm = self._warm, None
        if warm is None:
            return
        try:
            self.journal.close()
        except WTBError:
            if not broken:
                raise
        finally:
            if broken or (self.stop.requested and self.stop.decided != "completed"):
                warm.close()
            else:
                self._codes.give(warm)
