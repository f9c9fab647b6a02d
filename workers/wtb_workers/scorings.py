"""Scoring again, as tasks of workers: each on a slot, under a lease, by the operation that `wtb score` is."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any, TypedDict

from wtb.authoring.code.drafts import Draft
from wtb.authoring.code.import_paths import published_evaluators
from wtb.authoring.code.recipe import NamedEvaluator
from wtb.config.keeping.redaction import redactor_of
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

RETRY_S = 30.0  # before what this worker cannot score is looked at again


class NotHere(Exception):
    """This worker cannot score something now; another one may."""


class ScoringFailed(WTBError):
    """Scoring failed; the database has why."""


class ScoringCounts(TypedDict):
    """Counts of a task that scores. unjudged: executions that judges may cost no more."""

    scores: int
    unjudged: int


ScoringResult = ScoringCounts | None  # None where nothing was done


class Scorings:
    """What a session scores again."""

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
            queues: Those that it takes from.
            home: The workspaces.
        """
        self._database = database
        self._runner = runner
        self._queues = queues
        self._home = home
        self._lock = threading.Lock()
        self._held: dict[str, tuple[ScoringRow, Stop]] = {}
        self._not_before: dict[str, float] = {}
        self._stopped: str | None = None

    def look(self) -> None:
        """Renew leases, and stop what others decided about. Called once a second."""
        for row, stop in self._under_way():
            if not rescore.renew_scoring(self._database, row, LEASE_S):
                stop.request("it was cancelled, or is another's")

    def _under_way(self) -> list[tuple[ScoringRow, Stop]]:
        with self._lock:
            return list(self._held.values())

    def run(self, number: int, id: str) -> ScoringResult:
        """Score on a slot what a task is about, unless that is done or another worker's.

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
            rescore.withdraw_scoring(self._database, id)  # another one of its sweep may be under way
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
        """Make what a sweep is scored by, of what is built in and what this worker publishes. Raises InputError."""
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
        """Claim what is to be scored, unless another one has it, and score it."""
        if not queue.occupy(self._database, {slot: row.id}, sweep.id):  # its session has no slot left
            raise NotHere
        try:
            held = rescore.claim_scoring(self._database, row, self._runner.id, LEASE_S)
            if held is None:
                rescore.withdraw_scoring(self._database, row.id)
                return None
            return self._hold(held, sweep, named)
        finally:
            with suppress(StoreError):
                queue.leave(self._database, slot)

    def _hold(self, held: ScoringRow, sweep: SweepRow, named: list[Named]) -> ScoringResult:
        stop = Stop()
        with self._lock:
            self._held[held.id] = held, stop
        try:
            if self._stopped is not None:  # meanwhile
                stop.request(self._stopped)
            return self._score(held, stop, sweep, named)
        finally:
            with self._lock:
                del self._held[held.id]

    def _score(self, held: ScoringRow, stop: Stop, sweep: SweepRow, named: list[Named]) -> ScoringResult:
        """Score to the end, and record how it ended. Returns None if it was released or cancelled."""
        scores = 0

        def count(connection: Any, written: int) -> None:
            nonlocal scores
            rescore.count_scores(connection, held, written)
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
            rescore.release_scoring(self._database, held)
            return None
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, DamagedError):
                raise
            log.exception("scoring %s of sweep %s failed", held.id, sweep.id)
            reason = f"{type(error).__name__}: {error}"
            rescore.end_scoring(self._database, held, "failed", reason=reason)
            raise ScoringFailed(redactor_of(sweep.spec.get("redact")).text(reason)) from error
        rescore.end_scoring(self._database, held, "succeeded", unjudged=scored.left, reason=scored.reason)
        return {"scores": scores, "unjudged": scored.left}

    def stop(self, reason: str) -> None:
        """Begin nothing more, and let other workers have what is under way."""
        self._stopped = reason
        for row, stop in self._under_way():
            stop.request(reason)
            with suppress(StoreError):  # its lease runs out
                rescore.release_scoring(self._database, row)
