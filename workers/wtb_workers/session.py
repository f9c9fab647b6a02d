"""A worker session: the leases of one worker process, the tasks it runs, and the executions that wait for a slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from wtb.analysis.sweep_ends import complete
from wtb.core.errors import DamagedError, StoreError, WTBError
from wtb.core.fault_points import point
from wtb.core.ids import log_ids
from wtb.core.stop import ENOUGH_KNOWN, WALL
from wtb.core.version import __version__
from wtb.core.work_record import CLAIMS
from wtb.execution.execution import Execution, NodeRun
from wtb.execution.journal import Lost
from wtb.execution.load import load_executions
from wtb.execution.runtime.thread_pool import Job
from wtb.execution.runtime.upkeep import Heartbeat, clean, clean_files
from wtb.store.control import row_cells
from wtb.store.database import Database
from wtb.store.files.locations import check_files, workspaces_of
from wtb.store.housekeeping.contents import settle
from wtb.store.process_identity import WorkerIdentity, identity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases, maintenance, publishing, queue
from wtb.store.runs.queue import ClaimOutcome, Slot, TaskClaim
from wtb.store.runs.slots import LEASE_S, end_runner
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.walls import is_worker
from wtb_workers.assignment import SweepAssignment
from wtb_workers.scorings import Scorings
from wtb_workers.slots import Combined, Pace, Slots, TaskRun, WaitingWork, Work, Worker
from wtb_workers.warm import Codes, Refusals

CLOSING_S = 5.0
STOPPED = "its worker is being stopped"
LEASE_LOST = "its executions were taken away"


class WorkerSession:
    """One runner in the database. It ends with its process, or when its leases or its journal are lost.

    Raises StoreError if the database is unreachable.

    Args:
        database: The database.
        worker: The settings of the worker.
        publish: Publishes pending executions soon, without waiting.
        slots: The free slots of this process.
        wake: Wakes free slots to take executions that wait in this session.
    """

    def __init__(
        self,
        database: Database,
        worker: Worker,
        publish: Callable[[], None],
        slots: Slots,
        wake: Callable[[], None],
    ) -> None:
        self.database = database
        self.queues = worker.queues
        self.publish = publish
        self.runner = WorkerIdentity(
            **asdict(identity()), worker=worker.name, queues=worker.queues, slots=worker.slots, version=__version__
        )
        self._home = workspaces_of(database)
        check_files(database, self._home)
        settle(database, self._home.files)
        self.clean_up()
        leases.register(database, self.runner)
        with database.read() as connection:
            walled = is_worker(connection)
        self.codes = Codes(self._home, self.runner.id, worker.slots, threads=not walled)
        self.stopping: str | None = None
        self.ended = False
        self._released = False
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._polling = threading.Lock()
        self._assignments: list[SweepAssignment] = []
        self._refusals = Refusals(database, self.runner, self._home)
        self.scorings = Scorings(database, self.runner, self.queues, self._home)
        self._claims = Combined(self._claim)
        self._waiting = WaitingWork()
        self._runs: dict[str, TaskRun] = {}
        self._wake = wake
        self._slots = slots
        self._demand_look, self._published_look = Pace(), Pace()
        self._are_published = False
        self._kill_nodes_at = float("inf")
        self._heartbeat = Heartbeat(database, self.runner.id, LEASE_S, look=self._poll, stopped=self._on_leases_lost)
        self._heartbeat.start()

    # The work of a slot.

    def claim(self, number: int, task_id: str) -> tuple[ClaimOutcome, TaskRun | None]:
        """Claim a task for a slot. Returns the outcome, and the task if the claim succeeded.

        Raises StoreError.
        """
        if self.stopping is not None:
            return ClaimOutcome.REFUSED, None
        claim = self._claims.ask(self._slot(number), task_id)
        if not claim.rows:
            return claim.outcome, None
        point("claim.committed")
        try:
            return claim.outcome, self._begin(task_id, claim)
        except WTBError as error:
            queue.release_claimed(self.database, claim.rows, str(error))
            self.free_slot(number)
            if isinstance(error, DamagedError):
                why = f"{error}; `wtb resume` computes it again"
                # Trying again would find the same damage; `wtb resume` repairs it.
                leases.pause(self.database, claim.rows[0].sweep_id, why, by="worker")
            else:
                self._refusals.refuse(claim.rows[0].sweep_id, error)
                self.publish()
            return ClaimOutcome.WITHDRAWN, None

    def _claim(self, task_ids: Mapping[Slot, str]) -> dict[Slot, TaskClaim]:
        """Claim the task of each of these slots, in one transaction."""
        with CLAIMS.timed() as timed:
            claims = queue.claim_tasks(self.database, task_ids, LEASE_S, refused=self._refusals.current())
            timed.execution = next((claim.rows[0].id for claim in claims.values() if claim.rows), None)
            return claims

    def _begin(self, task_id: str, claim: TaskClaim) -> TaskRun:
        """Load claimed executions, which then wait for the slot of their task. Raises WTBError."""
        rows = claim.rows
        sweep_id, apart = rows[0].sweep_id, any(row.losses for row in rows)
        assignment = self._use_assignment(sweep_id, rows, apart=apart)
        try:
            loaded = load_executions(self.database, sweep_id, rows)
        except WTBError:
            assignment.use(-len(rows))
            raise
        run = TaskRun(task_id, sweep_id, len(rows), sum(row.head_id is None for row in rows), claim.root_s)
        self._runs[task_id] = run
        for row, execution in zip(rows, loaded, strict=True):
            assignment.journal.accept_claim(row.id, row.token)
            execution.record = run.record
        self._waiting.add(assignment, loaded)
        if len(loaded) > 1 and len(self._slots):
            self._wake()
        return run

    def work_off(self, run: TaskRun) -> None:
        """Run the executions of a task on the slot that claimed it, until the last one has ended or was released.

        Raises the error that ends this session.
        """
        task_id = run.record.id
        try:
            while (work := run.next(lambda: self._next_of(task_id))) is not None:
                self.run(work)
        finally:
            self._runs.pop(str(task_id), None)
        if run.has_new_duration:
            publishing.measure(self.database, run.sweep_id, run.seconds, run.roots)

    def _next_of(self, task_id: str | None) -> Work | None:
        if self.ended:
            raise StoreError("its worker lost its leases")
        return self._waiting.pop(task_id)

    @property
    def waiting(self) -> int:
        """The number of waiting executions that free slots may take."""
        return 0 if self.stopping is not None else len(self._waiting)

    def free_slot(self, number: int) -> None:
        """Mark a slot as free."""
        queue.mark_free(self.database, self._slot(number))

    def wait_for_slot(self, assignment: SweepAssignment, executions: Sequence[Execution]) -> None:
        """Queue executions until a slot of this process takes them, or they are released to free slots elsewhere."""
        assignment.use(len(executions))
        self._waiting.add(assignment, executions)
        self._count(executions[0], len(executions))
        if len(self._slots):
            self._wake()
        self.release_to_free_slots()

    def wait_with_others(self, sweep_id: str, execution: Execution) -> None:
        """Queue an execution that ran apart as one of those that do not. Raises Refused, StoreError."""
        assignment = self._use_assignment(sweep_id, [execution], apart=False)
        assignment.journal.accept_claim(execution.id, execution.token)
        self._waiting.add(assignment, [execution])
        self._count(execution, 1)
        self._wake()

    def assign_waiting(self, numbers: Sequence[int]) -> dict[int, Work]:
        """Assign waiting work to free slots, which count as busy from then on. Returns the work of each slot.

        Returns nothing while a published task waits, which comes first. The work is all of one sweep, so that one
        transaction marks the slots.
        """
        if self.stopping is not None or self._tasks_wait():
            return {}
        works = self._waiting.pop_oldest(len(numbers))
        if not works:
            return {}
        assignment = works[0][0]
        work_by_slot = dict(zip(map(self._slot, numbers), works, strict=False))
        execution_ids = {slot: work[1].id for slot, work in work_by_slot.items()}
        allowed = queue.mark_busy(self.database, execution_ids, assignment.sweep_id)
        # The quota of the session allows no more slots, so the slot of its own task will run it.
        for slot in execution_ids.keys() - set(allowed):
            self._waiting.add(assignment, [work_by_slot[slot][1]])
            self._count(work_by_slot[slot][1], 0)
        return {slot.number: work_by_slot[slot] for slot in allowed}

    def next_waiting(self, assignment: SweepAssignment) -> Work | None:
        """Take more waiting work of a sweep for a slot that has just run some, unless a published task waits."""
        if self.stopping is not None or self._tasks_wait():
            return None
        return self._waiting.pop_oldest_of(assignment)

    def _tasks_wait(self) -> bool:
        """Return whether a published task waits on a queue of this process, by a recent query."""
        with self._lock:
            if not self._published_look.is_due():
                return self._are_published
        with self._published_look.timed():
            self._are_published = publishing.has_published(self.database, self.queues)
        return self._are_published

    def run(self, work: Work) -> None:
        """Run an execution to its end. Raises the error that ends this session."""
        assignment, execution = work
        began = time.monotonic()
        try:
            with log_ids(runner=self.runner.id, sweep=assignment.sweep_id, execution=execution.id):
                assignment.runner.run(execution)
            assignment.pause_where_limited()
        except WTBError:
            raise
        except Exception as error:
            self.end(broken=True)
            # An unexpected error is counted like the death of a worker, so that the execution is set aside after a few.
            maintenance.count_loss(self.database, execution.line, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._count_end(work, time.monotonic() - began)

    def _count_end(self, work: Work, spent_s: float = 0.0) -> None:
        """Count that an execution has ended in this process, or was released, after so much time of a slot."""
        assignment, execution = work
        assignment.use(-1)
        if (run := self._run_of(execution)) is not None:
            stop = assignment.stop
            if stop.requested and execution.status in ("running", "pending", "cancelled"):  # before its end
                run.given_up = run.given_up or stop.reason or STOPPED
                run.is_cancelled = run.is_cancelled or _is_over(stop.decided)
            # Its lease was lost, which this session does not know yet. Apart, another assignment may have it.
            elif execution.status == "running" and not assignment.apart:
                run.given_up = run.given_up or LEASE_LOST
                status, _ = leases.sweep_statuses(self.database, [run.sweep_id]).get(run.sweep_id, ("deleted", None))
                run.is_cancelled = run.is_cancelled or _is_over(status)
            run.spend(spent_s)
            run.add(-1)

    def _run_of(self, execution: Execution) -> TaskRun | None:
        """Return the task of an execution, while this process runs it."""
        return self._runs.get(str(execution.record.id))

    def _count(self, execution: Execution, count: int) -> None:
        """Count executions of a task that began to wait, or, with a negative count, were released."""
        if (run := self._run_of(execution)) is not None:
            run.add(count)

    def lend(self, assignment: SweepAssignment, execution: Execution, job: Job[NodeRun]) -> None:
        """Run a job on a free slot; if there is none, leave it to the slot that shares it."""
        if (number := self._slots.acquire()) is not None:
            lent = (number, assignment, execution, job)
            threading.Thread(target=self._run_lent, args=lent, name="wtb-lent", daemon=True).start()

    def _run_lent(self, number: int, assignment: SweepAssignment, execution: Execution, job: Job[NodeRun]) -> None:
        """Run a job on a slot that counts as busy meanwhile, so that nothing is claimed for it and quotas hold.

        Short jobs are often taken first by the slot that shares them; then there is no query at all.
        """
        is_busy = False
        try:
            if not job.is_taken:
                slot = self._slot(number)
                is_busy = bool(queue.mark_busy(self.database, {slot: execution.id}, assignment.sweep_id))
            if is_busy:
                job.run()
                queue.mark_free(self.database, slot)
        except StoreError:
            self.end(broken=True)
        finally:
            self._slots.release(number)
        if is_busy and self._waiting:
            self._wake()

    def _slot(self, number: int) -> Slot:
        return Slot(self.runner.id, number, self.queues)

    def _use_assignment(
        self, sweep_id: str, rows: Sequence[ExecutionRow | Execution], *, apart: bool
    ) -> SweepAssignment:
        """Return the assignment for a sweep, which is created if necessary and kept open until these executions end.

        Args:
            sweep_id: The sweep.
            rows: The executions, or their rows.
            apart: Whether they are suspects, which need node processes of their own and a commit after each step.

        Raises:
            Refused: The code of the sweep cannot run in this process.
            StoreError: The database is unreachable.
        """
        # Opening may import code for minutes. The lock is not `_lock`, which the heartbeat needs.
        with self._opening:
            alike = [
                candidate
                for candidate in self._assignments
                if candidate.sweep_id == sweep_id and candidate.apart == apart
            ]
            fit = (candidate for candidate in alike if candidate.knows(rows) and not candidate.stop.requested)
            assignment = next(fit, None)
            if assignment is None:
                assignment = SweepAssignment(self, self.codes, find_sweep(self.database, sweep_id), apart=apart)
                with self._lock:
                    self._assignments.append(assignment)
            assignment.use(len(rows))
            return assignment

    def suspend_for_disk(self, assignment: SweepAssignment, reason: str) -> None:
        """Stop working on a sweep while a disk of this machine is full; workers elsewhere may continue with it."""
        self._refusals.suspend(assignment.sweep_id)
        self._drop_waiting(assignment)
        self._refusals.record_full(assignment.sweep_id, reason)

    # Releasing work to other workers.

    def release_to_free_slots(self) -> None:
        """Release waiting executions for free slots elsewhere, oldest first: most of the tree is still below them."""
        with self._lock:
            if not self._waiting or not self._demand_look.is_due():
                return
        with self._demand_look.timed():
            demand = queue.demand(self.database, elsewhere_than=self.runner.id)
        for name in self.queues:
            count = demand[name].share if name in demand else 0
            for work in self._waiting.remove_of_queue(name, count):
                self._release(work)

    def _release(self, work: Work, reason: str = "for a slot that is free") -> None:
        """Release waiting work for another worker. Does nothing if it was cancelled meanwhile, for example."""
        assignment, execution = work
        try:
            with suppress(Lost):
                assignment.runner.release(execution, reason)
        finally:
            self._count_end(work)

    # Polling and shutdown.

    def _poll(self) -> None:
        """Apply decisions of others about the sweeps, and close unused assignments. Called once a second."""
        with self._polling:
            if not self.ended:
                self._poll_sweeps()
                self.scorings.look()
        # Here, too, because all slots of this process may be busy for hours.
        self.release_to_free_slots()
        if time.monotonic() > self._kill_nodes_at:
            self.end_nodes()

    def _poll_sweeps(self) -> None:
        with self._lock:
            assignments = list(self._assignments)
        sweep_ids = {assignment.sweep_id for assignment in assignments} | self._refusals.refused_ids()
        statuses = leases.sweep_statuses(self.database, sweep_ids) if sweep_ids else {}
        self._refusals.forget(statuses)
        deferred_starts = [
            row_cells.begin_deferred(self.database, id) for id in row_cells.open_with_deferred(self.database)
        ]
        if self._refusals.check_disk_space() or any(deferred_starts):
            self.publish()
        if self._refusals.record():
            self.publish()
        for assignment in assignments:
            status, reason = statuses.get(assignment.sweep_id, ("deleted", None))
            if status not in ("pending", "running"):
                self._apply_decision(assignment, status, reason)
            elif not assignment.is_idle():
                assignment.context.refresh_usage()
                self._poll_requests(assignment)
            elif complete(self.database, assignment.sweep_id):
                status = "completed"
            assignment.context.look_at_memory()
            if assignment.is_idle() and (
                assignment.stop.requested or assignment.is_expired or status not in ("pending", "running")
            ):
                if not self._forget(assignment):
                    continue
                assignment.close()
        self.codes.cool()

    def _forget(self, assignment: SweepAssignment) -> bool:
        """Drop an idle assignment. Returns False if it is used again, or if another one is being opened just now.

        Opening may take longer than a lease, and the heartbeat, whose thread this is, does not wait for it.
        """
        if not self._opening.acquire(blocking=False):
            return False
        try:
            with self._lock:
                if assignment.is_idle():
                    self._assignments.remove(assignment)
                    return True
                return False
        finally:
            self._opening.release()

    def _poll_requests(self, assignment: SweepAssignment) -> None:
        """Apply requests of people for executions of a sweep, and release those that wait for a slot."""
        requests = assignment.poll_requests(self._waiting.executions_of(assignment))
        affected = self._waiting.remove(lambda work: work[0] is assignment and requests.affects(work[1]))
        for _, execution in affected:
            try:
                assignment.runner.release_to_user(execution)
            finally:
                assignment.use(-1)
                self._count(execution, -1)

    def _apply_decision(self, assignment: SweepAssignment, status: str, reason: str | None) -> None:
        if not assignment.stop.requested:
            limit = "wall" if reason is not None and reason.startswith(WALL) else None
            assignment.stop.request(reason or f"the sweep was {status}", limit=limit, decided=status)
        self._drop_waiting(assignment)
        # A sweep that its stopping rule has completed has skipped the cells that still run.
        is_decided = status == "completed" and (reason or "").startswith(ENOUGH_KNOWN)
        unwanted = is_decided or status not in ("paused", "completed") or assignment.stop.is_late(assignment.grace_s)
        if unwanted and not assignment.is_idle():
            assignment.end_nodes()

    def _drop_waiting(self, assignment: SweepAssignment | None = None) -> None:
        """Release waiting executions, of one assignment or of all."""
        for work in self._waiting.remove(lambda work: assignment is None or assignment is work[0]):
            self._release(work, work[0].stop.reason or STOPPED)

    def stop(self, reason: str) -> None:
        """Take no more work. Running nodes have the grace period of their sweep; then their executions are released."""
        if self.stopping is not None:
            return
        self.stopping = reason
        self.scorings.stop(reason)
        with self._lock:
            assignments = list(self._assignments)
        for assignment in assignments:
            assignment.stop.request(reason)
        self._drop_waiting()
        self._kill_nodes_at = time.monotonic() + max((assignment.grace_s for assignment in assignments), default=0.0)

    def end_nodes(self) -> None:
        """Kill the nodes that still run."""
        with self._lock:
            assignments = list(self._assignments)
        for assignment in assignments:
            assignment.end_nodes()

    def _on_leases_lost(self) -> None:
        self.end(broken=True)

    def end(self, *, broken: bool = False) -> None:
        """End the session. If it is `broken`, uncommitted work is lost, and the executions run again elsewhere."""
        with self._lock:
            if self.ended:
                return
            self.ended = True
            assignments = list(self._assignments)
        self._waiting.remove(lambda work: True)
        self.stop("its worker lost its leases" if broken else "its worker ended")
        self._heartbeat.end()
        # A poll may be closing an assignment just now. The timeout is for a poll whose database does not respond.
        acquired = self._polling.acquire(timeout=CLOSING_S)
        try:
            for assignment in assignments:
                if broken:
                    assignment.end_nodes()
                with suppress(WTBError):
                    assignment.close(broken=broken)
            self.codes.close()
        finally:
            if acquired:
                self._polling.release()
            self._closed.set()
        with suppress(WTBError):
            self.release_leases()
            self.clean_up()

    def release_leases(self) -> None:
        """Release the leases that are left after `end`. Raises StoreError; call it again then."""
        if self._released:
            return
        # First the commits of `end`: a result that is written after its lease was released would be rejected.
        self._closed.wait(CLOSING_S)
        leases.release_all(self.database, self.runner.id)
        end_runner(self.database, self.runner.id)
        self._released = True

    def clean_up(self) -> None:
        """Remove files and processes that dead runners left on this machine. Raises StoreError."""
        clean(self.database, self._home.root)
        clean_files(self.database, self._home.files)


def _is_over(status: str | None) -> bool:
    """Return whether a sweep of this status is at its end."""
    return status not in (None, "pending", "running", "paused")
