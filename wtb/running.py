"""Running a sweep in this process: its pool, its journal, its heartbeat, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wtb.binding import Bound
from wtb.calling import Caller, Debugged
from wtb.claiming import load_executions
from wtb.engine import NativeEngine
from wtb.errors import ConflictError, WTBError
from wtb.journal import Journal
from wtb.limits import Limits, Stop
from wtb.live import Execution, LiveSweep, Progress
from wtb.local import LocalPool
from wtb.ownership import identity, state_of
from wtb.runner import Runner
from wtb.store import claims
from wtb.store.database import Database
from wtb.store.flush import flush
from wtb.store.reading import cell_counts, choices, spent
from wtb.usercode import Surroundings, UserCode
from wtb.workspace import FileStore, Workspaces

LEASE_S = 30.0
AT_ONCE = 256  # executions claimed in one transaction


@dataclass(frozen=True)
class Ended:
    """How a run ended: the sweep's status, and why where it is not completed. `limit`: the one that was reached.

    stuck: threads left behind.
    """

    status: str
    reason: str | None = None
    limit: str | None = None
    stuck: int = 0


def workspaces_of(database: Database, folder: Path | None = None) -> Workspaces:
    """Where files are kept: beside an SQLite database, else in `.wtb`."""
    home = folder or (database.path.parent if database.path is not None else Path(".wtb"))
    home = home.absolute()
    return Workspaces(FileStore(home / "files"), home / "attempts")


class SweepRun:
    """One run of a submitted sweep by this process. `start`, then `wait` until it is true, then `finish`."""

    def __init__(
        self,
        database: Database,
        row: Mapping[str, Any],
        bound: Bound,
        *,
        workspaces: Workspaces,
        limits: Mapping[str, Any] | None = None,
        pdb: bool = False,
    ) -> None:
        self.database = database
        self.sweep_id: str = row["id"]
        self.workspaces = workspaces
        self.stop = Stop()
        self.caller = Debugged() if pdb else Caller()
        take_over(database, self.sweep_id)
        runner = identity()
        claims.register(database, runner)
        counts = cell_counts(database, self.sweep_id)
        self.progress = Progress(row["cells"])
        self.progress.add(succeeded=counts.get("succeeded", 0), failed=counts.get("failed", 0))
        used_node_runs, used_usd = spent(database, self.sweep_id)
        allowed = {**bound.spec.limits.model_dump(exclude={"cell_timeout"}), **(limits or {})}
        self.sweep = LiveSweep(
            id=self.sweep_id,
            session_id=row["session_id"],
            runner_id=runner["id"],
            bound=bound,
            choices=choices(database, self.sweep_id),
            limits=Limits(self.stop, **allowed, used_node_runs=used_node_runs, used_usd=used_usd),
            stop=self.stop,
            progress=self.progress,
        )
        surroundings = Surroundings(self.caller, bound.workflow.resources, workspaces)
        self.code = UserCode(NativeEngine(bound.workflow), bound.evaluators, surroundings)
        self.slots = bound.spec.run.concurrency
        durability = bound.spec.run.durability
        self.journal = Journal(
            lambda batch: flush(database, batch, LEASE_S, self.journal.handed_over),
            0.0 if durability == "sync" else float(durability),
        )
        self.pool = LocalPool(self.slots, self._claim, self.stop)
        self.runner = Runner(self.sweep, self.code, self.journal, workspaces, self.pool)
        self._ending = threading.Event()

    def start(self) -> None:
        """Mark the sweep as running and start the slots. Raises WTBError where the resources cannot be made."""
        self._begin()
        self.pool.start(self.runner.run)

    def run_here(self) -> Ended:
        """Run on the thread that asks, one execution at a time. Raises WTBError as `start` does."""
        self._begin()
        self.pool.work(self.runner.run)
        return self.finish()

    def _begin(self) -> None:
        claims.move_sweep(self.database, self.sweep_id, "running", runner_id=self.sweep.runner_id)
        try:
            self.code.prepare()
        except WTBError as error:
            self.journal.close()
            claims.move_sweep(self.database, self.sweep_id, "failed", reason=str(error))
            raise
        threading.Thread(target=self._beat, name="wtb-heartbeat", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Whether the slots have ended within `seconds`. Raises the error that ended one of them."""
        return self.pool.wait(seconds)

    def finish(self) -> Ended:
        """Commit what is left, give back what was not done, and settle the sweep's status."""
        self._ending.set()
        stuck = sum(thread.is_alive() for thread in self.pool.threads)
        try:
            self.pool.check()
        finally:
            self.journal.close()
        if not stuck:
            self.caller.close()
        claims.give_back(self.database, self.sweep_id, [self.sweep.runner_id])
        if self.stop.requested:
            claims.move_sweep(self.database, self.sweep_id, "paused", reason=self.stop.reason)
            return Ended("paused", self.stop.reason, self.stop.limit, stuck)
        if claims.unfinished(self.database, self.sweep_id):
            return Ended("running", "others still work on it", stuck=stuck)
        claims.move_sweep(self.database, self.sweep_id, "completed")
        return Ended("completed", stuck=stuck)

    def _claim(self) -> Sequence[Execution]:
        claimed = claims.claim(self.database, self.sweep_id, self.sweep.runner_id, AT_ONCE, LEASE_S)
        return load_executions(self.database, self.sweep_id, claimed)

    def _beat(self) -> None:
        while not self._ending.wait(LEASE_S / 3):
            claims.renew(self.database, self.sweep.runner_id, LEASE_S)


def take_over(database: Database, sweep_id: str) -> None:
    """Take a sweep from owners that are provably dead. Raises ConflictError naming one that may be alive."""
    dead = []
    for owner in claims.owners(database, sweep_id):
        state = state_of(owner)
        if state == "alive" or (state == "unknown" and not owner["expired"]):
            where = f"process {owner['pid']} on {owner['host']}"
            what = "is running it" if state == "alive" else "holds it, and whether it lives cannot be seen from here"
            raise ConflictError(
                f"sweep {sweep_id}: {where} {what}; stop that process first"
                + ("" if state == "alive" else f", or wait {LEASE_S:.0f} s for its lease to end")
            )
        dead.append(owner["id"])
    if dead:
        claims.give_back(database, sweep_id, dead)
        claims.move_sweep(database, sweep_id, "paused", reason="its process died")
