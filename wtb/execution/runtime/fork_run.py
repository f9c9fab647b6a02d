"""Running a fork: one execution that runs in this process and leaves its sweep as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from wtb.core.errors import WTBError
from wtb.execution.execution import Execution
from wtb.execution.load import load_executions
from wtb.execution.runtime.sweep_run import Ended, SweepRun
from wtb.planning.binding import Bound
from wtb.store.control.forks import claim_fork
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import may_live
from wtb.store.read.queries import find_execution, find_sweep
from wtb.store.runs import leases
from wtb.store.runs.slots import LEASE_S


class ForkRun(SweepRun):
    """A run of one execution that owns no cell. The sweep keeps its status, and whoever runs the sweep goes on."""

    def __init__(
        self, database: Database, execution_id: str, row: Mapping[str, Any], bound: Bound, workspaces: Workspaces
    ) -> None:
        self.execution_id = execution_id
        self._status = row["status"]
        super().__init__(database, row, bound, workspaces=workspaces)

    def _take_over(self, row: Mapping[str, Any]) -> None:
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
            try:
                self.pool.check()
            finally:
                self.journal.close()
            self._heartbeat.end()
            self.caller.close()
        finally:
            with suppress(WTBError):
                leases.release_all(self.database, self.sweep.runner_id)
            self._clean_up()
        row = find_execution(self.database, self.execution_id)
        return Ended(row["status"], row["reason"])

    def _claim(self) -> Sequence[Execution]:
        claimed = claim_fork(self.database, self.execution_id, self.sweep.runner_id, LEASE_S)
        for row in claimed:
            self.journal.adopt_claim(row["id"], row["token"])
        return load_executions(self.database, self.sweep_id, claimed)

    def _see_decision(self) -> None:
        status, reason = leases.sweep_statuses(self.database, [self.sweep_id]).get(self.sweep_id, ("deleted", None))
        if status in ("cancelled", "deleted") and not self.stop.requested:
            self.stop.request(reason or f"the sweep was {status}", decided=status)
            self.code.close()


def is_being_run(database: Database, sweep: Mapping[str, Any]) -> bool:
    """Return whether a live process runs a sweep, and so claims its pending executions."""
    return any(map(may_live, (one for one in leases.owners(database, sweep["id"]) if one["id"] == sweep["runner_id"])))


def run_fork(database: Database, execution_id: str, bound: Bound) -> str:
    """Run a pending execution that owns no cell, unless another process runs its sweep. Returns a line for people."""
    execution = find_execution(database, execution_id)
    sweep = find_sweep(database, execution["sweep_id"])
    if is_being_run(database, sweep):
        return f"execution {execution_id} is for the process that runs the sweep; see: wtb show {execution_id}"
    ended = ForkRun(database, execution_id, sweep, bound, workspaces_of(database)).run_here()
    why = f" ({ended.reason})" if ended.reason else ""
    return f"execution {execution_id} is {ended.status}{why}; see: wtb show {execution_id}"
