"""Scoring again, as tasks of workers: each on a slot, under a lease, by the same operation as `wtb score`."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any, TypedDict

from wtb.authoring.code.import_paths import published_evaluators
from wtb.authoring.code.recipe import Draft, NamedEvaluator
from wtb.config.run_options import redactor_of
from wtb.core.errors import DamagedError, InputError, StoreError, WTBError
from wtb.core.fault_points import point
from wtb.core.ids import new_id
from wtb.core.stop import Stop, Stopped
from wtb.execution.described_code import describe_evaluators
from wtb.execution.sandbox.node_process import ProcessDied
from wtb.operations.results.scoring import Named, evaluators_of, score_by
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import read_evaluators
from wtb.store.control import rescore
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import WorkerIdentity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import queue
from wtb.store.runs.queue import Slot
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.control import ScoringRow
from wtb.store.tables.sweeps import SweepRow

log = logging.getLogger("wtb")

RETRY_S = 30.0  # before a scoring that this worker cannot do is tried again


class NotHere(Exception):
    """This worker cannot score something now; another one may."""


class ScoringFailed(WTBError):
    """Scoring failed; the database has the reason."""


class ScoringCounts(TypedDict):
    """Counts of a task that scores. `unjudged` counts executions for which the judges' budget was too small."""

    scores: int
    unjudged: int


ScoringResult = ScoringCounts | None  # None where nothing was done


class Scorings:
    """The scorings of a session."""

    def __init__(
        self,
        database: Database,
        runner: WorkerIdentity,
        queues: tuple[str, ...],
        home: Workspaces,
    ) -> None:
        """Score nothing yet.

        Args:
            database: The database, which is PostgreSQL.
            runner: The runner of the session.
            queues: The queues that it serves.
            home: The workspaces.
        """
        self._database = database
        self._runner = runner
        self._queues = queues
        self._home = home
        self._lock = threading.Lock()
        self._claimed: dict[str, tuple[ScoringRow, Stop]] = {}
        self._not_before: dict[str, float] = {}
        self._stopped: str | None = None

    def look(self) -> None:
        """Renew leases, and stop scorings that others have cancelled or claimed. Called once a second."""
        for row, stop in self._under_way():
            if not rescore.renew_scoring(self._database, row, LEASE_S):
                stop.request("it was cancelled, or is another's")

    def _under_way(self) -> list[tuple[ScoringRow, Stop]]:
        with self._lock:
            return list(self._claimed.values())

    def run(self, number: int, id: str) -> ScoringResult:
        """Run the scoring of a task on a slot, unless it is done or another worker's.

        The code is imported first, which may take longer than a lease.

        Raises:
            NotHere: The code of its evaluators is elsewhere, or this worker is being stopped.
            ScoringFailed: It failed.
            StoreError: The database is unreachable; the lease runs out.
        """
        if self._stopped is not None or self._not_before.get(id, 0.0) > time.monotonic():
            raise NotHere
        row = rescore.scoring_of_task(self._database, id)
        if row is None:
            # Another scoring of its sweep may be under way.
            rescore.withdraw_scoring(self._database, id)
            return None
        try:
            sweep = find_sweep(self._database, row.sweep_id)
            named = self._evaluators(row, sweep)
        except InputError as error:
            log.info("scoring %s of sweep %s is left to others: %s", row.id, row.sweep_id, error)
            self._not_before[row.id] = time.monotonic() + RETRY_S
            raise NotHere from error
        return self._claim(Slot(self._runner.id, number, self._queues), row, sweep, named)

    def _evaluators(self, row: ScoringRow, sweep: SweepRow) -> list[Named]:
        """Make the evaluators of a scoring from built-in and published ones of this worker. Raises InputError."""
        refs = read_evaluators(row.evaluators)
        named = [NamedEvaluator(ref.name, ref.options, "") for ref in refs]
        draft = Draft(None, evaluators=named, permitted=published_evaluators())
        id = self._runner.id
        own = self._home.of_project(sweep.project).of_runner(id, sweep.id, id, new_id())
        try:
            resolve = describe_evaluators(draft, stored_spec(sweep).run, own, self._runner.id)
        except ProcessDied as error:
            raise InputError(f"its evaluators cannot be imported: {error}") from error
        finally:
            remove_tree(own.root)
        return evaluators_of(sweep, refs, resolve)

    def _claim(self, slot: Slot, row: ScoringRow, sweep: SweepRow, named: list[Named]) -> ScoringResult:
        """Claim a scoring, unless another worker has it, and run it."""
        if not queue.mark_busy(self._database, {slot: row.id}, sweep.id):
            raise NotHere
        try:
            scoring = rescore.claim_scoring(self._database, row, self._runner.id, LEASE_S)
            if scoring is None:
                rescore.withdraw_scoring(self._database, row.id)
                return None
            return self._score_claimed(scoring, sweep, named)
        finally:
            with suppress(StoreError):
                queue.mark_free(self._database, slot)

    def _score_claimed(self, scoring: ScoringRow, sweep: SweepRow, named: list[Named]) -> ScoringResult:
        stop = Stop()
        with self._lock:
            self._claimed[scoring.id] = scoring, stop
        try:
            # `stop` may have run before this scoring was among those that it stops.
            if self._stopped is not None:
                stop.request(self._stopped)
            return self._score(scoring, stop, sweep, named)
        finally:
            with self._lock:
                del self._claimed[scoring.id]

    def _score(self, scoring: ScoringRow, stop: Stop, sweep: SweepRow, named: list[Named]) -> ScoringResult:
        """Score to the end, and record the outcome. Returns None if it was released or cancelled."""
        scores = 0

        def count(connection: Any, written: int) -> None:
            nonlocal scores
            rescore.count_scores(connection, scoring, written)
            scores += written
            point("scoring.part")

        try:
            scored = score_by(
                self._database,
                self._home,
                sweep,
                named,
                at_once=None,
                runner_id=self._runner.id,
                stop=stop,
                also=count,
            )
        except Stopped:
            rescore.release_scoring(self._database, scoring)
            return None
        except Exception as error:
            # The database is away, so that nothing can be recorded: the lease ends, and another worker continues.
            if isinstance(error, StoreError) and not isinstance(error, DamagedError):
                raise
            log.exception("scoring %s of sweep %s failed", scoring.id, sweep.id)
            reason = f"{type(error).__name__}: {error}"
            rescore.end_scoring(self._database, scoring, "failed", reason=reason)
            raise ScoringFailed(redactor_of(sweep.spec.get("redact")).text(reason)) from error
        rescore.end_scoring(self._database, scoring, "succeeded", unjudged=scored.left, reason=scored.reason)
        return {"scores": scores, "unjudged": scored.left}

    def stop(self, reason: str) -> None:
        """Begin nothing more, and release running scorings to other workers."""
        self._stopped = reason
        for row, stop in self._under_way():
            stop.request(reason)
            with suppress(StoreError):  # its lease runs out
                rescore.release_scoring(self._database, row)
