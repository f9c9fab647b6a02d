"""The context in which this process runs a submitted sweep: its budgets, its disk quota, and its code executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from wtb.authoring.cedar_policies import written
from wtb.authoring.code.calling import Caller
from wtb.authoring.graph import outline_digest
from wtb.config.yaml_reader import Located
from wtb.core.errors import StoreError
from wtb.core.frozen import frozen
from wtb.core.stop import Disk
from wtb.core.tree import stored_spec
from wtb.execution.engine.executor import CodeExecutor, Surroundings, ThreadExecutor
from wtb.execution.engine.protocol import engine_of
from wtb.execution.engine.redacting import redacting
from wtb.execution.execution import Execution
from wtb.execution.holds import Holds
from wtb.execution.journal import Journal
from wtb.execution.runner import Dispatcher, Runner
from wtb.execution.runtime.budgets import Budgets
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.quotas import CALM_S, REACHED, Permits, session_memory
from wtb.execution.sandbox.framing import CodeHead
from wtb.execution.sandbox.pool import InProcesses, UserCode
from wtb.execution.state import Combinations, Limits, Progress, RunningSweep, SweepIds, SweepPolicies
from wtb.execution.waits import NoRoom, ProviderWaits, Room
from wtb.planning.binding import Bound
from wtb.planning.checks import check_nodes
from wtb.store.access.budgets import open_budgets
from wtb.store.access.sessions import Quota, quota_of
from wtb.store.access.usage import disk_used
from wtb.store.control import executions
from wtb.store.control.stopped import end_stopped
from wtb.store.database import Database
from wtb.store.files.workspaces import Workspaces
from wtb.store.housekeeping.contents import missing_files
from wtb.store.read.queries import choices
from wtb.store.runs.flush import flush
from wtb.store.runs.leases import record_memory_wait, recorded_code
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.sweeps import SweepRow


@frozen
class PendingRequests:
    """Requests of people for the executions of this process.

    Attributes:
        lost_claims: (execution, token) of executions whose lease was lost.
        pending: Whether more of the sweep could be claimed.
        holds: The holds of the sweep, up to date.
    """

    lost_claims: Collection[tuple[str, int]]
    pending: bool
    holds: Holds

    def affects(self, execution: Execution) -> bool:
        """Return whether an execution that waits for a slot must be released."""
        return (execution.id, execution.token) in self.lost_claims or self.holds.requested(execution) is not None


class SweepContext:
    """A sweep as this process runs it, kept up to date with the usage of others in its session.

    `limits` replace those of the sweep from now on. Raises InputError if they allow less than is already spent.
    """

    def __init__(
        self,
        database: Database,
        row: SweepRow,
        bound: Bound,
        runner_id: str,
        progress: Progress,
        room: Room | NoRoom,
        *,
        limits: stored_spec.Limits | None = None,
    ) -> None:
        self._database = database
        self._session = row.session_id
        stop = room.stop
        self._quota = quota_of(database, self._session)
        bound = bound.with_recorded(recorded_code(database, row))
        check_nodes(bound.workflow, (limits or {}).get("nodes") or (), Located(where="limits"))
        open_budgets(database, row, self._quota.budgets(self._session), limits or stored_spec.Limits())
        wall = limits["wall"] if limits and "wall" in limits else bound.spec.limits.wall
        used = _disk_used(database, self._session, self._quota)
        limited = Limits(
            stop,
            Budgets(database, row, runner_id, bound.workflow, stop, wall=wall),
            Permits(bound.workflow, stop, database, runner_id),
            Disk(self._quota.disk, used, lambda new: missing_files(database, self._session, new)),
            room,
            ProviderWaits(stop, bound.spec.run.provider_wait, progress.add_notice),
            session_memory(database, runner_id, self._session),
        )
        self._row = row
        self._code: CodeExecutor | None = None
        self._is_told = (row.reason or "").startswith(REACHED)
        self._waited_at = 0.0
        self._looks_left = 0
        self.written = WrittenFiles(database, row, progress.add_notice, is_shared=bound.pool == "thread")
        self.sweep = RunningSweep(
            SweepIds(self._session, row.id, runner_id),
            bound,
            Combinations(bound, choices(database, row.id)),
            Holds(bound, row.breakpoints or ()),
            limited,
            progress,
            database,
            self.written,
            single=row.kind == "single",
            policies=_policies(row, bound),
        )

    def runner(
        self,
        code: CodeExecutor,
        workspaces: Workspaces,
        dispatcher: Dispatcher,
        *,
        sync: bool = False,
        waits: Callable[[StoreError], bool] = lambda error: False,
    ) -> Runner:
        """Make the runner of the sweep, with a journal that starts now.

        Args:
            code: Runs the code of the sweep.
            workspaces: Directories for its attempts.
            dispatcher: Takes the executions that fork off.
            sync: Whether to commit every step at once, whatever the sweep sets.
            waits: See `Journal`.
        """
        code.accept_files(self.written.cover)
        self._code = code
        self.sweep.limits.memory.add(code)
        self.sweep.limits.memory.look()
        durability = "sync" if sync else self.sweep.bound.spec.run.durability
        journal = Journal(
            lambda batch: flush(self._database, batch, LEASE_S, journal.reopen),
            0.0 if durability == "sync" else float(durability),
            waits,
        )
        return Runner(self.sweep, code, journal, workspaces, dispatcher)

    def refresh_usage(self) -> None:
        """Read the usage of the session's disk quota and of the budgets, by all runners."""
        self.sweep.limits.budgets.look()
        self.sweep.limits.disk.seen(_disk_used(self._database, self._session, self._quota))

    def look_at_memory(self) -> None:
        """Measure the node processes of the session, if it has a memory quota, and report if node runs wait."""
        memory, now = self.sweep.limits.memory, time.monotonic()
        memory.look()
        reason = memory.reason
        self._waited_at = self._waited_at if reason is None else now
        if reason is not None and not self._is_told:
            self.sweep.progress.add_notice(reason)
            record_memory_wait(self._database, self._row, reason)
            self._is_told = True
        # Only after some calm: around the quota, a message for each change would be noise.
        elif reason is None and self._is_told and now - self._waited_at >= CALM_S:
            record_memory_wait(self._database, self._row, None)
            self._is_told = False

    def close(self) -> None:
        """Stop measuring, because the code of the sweep no longer runs in this process."""
        if self._code is not None:
            self.sweep.limits.memory.remove(self._code)
            self._code = None

    def poll_requests(self, code: CodeExecutor, waiting: Sequence[Execution]) -> PendingRequests:
        """Read the requests of people, and kill the nodes of executions whose lease was lost.

        Args:
            code: Runs the code of the sweep.
            waiting: Executions that wait for a slot in this process.
        """
        sweep = self.sweep
        seen = executions.read_requests(self._database, sweep.ids.id, sweep.ids.runner_id)
        sweep.holds.refresh(seen.by_execution, seen.breakpoints)
        self._see_stopped(seen.stopped)
        claimed = [*code.running_attempts(), *((execution.id, execution.token) for execution in waiting)]
        lost_claims = executions.lost_claims(self._database, sweep.ids.runner_id, claimed) if claimed else set()
        for execution, token in lost_claims:
            code.end_attempt(execution, token)
        return PendingRequests(lost_claims, seen.pending, sweep.holds)

    def _see_stopped(self, stopped: frozenset[int]) -> None:
        """End executions that only stopped combinations need, and let others continue without these."""
        combinations = self.sweep.combinations
        if stopped - combinations.stopped:
            self._looks_left = _LOOKS_AFTER_STOP
        combinations.stopped = stopped
        if self._looks_left and stopped:
            self._looks_left -= 1
            end_stopped(self._database, self.sweep.ids.id, stopped)


_LOOKS_AFTER_STOP = 3  # in which executions end that forked off while their runner did not know


def _policies(row: SweepRow, bound: Bound) -> SweepPolicies | None:
    """Return the recorded policies of a sweep, with the facts that they can refer to."""
    recorded = row.spec.get("policies")
    if recorded is None:
        return None
    facts = {"sweep": row.name, "workflow": bound.workflow.name, "session": row.session, "project": row.project}
    if "submitted_by" in row.spec:
        facts["submitted_by"] = row.spec["submitted_by"]
    return SweepPolicies(recorded["by"], written(recorded, facts))


def _disk_used(database: Database, session: str, quota: Quota) -> int:
    """Return the bytes that a session uses of its disk quota; zero if it has none."""
    return 0 if quota.disk is None else disk_used(database, session)


def on_threads(bound: Bound, workspaces: Workspaces, caller: Caller) -> CodeExecutor:
    """Make the executor that runs the code of a sweep on threads of this process."""
    surroundings = Surroundings(caller, bound.workflow.resources, workspaces)
    return redacting(ThreadExecutor(bound.adapter, bound.evaluators, surroundings), bound.spec.redact.redactor)


def in_processes(
    bound: Bound, workspaces: Workspaces, owner: str, slots: int, *, unshared: int | None = None
) -> CodeExecutor:
    """Make the executor for at most `slots` node processes, of which `unshared` serve one node run at a time."""
    head: CodeHead = {
        "fingerprints": bound.fingerprints,
        "code": bound.code,
        "outline": outline_digest(bound.workflow),
    }
    code = UserCode(engine_of(bound.adapter), bound.evaluators, bound.recipe, head)
    return redacting(
        InProcesses(code, bound.spec.run, workspaces, owner, slots, unshared=unshared), bound.spec.redact.redactor
    )
