"""What a worker process does under one identity: its leases, its sweeps, and the executions that wait for a slot."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from wtb.analysis.finalize import complete
from wtb.core.errors import DamagedError, StoreError, WTBError
from wtb.core.fault_points import point
from wtb.core.stop import KNOWN, WALL
from wtb.core.version import __version__
from wtb.execution.execution import Execution
from wtb.execution.journal import Lost
from wtb.execution.load import load_executions
from wtb.execution.node_run import NodeRun
from wtb.execution.runtime.cleanup import clean, clean_files
from wtb.execution.runtime.disk_space import Watch, disks
from wtb.execution.runtime.heartbeat import Heartbeat
from wtb.execution.runtime.thread_pool import Job
from wtb.store.database import Database
from wtb.store.files.locations import check_files, workspaces_of
from wtb.store.process_identity import identity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases, maintenance, queue
from wtb.store.runs.full_disks import say_full, say_roomy
from wtb.store.runs.queue import DEFAULT_QUEUE, Slot
from wtb.store.runs.slots import LEASE_S, end_runner
from wtb_workers.code import Codes, Refused
from wtb_workers.notifications import Notifier
from wtb_workers.share import Share

log = logging.getLogger("wtb")

LOOK_S = 0.01  # between two looks at who is free, which are to take little of the time
LOOK_SHARE = 0.1
AGAIN_S = 30.0  # before a sweep that was refused is tried again
CLOSING_S = 5.0
STOPPED = "its worker is being stopped"
NO_ROOM = "its session has no slot left"

Work = tuple[Share, Execution]


@dataclass(frozen=True)
class Worker:
    """What is known of a worker before it works. name: as the queue's monitor shows it."""

    name: str
    pool: str
    slots: int
    queues: tuple[str, ...]


@dataclass
class Fullness:
    """That a disk was full for a sweep, so many times in a row. waits: until the watch sees more room."""

    watch: Watch
    tries: int
    waits: bool = True


class Slots:
    """The slots of a process that are free, by their numbers."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def give(self, number: int) -> None:
        with self._lock:
            self._free.append(number)


class Life:
    """One runner in the database. It ends with its process, or where its leases or its journal are lost.

    slots: of this process; whoever runs something takes one. wake: has so many of them take what waits here.
    Raises StoreError where the database is out of reach.
    """

    def __init__(
        self, database: Database, worker: Worker, notifier: Notifier, slots: Slots, wake: Callable[[int], None]
    ) -> None:
        self.database = database
        self.queues = worker.queues
        self.notifier = notifier
        self.runner: dict[str, Any] = {
            **identity(),
            "worker": worker.name,
            "pool": worker.pool,
            "queues": list(worker.queues),
            "slots": worker.slots,
            "version": __version__,
        }
        self._home = workspaces_of(database)
        check_files(database, self._home)
        self.tidy()
        leases.register(database, self.runner)
        self.codes = Codes(self._home, self.runner["id"], worker.slots, worker.pool == "threads")
        self.stopping: str | None = None
        self.ended = False
        self._settled = False
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._looking = threading.Lock()
        self._shares: list[Share] = []
        self._refused: dict[str, float] = {}
        self._full: dict[str, Fullness] = {}
        self._waiting: deque[Work] = deque()
        self._works_on: dict[int, str] = {}  # slot -> the sweep that `working` has for it
        self._wake = wake
        self._slots = slots
        self._look_at = 0.0
        self._quick_at = float("inf")
        self._heartbeat = Heartbeat(database, self.runner["id"], LEASE_S, look=self._look, stopped=self._lost)
        self._heartbeat.start()

    # The work of a slot.

    def next(self, number: int, wanted: str | None) -> Work | None:
        """What a slot does next: what a message named, else what waits here, else what the database has."""
        if self.stopping is not None:
            return None
        if wanted is None:
            self.let_go()
            while (work := self._pop()) is not None:
                if self._occupies(number, work):
                    return work
                self._give_back(work, NO_ROOM)
        return self._claim(number, wanted)

    def _pop(self) -> Work | None:
        with self._lock:
            return self._waiting.pop() if self._waiting else None

    def _occupies(self, number: int, work: Work) -> bool:
        """Whether a slot may go on with what waits here: its session's quota has to leave room for one more."""
        share, execution = work
        if self._works_on.get(number) != share.sweep_id:
            if not queue.occupy(self.database, self._slot(number), share.sweep_id, execution.id):
                return False
            self._works_on[number] = share.sweep_id
        return True

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def leave(self, number: int) -> None:
        self._works_on.pop(number, None)
        queue.leave(self.database, self._slot(number))

    def wait_for_slot(self, share: Share, executions: Sequence[Execution]) -> None:
        """Keep executions until a slot of this process takes them, or one that is free elsewhere."""
        share.use(len(executions))
        with self._lock:
            self._waiting.extend((share, execution) for execution in reversed(executions))
        self._wake(len(executions))
        self.let_go()

    def take_waiting(self, number: int) -> Work | None:
        """What waits here, for a slot that nobody rang for: it counts as busy from then on."""
        with self._lock:
            if self.stopping is not None or not self._waiting:
                return None
            work = self._waiting.popleft()
        if self._occupies(number, work):
            return work
        self._give_back(work, NO_ROOM)  # not back to where it was: nobody may be left to take it there
        return None

    def run(self, work: Work) -> None:
        """Run an execution to its end. Raises the error that ends this life."""
        share, execution = work
        try:
            share.runner.run(execution)
            share.pause_where_limited()
        except WTBError:
            raise
        except Exception as error:
            self.end(broken=True)
            maintenance.count_loss(self.database, execution.line, f"{type(error).__name__}: {error}")
            raise
        finally:
            share.use(-1)

    def lend(self, share: Share, execution: Execution, job: Job[NodeRun]) -> None:
        """Do a job on a slot that is free just now; where there is none, leave it to whoever asked."""
        if (number := self._slots.take()) is not None:
            lent = (number, share, execution, job)
            threading.Thread(target=self._do_on, args=lent, name="wtb-lent", daemon=True).start()

    def _do_on(self, number: int, share: Share, execution: Execution, job: Job[NodeRun]) -> None:
        """Do a job on a slot, which counts as busy meanwhile: nothing is claimed for it, and quotas hold."""
        try:
            if queue.occupy(self.database, self._slot(number), share.sweep_id, execution.id):
                job.run()
            self.leave(number)
        except StoreError:
            self.end(broken=True)
        finally:
            self._slots.give(number)
        self.call()

    def call(self) -> None:
        """Have somebody take what waits for a slot, here or elsewhere."""
        if self._waiting:
            self._wake(1)
        else:
            with suppress(StoreError):  # the tick rings, too
                self.notifier.notify(queue.pending_notifications(self.database)[:1])

    def _slot(self, number: int) -> Slot:
        return Slot(self.runner["id"], number, self.queues)

    def _claim(self, number: int, wanted: str | None) -> Work | None:
        present = time.monotonic()
        refused = [sweep for sweep, until in self._refused.items() if until > present]
        rows = queue.claim_for(self.database, self._slot(number), LEASE_S, wanted=wanted, refused=refused)
        if not rows:
            self._works_on.pop(number, None)
            return None
        self._works_on[number] = rows[0]["sweep_id"]
        point("claim.committed")
        sweep_id, apart = rows[0]["sweep_id"], any(row["losses"] for row in rows)
        share = None
        try:
            share = self._used_share(sweep_id, len(rows), apart=apart)
            loaded = load_executions(self.database, sweep_id, rows)
        except WTBError as error:
            if share is not None:
                share.use(-len(rows))
            queue.give_back(self.database, rows, str(error))
            if isinstance(error, DamagedError):
                why = f"{error}; `wtb resume` computes it again"
                leases.pause(self.database, sweep_id, why, by="worker")
            else:
                self._refuse(sweep_id, error)
            return self._claim(number, None)
        for row in rows:
            share.journal.claimed(row["id"], row["token"])
        with self._lock:
            self._waiting.extend((share, execution) for execution in reversed(loaded[1:]))
        return share, loaded[0]

    def _used_share(self, sweep_id: str, count: int, *, apart: bool) -> Share:
        """This process's share in a sweep, opened where it is not open, for so many executions: it stays open for them.

        Raises Refused, StoreError.
        """
        with self._opening:
            fit = [one for one in self._shares if one.sweep_id == sweep_id and (one.apart or not apart)]
            share = min((one for one in fit if not one.stop.requested), key=lambda one: one.apart, default=None)
            if share is None:
                share = Share(self, self.codes, find_sweep(self.database, sweep_id), apart=apart)
                with self._lock:
                    self._shares.append(share)
            share.use(count)
            return share

    def _refuse(self, sweep_id: str, error: WTBError) -> None:
        if not isinstance(error, Refused):
            raise error
        new = sweep_id not in self._refused
        self._refused[sweep_id] = time.monotonic() + AGAIN_S
        if new:
            log.error("sweep %s is refused: %s", sweep_id, error)
            queue.refuse(self.database, find_sweep(self.database, sweep_id), self.runner, str(error))

    def wait_for_room(self, share: Share, reason: str) -> None:
        """Do without a sweep for which a disk of this machine is full, until there is more room; others may go on."""
        with self._lock:
            known = share.sweep_id in self._full
            tries = self._full[share.sweep_id].tries + 1 if known else 0
            self._full[share.sweep_id] = Fullness(Watch(disks(self._home.root, self._home.files.root), tries), tries)
            self._refused[share.sweep_id] = math.inf
        self._drop_waiting(share)
        log.warning("sweep %s: %s", share.sweep_id, reason)
        say_full(self.database, find_sweep(self.database, share.sweep_id), reason, self.runner["worker"])

    def _look_for_room(self) -> None:
        """Once a second: go on with sweeps for which there is more room."""
        with self._lock:
            roomy = [id for id, full in self._full.items() if full.waits and full.watch.sees_room()]
            for id in roomy:
                self._full[id].waits = False
                self._refused.pop(id, None)
        for id in roomy:
            log.warning("sweep %s: there is room again", id)
            say_roomy(self.database, find_sweep(self.database, id), self.runner["worker"])
        if roomy:
            self.notifier.notify(queue.pending_notifications(self.database))

    # What is handed on.

    def let_go(self) -> None:
        """Give executions that wait here to slots that are free elsewhere, the oldest first: they lead furthest."""
        with self._lock:
            began = time.monotonic()
            if not self._waiting or began < self._look_at:
                return
            self._look_at = float("inf")
        try:
            wanted = queue.demand(self.database)
        finally:
            ended = time.monotonic()
            self._look_at = ended + max(LOOK_S, (ended - began) / LOOK_SHARE)
        for name in self.queues:
            share = wanted[name].share if name in wanted else 0
            with self._lock:
                mine = [work for work in self._waiting if (work[1].queue or DEFAULT_QUEUE) == name][:share]
                for work in mine:
                    self._waiting.remove(work)
            for work in mine:
                self._give_back(work)

    def _give_back(self, work: Work, reason: str = "for a slot that is free") -> None:
        """Let somebody else go on with what waits here; nothing where it was taken away, as by a cancellation."""
        share, execution = work
        try:
            with suppress(Lost):
                share.runner.give_back(execution, reason)
        finally:
            share.use(-1)

    # What happens around the work.

    def _look(self) -> None:
        """Once a second: what others decided about the sweeps, and what nobody needs any more."""
        with self._looking:
            if not self.ended:
                self._look_at_sweeps()
        if time.monotonic() > self._quick_at:
            self.end_nodes()

    def _look_at_sweeps(self) -> None:
        with self._lock:
            shares = list(self._shares)
        asked = {share.sweep_id for share in shares} | self._refused.keys() | self._full.keys()
        known = leases.sweep_statuses(self.database, asked) if asked else {}
        for sweep_id in list(self._full):
            if known.get(sweep_id, ("deleted", None))[0] != "running":
                del self._full[sweep_id]
        self._look_for_room()
        for sweep_id in list(self._refused):
            if known.get(sweep_id, ("deleted", None))[1] is None:  # somebody set it going again, or it has ended
                del self._refused[sweep_id]
        for share in shares:
            status, reason = known.get(share.sweep_id, ("deleted", None))
            if status not in ("pending", "running"):
                self._decided(share, status, reason)
            elif not share.is_idle():
                share.opened.see_others()
                self._heed(share)
            elif complete(self.database, share.sweep_id):
                status = "completed"
            if share.is_idle() and (share.stop.requested or share.forgotten or status not in ("pending", "running")):
                with self._opening, self._lock:
                    if not share.is_idle():
                        continue
                    self._shares.remove(share)
                share.close()
        self.codes.cool()

    def _heed(self, share: Share) -> None:
        """What people decided about executions of a share; those that wait here are let go of."""
        with self._lock:
            waiting = [execution for whose, execution in self._waiting if whose is share]
        heeded = share.heed(waiting)
        with self._lock:
            mine = [work for work in self._waiting if work[0] is share and heeded.concerns(work[1])]
            for work in mine:
                self._waiting.remove(work)
        for _, execution in mine:
            try:
                share.runner.let_go(execution)
            finally:
                share.use(-1)

    def _decided(self, share: Share, status: str, reason: str | None) -> None:
        if not share.stop.requested:
            limit = "wall" if reason is not None and reason.startswith(WALL) else None
            share.stop.request(reason or f"the sweep was {status}", limit=limit, decided=status)
        self._drop_waiting(share)
        known = status == "completed" and (reason or "").startswith(KNOWN)  # what still runs was skipped
        unwanted = known or status not in ("paused", "completed") or share.stop.is_late(share.grace_s)
        if unwanted and not share.is_idle():  # nobody wants what its nodes still do
            share.end_nodes()

    def _drop_waiting(self, share: Share | None = None) -> None:
        """Give back what waits here, of one share or of all."""
        with self._lock:
            mine = [work for work in self._waiting if share is None or share is work[0]]
            for work in mine:
                self._waiting.remove(work)
        for work in mine:
            self._give_back(work, work[0].stop.reason or STOPPED)

    def stop(self, reason: str) -> None:
        """Take nothing more; what runs has its sweep's grace, and is given back."""
        if self.stopping is not None:
            return
        self.stopping = reason
        with self._lock:
            shares = list(self._shares)
        for share in shares:
            share.stop.request(reason)
        self._drop_waiting()
        self._quick_at = time.monotonic() + max((share.grace_s for share in shares), default=0.0)

    def end_nodes(self) -> None:
        """End what nodes still do."""
        with self._lock:
            shares = list(self._shares)
        for share in shares:
            share.end_nodes()

    def _lost(self) -> None:
        self.end(broken=True)

    def end(self, *, broken: bool = False) -> None:
        """Let go of everything. broken: what was not committed is lost, and the executions run again elsewhere."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            shares = list(self._shares)
            self._waiting.clear()
        self.stop("its worker lost its leases" if broken else "its worker ended")
        self._heartbeat.end()
        looked = self._looking.acquire(timeout=CLOSING_S)  # it may be closing a share just now
        try:
            for share in shares:
                if broken:
                    share.end_nodes()
                with suppress(WTBError):
                    share.close(broken=broken)
            self.codes.close()
        finally:
            if looked:
                self._looking.release()
            self._closed.set()
        with suppress(WTBError):
            self.settle()
            self.tidy()

    def settle(self) -> None:
        """After `end`: give back what it still holds. Raises StoreError; then it is to be called again."""
        if self._settled:
            return
        self._closed.wait(CLOSING_S)  # what it had ended in time is still committed
        leases.give_back_all(self.database, self.runner["id"])
        end_runner(self.database, self.runner["id"])
        self._settled = True

    def tidy(self) -> None:
        """Remove what dead runners of this machine left behind. Raises StoreError."""
        clean(self.database, self._home.root)
        clean_files(self.database, self._home.files)
