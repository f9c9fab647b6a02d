"""What a worker session scores again: each on a slot, under a lease, by the operation that `wtb score` is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wtb.authoring.code.drafts import Draft
from wtb.authoring.code.import_paths import published_evaluators
from wtb.authoring.code.recipe import NamedEvaluator
from wtb.core.errors import DamagedError, InputError, StoreError
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
from wtb.store.rows.control import ScoringRow
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs import queue
from wtb.store.runs.queue import Slot
from wtb.store.runs.slots import LEASE_S
from wtb_workers.slots import Slots

log = logging.getLogger("wtb")

RETRY_S = 30.0  # before what this worker cannot score is looked at again


class Scorings:
    """What a session scores again."""

    def __init__(
        self,
        database: Database,
        runner: WorkerIdentity,
        queues: tuple[str, ...],
        home: Workspaces,
        slots: Slots,
        freed: Callable[[], None],
    ) -> None:
        """Score nothing yet.

        Args:
            database: The database, which is PostgreSQL.
            runner: The runner of the session.
            queues: Those that it takes from.
            home: The workspaces.
            slots: The free slots of the process.
            freed: Is called when a slot is free again.
        """
        self._database = database
        self._runner = runner
        self._queues = queues
        self._home = home
        self._slots = slots
        self._freed = freed
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        self._held: dict[str, tuple[ScoringRow, Stop]] = {}
        self._not_before: dict[str, float] = {}
        self._stopped: str | None = None

    def look(self) -> None:
        """Renew leases, stop what others decided about, and begin what is to be done. Called once a second."""
        for row, stop in self._under_way():
            if not rescore.renew_scoring(self._database, row, LEASE_S):
                stop.request("it was cancelled, or is another's")
        present = time.monotonic()
        for row in rescore.claimable_scorings(self._database, self._queues):
            if self._stopped is not None:
                return
            if row.id not in self._begun and self._not_before.get(row.id, 0.0) < present:
                number = self._slots.take()
                if number is None:
                    return
                self._begun.add(row.id)
                threading.Thread(target=self._run, args=(number, row), name="wtb-scoring", daemon=True).start()

    def _under_way(self) -> list[tuple[ScoringRow, Stop]]:
        with self._lock:
            return list(self._held.values())

    def _run(self, number: int, row: ScoringRow) -> None:
        """Score on a slot. The code is imported here, which may take longer than a heartbeat may be late."""
        try:
            sweep = find_sweep(self._database, row.sweep_id)
            self._claim(Slot(self._runner.id, number, self._queues), row, sweep, self._evaluators(row, sweep))
        except InputError as error:  # its code is elsewhere
            log.info("scoring %s of sweep %s is left to others: %s", row.id, row.sweep_id, error)
            self._not_before[row.id] = time.monotonic() + RETRY_S
        except StoreError as error:  # its lease runs out
            log.warning("scoring %s of sweep %s: %s", row.id, row.sweep_id, error)
        finally:
            self._begun.discard(row.id)
            self._slots.give(number)
            self._freed()

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

    def _claim(self, slot: Slot, row: ScoringRow, sweep: SweepRow, made: list[Named]) -> None:
        """Claim what is to be scored, unless another one has it, and score it. Raises StoreError."""
        if not queue.occupy(self._database, {slot: row.id}, sweep.id):  # its session has no slot left
            return
        try:
            held = rescore.claim_scoring(self._database, row, self._runner.id, LEASE_S)
            if held is not None:
                self._hold(held, sweep, made)
        finally:
            with suppress(StoreError):
                queue.leave(self._database, slot)

    def _hold(self, held: ScoringRow, sweep: SweepRow, made: list[Named]) -> None:
        stop = Stop()
        with self._lock:
            self._held[held.id] = held, stop
        try:
            if self._stopped is not None:  # meanwhile
                stop.request(self._stopped)
            self._score(held, stop, sweep, made)
        finally:
            with self._lock:
                del self._held[held.id]

    def _score(self, held: ScoringRow, stop: Stop, sweep: SweepRow, made: list[Named]) -> None:
        """Score to the end, and say how it ended. Raises StoreError."""

        def count(connection: Any, written: int) -> None:
            rescore.count_scores(connection, held, written)
            point("scoring.part")

        ended: dict[str, Any]
        try:
            scored = score_by(
                self._database,
                self._home,
                sweep,
                made,
                at_once=None,
                runner_id=self._runner.id,
                stop=stop,
                also=count,
            )
            ended = {"status": "succeeded", "unjudged": scored.left, "reason": scored.reason}
        except Stopped:
            rescore.release_scoring(self._database, held)
            return
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, DamagedError):
                raise
            log.exception("scoring %s of sweep %s failed", held.id, sweep.id)
            ended = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        rescore.end_scoring(self._database, held, **ended)

    def stop(self, reason: str) -> None:
        """Begin nothing more, and let other workers have what is under way."""
        self._stopped = reason
        for row, stop in self._under_way():
            stop.request(reason)
            with suppress(StoreError):  # its lease runs out
                rescore.release_scoring(self._database, row)
