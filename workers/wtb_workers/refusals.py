"""Sweeps that a worker session does not work on for now: their code is refused, or a disk is full for them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from wtb.core.errors import WTBError
from wtb.execution.runtime.disk_space import Watch, disks
from wtb.store.database import Database
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import WorkerIdentity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import queue
from wtb.store.runs.leases import record_full, record_room
from wtb_workers.code.warm import Refused

log = logging.getLogger("wtb")

RETRY_S = 30.0  # before a sweep that was refused is tried again


@dataclass
class FullDisk:
    """A disk was full for a sweep `tries` + 1 times in a row. waits: the watch has not seen more room yet."""

    watch: Watch
    tries: int
    waits: bool = True


class Refusals:
    """The refused sweeps of a session, and until when they are.

    Threads may share it.
    """

    def __init__(self, database: Database, runner: WorkerIdentity, home: Workspaces) -> None:
        """Refuse nothing yet.

        Args:
            database: Records refusals for people.
            runner: The runner of the session, as it is stored.
            home: The workspaces, whose disk may be full.
        """
        self._database = database
        self._runner = runner
        self._home = home
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._recorded: frozenset[str] = frozenset()
        self._full: dict[str, FullDisk] = {}

    def current(self) -> list[str]:
        """The ids of the sweeps that are refused now."""
        present = time.monotonic()
        with self._lock:
            return [sweep_id for sweep_id, until in self._until.items() if until > present]

    def known(self) -> set[str]:
        """The ids of all sweeps that are or were refused, until `forget` drops them."""
        with self._lock:
            return self._until.keys() | self._full.keys()

    def refuse(self, sweep_id: str, error: WTBError) -> None:
        """Refuse a sweep for RETRY_S seconds. Raises the error if it is no refusal."""
        if not isinstance(error, Refused):
            raise error
        with self._lock:
            new = sweep_id not in self._until
            self._until[sweep_id] = time.monotonic() + RETRY_S
        self.record()
        if new:
            log.error("sweep %s is refused: %s", sweep_id, error)
            queue.refuse(self._database, find_sweep(self._database, sweep_id), self._runner, str(error))

    def record(self) -> bool:
        """Record in the database which sweeps are refused now. Returns whether some are not refused any more."""
        refused = frozenset(self.current())
        if refused == self._recorded:
            return False
        queue.record_refused(self._database, self._runner.id, refused)
        ended = bool(self._recorded - refused)
        self._recorded = refused
        return ended

    def suspend(self, sweep_id: str) -> None:
        """Refuse a sweep until there is more room on the disks of this machine."""
        with self._lock:
            before = self._full.get(sweep_id)
            tries = before.tries + 1 if before is not None else 0
            self._full[sweep_id] = FullDisk(Watch(disks(self._home.root, self._home.files.root), tries), tries)
            self._until[sweep_id] = math.inf

    def record_full(self, sweep_id: str, reason: str) -> None:
        """Tell people that a disk is full for a sweep."""
        log.warning("sweep %s: %s", sweep_id, reason)
        record_full(self._database, find_sweep(self._database, sweep_id), reason, self._runner.worker)

    def check_disk_space(self) -> bool:
        """End the refusal of sweeps for which there is room again. Returns True if there are any."""
        with self._lock:
            recovered = [id for id, full in self._full.items() if full.waits and full.watch.sees_room()]
            for id in recovered:
                self._full[id].waits = False
                self._until.pop(id, None)
        for id in recovered:
            log.warning("sweep %s: there is room again", id)
            record_room(self._database, find_sweep(self._database, id), self._runner.worker)
        return bool(recovered)

    def forget(self, statuses: Mapping[str, tuple[str, str | None]]) -> None:
        """Drop sweeps that do not run any more, and refusals of sweeps that were resumed or have ended.

        Args:
            statuses: Status and reason of each sweep that is there.
        """
        with self._lock:
            for sweep_id in list(self._full):
                if statuses.get(sweep_id, ("deleted", None))[0] != "running":
                    del self._full[sweep_id]
            for sweep_id in list(self._until):
                if statuses.get(sweep_id, ("deleted", None))[1] is None:
                    del self._until[sweep_id]
