"""Running a sweep in this process: its pool, its journal, its heartbeat and its end; or one fork of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from wtb.analysis.sweep_ends import Stopping
from wtb.authoring.code.calling import Caller, Debugged
from wtb.config.run_options import SYNC_SLOTS
from wtb.core.errors import ConflictError, StoreError, WTBError
from wtb.core.fault_points import point
from wtb.core.stop import PROCESS_DIED, Stop, Stopped
from wtb.core.tree.stored_spec import Limits
from wtb.execution.described_code import DescribedBound, run_described
from wtb.execution.engine.description import DescribedEngine
from wtb.execution.engine.protocol import engine_of
from wtb.execution.execution import Execution
from wtb.execution.load import load_executions
from wtb.execution.runtime.alerts import Alerts
from wtb.execution.runtime.sweep_context import SweepContext, in_processes, on_threads
from wtb.execution.runtime.thread_pool import LocalPool, slots_of
from wtb.execution.runtime.upkeep import Heartbeat, clean, clean_files, repair_sweep
from wtb.execution.state import Progress, ended_cells
from wtb.execution.waits import DATABASE_BLIND_S, Room, disks
from wtb.planning.binding import Bound
from wtb.store.control import approvals, executions
from wtb.store.control.forks import claim_fork
from wtb.store.database import Database
from wtb.store.database_url import is_disk_full
from wtb.store.files.locations import check_files
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Bounds, Workspaces
from wtb.store.housekeeping.contents import mark, settle
from wtb.store.housekeeping.deletion import delete_sweep
from wtb.store.process_identity import identity, is_not_dead, may_live, state_of
from wtb.store.read.costs import mean_seconds, measured_runs, recent_sweeps
from wtb.store.read.queries import cell_counts, find_execution, find_sweep
from wtb.store.runs import leases
from wtb.store.runs.leases import record_full, record_room
from wtb.store.runs.slots import LEASE_S, end_runner, register_runner
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

CLOSING_S = 5.0  # for slots to end once their node processes have
ALERTS_S = 15.0  # for the last alerts
AT_ONCE = 256  # executions claimed in one transaction


@dataclass(frozen=True)
class Ended:
    """The end of a run.

    Attributes:
        status: The status of the sweep.
        reason: The reason, if it is not completed.
        limit: The limit that was reached, if any.
        stuck: The number of threads that did not end.
    """

    status: str
    reason: str | None = None
    limit: str | None = None
    stuck: int = 0


def default_slots(database: Database, bound: Bound) -> int:
    """Return how many node runs a sweep makes at a time on this machine, if its session allows so many."""
    engine = DescribedEngine(bound.workflow, bound.described.description) if isinstance(bound, DescribedBound) else None

    def seconds() -> Mapping[tuple[str, str], float]:
        return mean_seconds(measured_runs(database, recent_sweeps(database, bound.workflow.name, 1)))

    return slots_of(bound.spec.run, engine or engine_of(bound.adapter), bound.vary, seconds)


class SweepRun:
    """One run of a submitted sweep by this process. Call `start`, then `wait` until it returns True, then `finish`.

    With `only`, it runs this execution and its forks instead of everything that is pending.

    Raises ConflictError if another process runs the sweep, or if the quota of the session allows no node run.
    """

    def __init__(
        self,
        database: Database,
        row: SweepRow,
        bound: Bound,
        *,
        workspaces: Workspaces,
        limits: Limits | None = None,
        pdb: bool = False,
        only: str | None = None,
    ) -> None:
        self.database = database
        self._only = only
        self.sweep_id: str = row.id
        self._row = row
        self.stop = Stop()
        self.caller = Debugged() if pdb else Caller()
        self._reclaim(row)
        # A database in memory has no earlier runs whose files could be missing.
        if database.path is not None or not database.is_sqlite:
            check_files(database, workspaces)
            mark(database, workspaces.files)
            settle(database, workspaces.files)
        clean(database, workspaces.root)
        clean_files(database, workspaces.files)
        runner = identity()
        run = bound.spec.run
        self._grace = run.grace
        bounds = Bounds(**run.workspace.model_dump())
        home = workspaces.of_project(row.project)
        self.workspaces = home.of_runner(runner.id, self.sweep_id, runner.id, bounds=bounds)
        counts = cell_counts(database, self.sweep_id)
        self.progress = Progress(row.cells, self.sweep_id)
        self.progress.add(**ended_cells(counts))
        room = Room(disks(workspaces.root, workspaces.files.root), self.stop, self._is_full, self._has_room)
        self.context = SweepContext(database, row, bound, runner.id, self.progress, room, limits=limits)
        self.sweep = self.context.sweep
        slot_count = default_slots(database, bound)
        self.slots = register_runner(database, runner, row.session_id, slot_count, LEASE_S, alive=is_not_dead)
        unshared = run.concurrency or SYNC_SLOTS
        if isinstance(bound, DescribedBound):
            self.code = run_described(
                bound, bound.described, self.workspaces, runner.id, self.slots, is_ready=False, unshared=unshared
            )
        elif bound.pool == "thread" or pdb:
            self.code = on_threads(bound, self.workspaces, self.caller)
        else:
            self.code = in_processes(bound, self.workspaces, runner.id, self.slots, unshared=unshared)
        self.pool = LocalPool(self.slots, self._claim, self.stop)
        self.runner = self.context.runner(self.code, self.workspaces, self.pool, waits=self._waits_for_room)
        self.journal = self.runner.journal
        self._heartbeat = Heartbeat(database, runner.id, LEASE_S, look=self._look, stopped=self._stopped)
        self._alerts = None if row.notify is None else Alerts(database, self.sweep_id)
        self._stopping = Stopping(database, row)

    def _reclaim(self, row: SweepRow) -> None:
        reclaim_sweep(self.database, self.sweep_id)
        if row.status != "pending":
            # It ran before, and its values may have been damaged since.
            repair_sweep(self.database, row)

    def start(self) -> None:
        """Mark the sweep as running and start the slots. Raises WTBError if user code cannot be prepared."""
        self.begin()
        self.pool.start(self.runner.run)

    def run_here(self) -> Ended:
        """Run on the calling thread, one execution at a time. Raises WTBError as `start` does."""
        self.begin()
        self.pool.work(self.runner.run)
        return self.finish()

    def begin(self) -> None:
        """Do the first half of `start`: everything but the work."""
        leases.move_sweep(self.database, self.sweep_id, "running", runner_id=self.sweep.ids.runner_id)
        self._heartbeat.start()
        try:
            self.code.prepare(min(self.slots, self.progress.cells - self.progress.done))
        except WTBError as error:
            self._heartbeat.end()
            leases.move_sweep(self.database, self.sweep_id, "failed", reason=str(error))
            self._clean_up()
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`. Returns whether to `finish`: all slots have ended, or one has failed."""
        return self.pool.wait(seconds)

    def finish(self) -> Ended:
        """Commit what is left, release unfinished executions, and set the final status of the sweep.

        Raises the error that ended a slot, if one did; the sweep is paused then.
        """
        try:
            return self._finish()
        except Exception as error:
            with suppress(WTBError):  # the database may be what is wrong
                leases.release_runners(self.database, self.sweep_id, [self.sweep.ids.runner_id])
                leases.move_sweep(self.database, self.sweep_id, "paused", reason=str(error))
            raise
        finally:
            self._clean_up()

    def _finish(self) -> Ended:
        """Commit, release what is left, and decide the status of the sweep."""
        stuck = self._end_slots()
        leases.release_runners(self.database, self.sweep_id, [self.sweep.ids.runner_id])
        point("finish.released")
        self._see_decision()
        if self.stop.decided is not None:
            return Ended(self.stop.decided, self.stop.reason, stuck=stuck)
        if self.stop.requested:
            return self._pause(self.stop.reason or "stopped", stuck)
        if open_statuses := executions.complete(self.database, self.sweep_id):
            if "running" in open_statuses:
                return Ended("running", "others still work on it", stuck=stuck)
            return self._pause(executions.standstill(self.database, self.sweep_id, open_statuses), stuck)
        return Ended("completed", stuck=stuck)

    def _end_slots(self) -> int:
        """End what still runs, and commit what is left. Returns how many threads did not end."""
        if any(thread.is_alive() for thread in self.pool.threads) and self.code.close():  # they had their time
            self.pool.wait_all(CLOSING_S)
        stuck = sum(thread.is_alive() for thread in self.pool.threads)
        try:
            self.pool.check()
        finally:
            # Even if a slot failed: finished node runs are committed, while the heartbeat still keeps the leases.
            self.journal.close()
        self._heartbeat.end()
        if not stuck:
            self.caller.close()
        return stuck

    def _pause(self, reason: str, stuck: int) -> Ended:
        """Pause the sweep, unless a person or its own stopping rule has just ended it."""
        if leases.pause(self.database, self.sweep_id, reason, by="wtb"):
            return Ended("paused", reason, self.stop.limit, stuck)
        status, why = leases.sweep_statuses(self.database, [self.sweep_id]).get(self.sweep_id, ("deleted", None))
        return Ended(status, why, stuck=stuck)

    def _clean_up(self) -> None:
        """Stop everything that was started for this run, and remove its directories."""
        self._heartbeat.end()
        self.code.close()
        with suppress(WTBError):
            self.journal.close()
        self.workspaces.files.remove_unfinished(self.workspaces.files.owner)
        remove_tree(self.workspaces.root)
        for folder in (self.workspaces.root.parent, self.workspaces.root.parent.parent):
            with suppress(OSError):  # somebody else works there
                folder.rmdir()
        with suppress(WTBError):
            end_runner(self.database, self.sweep.ids.runner_id)
        if self._alerts is not None:
            self._alerts.finish(ALERTS_S)

    def _claim(self) -> Sequence[Execution]:
        """Claim more pending executions, and load them. Waits while the disk of the database is full."""
        only = None if self._only is None else [row.id for row in executions.line_of(self.database, self._only)]
        while True:
            try:
                claimed = leases.claim(
                    self.database, self.sweep_id, self.sweep.ids.runner_id, AT_ONCE, LEASE_S, only=only
                )
                break
            except StoreError as error:
                if not self._waits_for_room(error):
                    raise
        point("claim.committed")
        return self._accept(claimed)

    def _accept(self, claimed: Sequence[ExecutionRow]) -> Sequence[Execution]:
        """Let the journal write for claimed executions, and load them."""
        for row in claimed:
            self.journal.accept_claim(row.id, row.token)
        return load_executions(self.database, self.sweep_id, claimed)

    def _look(self) -> None:
        """Read decisions of others about the sweep and its executions, and the usage of the session's quotas."""
        with suppress(ConflictError):  # somebody else decided about it just now
            self._stopping.look(self.progress.done)
        self._see_decision()
        if self._alerts is not None:
            self._alerts.look()
        approvals.expire(self.database)
        self.context.refresh_usage()
        self.context.look_at_memory()
        if self.stop.is_late(self._grace):
            self.code.close()
        requests = self.context.poll_requests(self.code, self.pool.waiting())
        for execution in self.pool.drain(requests.affects):
            self.runner.release_to_user(execution)
        if requests.pending:
            self.pool.look_again()

    def _see_decision(self) -> None:
        """Stop if somebody else changed the status of the sweep; unless it is paused, end its nodes, too."""
        status, reason = leases.sweep_statuses(self.database, [self.sweep_id]).get(self.sweep_id, ("deleted", None))
        if status != "running" and not self.stop.requested:
            self.stop.request(reason or f"the sweep was {status}", decided=status)
            # A paused sweep will continue, so its running nodes may finish. After a cancellation their results have no
            # use.
            if status != "paused":
                self.code.close()

    def _is_full(self, reason: str) -> None:
        self.progress.add_notice(reason)
        with suppress(StoreError):  # it may be the disk of the database
            record_full(self.database, self._row, reason)

    def _has_room(self) -> None:
        if not self.stop.requested:
            self.progress.add_notice("there is room again: continuing")
            with suppress(StoreError):
                record_room(self.database, self._row)

    def _waits_for_room(self, error: StoreError) -> bool:
        """If the disk of the database is full, wait for room. Returns whether the journal should write again."""
        if not is_disk_full(error):
            return False
        places = () if self.database.path is None else (self.database.path.parent,)
        why = f"the disk of the database is full ({error}): make room, and it continues by itself"
        try:
            Room(disks(*places), self.stop, self._is_full, self._has_room).wait(why, blind_s=DATABASE_BLIND_S)
        except Stopped:
            return False
        return True

    def _stopped(self) -> None:
        self.stop.request("its heartbeat ended, so that others may take over")
        self.code.close()


def new_run(database: Database, sweep_id: str, bound: Bound, workspaces: Workspaces, *, pdb: bool = False) -> SweepRun:
    """Make the first run of a new sweep. If this raises ConflictError, the sweep is deleted."""
    try:
        return SweepRun(database, find_sweep(database, sweep_id), bound, workspaces=workspaces, pdb=pdb)
    except ConflictError:
        delete_sweep(database, sweep_id)
        raise


def reclaim_sweep(database: Database, sweep_id: str) -> None:
    """Reclaim a sweep whose owners are provably dead. Raises ConflictError naming an owner that may be alive."""
    dead = []
    for owner in leases.owners(database, sweep_id):
        if may_live(owner, expired=owner.expired):
            where = f"process {owner.pid} on {owner.host}"
            seen = state_of(owner) == "alive"
            what = "is running it" if seen else "holds it, and whether it lives cannot be seen from here"
            raise ConflictError(
                f"sweep {sweep_id}: {where} {what}; stop that process first"
                + ("" if seen else f", or wait {LEASE_S:.0f} s for its lease to end")
            )
        dead.append(owner.id)
    if dead:
        leases.release_runners(database, sweep_id, dead)
        # Does nothing for a sweep that has ended and of which only a fork was running.
        leases.pause(database, sweep_id, PROCESS_DIED, by="wtb")


class ForkRun(SweepRun):
    """A run of one execution that owns no cell. The sweep keeps its status, and its own runner continues."""

    def __init__(
        self, database: Database, execution_id: str, row: SweepRow, bound: Bound, workspaces: Workspaces
    ) -> None:
        self.execution_id = execution_id
        self._status = row.status
        super().__init__(database, row, bound, workspaces=workspaces)

    def _reclaim(self, row: SweepRow) -> None:
        """Does nothing: this run does not own the sweep."""

    def begin(self) -> None:
        self._heartbeat.start()
        try:
            self.code.prepare()
        except WTBError:
            self._clean_up()
            raise

    def finish(self) -> Ended:
        """Commit what is left, and release the execution if it has not ended."""
        try:
            stuck = self._end_slots()
        finally:
            with suppress(WTBError):
                leases.release_all(self.database, self.sweep.ids.runner_id)
            self._clean_up()
        row = find_execution(self.database, self.execution_id)
        return Ended(row.status, row.reason or self.stop.reason, stuck=stuck)

    def _claim(self) -> Sequence[Execution]:
        return self._accept(claim_fork(self.database, self.execution_id, self.sweep.ids.runner_id, LEASE_S))

    def _see_decision(self) -> None:
        status, reason = leases.sweep_statuses(self.database, [self.sweep_id]).get(self.sweep_id, ("deleted", None))
        if status in ("cancelled", "deleted") and not self.stop.requested:
            self.stop.request(reason or f"the sweep was {status}", decided=status)
            self.code.close()


def is_being_run(database: Database, sweep: SweepRow) -> bool:
    """Return whether a live process runs a sweep, so that it claims pending executions."""
    return any(
        may_live(owner, expired=owner.expired)
        for owner in leases.owners(database, sweep.id)
        if owner.id == sweep.runner_id
    )
