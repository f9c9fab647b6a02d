"""Running a fork: one execution that runs in this process and leaves its sweep as it is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from wtb.core.errors import WTBError
from wtb.execution.execution import Execution
from wtb.execution.load import load_executions
from wtb.execution.runtime.sweep_run import Ended, SweepRun
from wtb.planning.binding import Bound
from wtb.store.control.forks import claim_fork
from wtb.store.database import Database
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import may_live
from wtb.store.read.queries import find_execution
from wtb.store.runs import leases
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.sweeps import SweepRow


class ForkRun(SweepRun):
    """A run of one execution that owns no cell. The sweep keeps its status, and whoever runs the sweep continues."""

    def __init__(
        self, database: Database, execution_id: str, row: SweepRow, bound: Bound, workspaces: Workspaces
    ) -> None:
        self.execution_id = execution_id
        self._status = row.status
        super().__init__(database, row, bound, workspaces=workspaces)

    def _take_over(self, row: SweepRow) -> None:
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
        claimed = claim_fork(self.database, self.execution_id, self.sweep.ids.runner_id, LEASE_S)
        for row in claimed:
            self.journal.adopt_claim(row.id, row.token)
        return load_executions(self.database, self.sweep_id, claimed)

    def _see_decision(self) -> None:
        status, reason = leases.sweep_statuses(self.database, [self.sweep_id]).get(self.sweep_id, ("deleted", None))
        if status in ("cancelled", "deleted") and not self.stop.requested:
            self.stop.request(reason or f"the sweep was {status}", decided=status)
            self.code.close()


def is_being_run(database: Database, sweep: SweepRow) -> bool:
    """Return whether a live process runs a sweep, and so claims its pending executions."""
    return any(
        may_live(one, expired=one.expired) for one in leases.owners(database, sweep.id) if one.id == sweep.runner_id
    )
