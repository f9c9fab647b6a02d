"""User code of sweeps for this process: checked and kept warm, or refused for now."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.authoring.code.recipe import Draft
from wtb.core.errors import InputError, WTBError
from wtb.core.ids import new_id
from wtb.core.serialization.user_modules import bar
from wtb.core.tree.stored_code import why
from wtb.core.tree.stored_spec import recorded_evaluators
from wtb.execution.described_code import DescribedCode, bind_described, describe_code, run_described
from wtb.execution.engine.description import imports
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.sweep_context import on_threads
from wtb.execution.waits import Watch, disks
from wtb.planning.binding import Bound, bind, draft_of
from wtb.planning.checks import check_pool
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Bounds, Workspaces
from wtb.store.process_identity import WorkerIdentity
from wtb.store.read.queries import find_sweep
from wtb.store.runs import queue
from wtb.store.runs.leases import record_full, record_room
from wtb.store.tables.sweeps import SweepRow

WARM_S = 300.0  # that idle node processes are kept for another sweep of the same code
MAX_WARM = 4


class Refused(WTBError):
    """This worker cannot run a sweep: the code is missing, or differs from what the sweep records."""


def check_recorded(row: SweepRow, bound: Bound, written: WrittenFiles) -> Bound:
    """Check that code is the recorded code of a sweep, and that it can run in this process.

    Args:
        row: The sweep.
        bound: The code.
        written: The files among it that nodes write.

    Returns:
        The code, under the fingerprints that the sweep records.

    Raises:
        Refused: It is other code, or cannot run in this process.
    """
    try:
        check_pool(bound)
    except WTBError as error:
        raise Refused(str(error)) from error
    recorded, present = row.recorded_code, bound.present_code
    different = [pair for pair in present.variants() if not recorded.has_same(present, *pair)]
    files = recorded.changed_files(present, different)
    if different and files is not None and written.cover(files):
        recorded, different = recorded.writing(files), []
    if different:
        names = ", ".join(f"{node}={variant}" for node, variant in different)
        causes = why(recorded.code, present.code, different)
        raise Refused(
            f"its code of {names} is not what the sweep records {causes}: install the same code here and start the "
            f"worker again, or submit the sweep anew"
        )
    _check_evaluators(row, bound, written)
    return bound.with_recorded(recorded)


def _check_evaluators(row: SweepRow, bound: Bound, written: WrittenFiles) -> None:
    """Check that evaluators are those that the sweep records, so that scores are comparable. Raises Refused."""
    recorded = recorded_evaluators(row.spec)
    if recorded is None:
        return
    present = bound.evaluator_code
    recorded_pairs = set(recorded.variants())
    different = [
        pair for pair in present.variants() if pair in recorded_pairs and not recorded.has_same(present, *pair)
    ]
    files = recorded.changed_files(present, different)
    if different and not (files is not None and written.cover(files)):
        names = ", ".join(name for _, name in different)
        causes = why(recorded.code, present.code, different)
        raise Refused(
            f"its code of the evaluators {names} is not what the sweep records {causes}: install the same code here "
            f"and start the worker again, or go on with the new code with `wtb resume {row.id} --allow-code-change`"
        )


@dataclass
class Warm:
    """User code that is ready to run, and the workspaces of its attempts.

    Attributes:
        key: Identifies code, options, project and session. A sweep with the same key can use it.
        code: Runs the code.
        workspaces: The directories of its attempts.
        home: The root of all workspaces.
        described: The code, unless this process has imported it.
    """

    key: tuple[Any, ...]
    code: CodeExecutor
    workspaces: Workspaces
    home: Path
    described: DescribedCode | None = None
    idle_since: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        self.code.close()
        remove_tree(self.workspaces.root)
        for folder in self.workspaces.root.parents:
            if folder == self.home:
                return
            try:
                folder.rmdir()
            except OSError:  # in use by others
                return


class Codes:
    """Prepares the code of sweeps for one runner, and keeps some of it warm.

    Args:
        home: The workspaces of the worker.
        runner_id: The runner.
        slots: The maximum number of node processes.
        threads: Whether sweeps may run on threads of this process, which then imports their code.
    """

    def __init__(self, home: Workspaces, runner_id: str, slots: int, *, threads: bool = True) -> None:
        self._threads = threads
        self._home = home
        self._runner_id = runner_id
        self._slots = slots
        self._warm: list[Warm] = []
        self._caller = Caller()

    def acquire(self, row: SweepRow, written: WrittenFiles, *, apart: bool) -> tuple[Bound, Warm]:
        """Bind the code of a sweep, and make it ready to run.

        Args:
            row: The sweep.
            written: The files among its code that nodes write.
            apart: Whether it runs in node processes whatever pool it sets.

        Raises:
            Refused: The code is missing, or differs from what the sweep records.
        """
        try:
            spec = stored_spec(row)
            draft = replace(draft_of(spec), is_checked=True)
            # Without the options that concern only the runner: warm processes do not depend on them.
            options = spec.run.model_dump_json(exclude={"concurrency", "durability", "share", "grace", "priority"})
            key = (row.project, row.session_id, apart, options, spec.redact.model_dump_json(), draft.text())
            if spec.run.pool == "thread" and not apart:
                return self._on_threads(row, spec, key, written)
            return self._in_processes(row, spec, draft, key, written)
        except InputError as error:
            raise Refused(str(error)) from error

    def _in_processes(
        self, row: SweepRow, spec: SweepSpec, draft: Draft, key: tuple[Any, ...], written: WrittenFiles
    ) -> tuple[Bound, Warm]:
        """Run code in node processes, the first of which describes it, so that this process imports no user code."""
        for place, warm in enumerate(self._warm):
            if warm.key == key and warm.described is not None:
                if not warm.described.is_outdated():
                    bound = check_recorded(row, bind_described(spec, warm.described), written)
                    return bound, self._warm.pop(place)
                self._warm.pop(place).close()
                break
        workspaces = self._workspaces(row, spec)
        try:
            described = describe_code(draft, spec.run, workspaces, self._runner_id)
        except WTBError as error:
            raise Refused(str(error)) from error
        try:
            bound = check_recorded(row, bind_described(spec, described), written)
        except WTBError:
            described.process.close()
            raise
        code = run_described(bound, described, workspaces, self._runner_id, self._slots)
        return bound, self._ready(Warm(key, code, workspaces, self._home.root, described))

    def _on_threads(
        self, row: SweepRow, spec: SweepSpec, key: tuple[Any, ...], written: WrittenFiles
    ) -> tuple[Bound, Warm]:
        """Run code on threads of this process, which imports it. Modules that changed since are imported again."""
        if not self._threads:
            raise Refused(
                "'run.pool: thread' runs nodes in the worker itself, which can read other projects; set 'pool: process'"
            )
        bar(None)
        with imports.fresh():
            bound = check_recorded(row, bind(spec), written)
        key = (*key, repr(sorted(bound.fingerprints.items())), imports.rounds)
        for place, warm in enumerate(self._warm):
            if warm.key == key:
                return bound, self._warm.pop(place)
        workspaces = self._workspaces(row, spec)
        code = on_threads(bound, workspaces, self._caller)
        return bound, self._ready(Warm(key, code, workspaces, self._home.root))

    def _workspaces(self, row: SweepRow, spec: SweepSpec) -> Workspaces:
        # In a directory of its own: older code of the same sweep may be closed while this one is in use.
        folder_names = (row.id, self._runner_id, new_id())
        bounds = Bounds(**spec.run.workspace.model_dump())
        return self._home.of_project(row.project).of_runner(self._runner_id, *folder_names, bounds=bounds)

    def _ready(self, warm: Warm) -> Warm:
        """Make code ready to run. Raises Refused."""
        try:
            warm.code.prepare()
        except WTBError as error:
            warm.close()
            raise Refused(str(error)) from error
        return warm

    def release(self, warm: Warm) -> None:
        """Return code from `acquire`, for the next sweep with the same key."""
        warm.idle_since = time.monotonic()
        self._warm.append(warm)
        self.cool(MAX_WARM)

    def cool(self, limit: int = MAX_WARM) -> None:
        """Close code that has been idle for too long, or is beyond `limit`."""
        before = time.monotonic() - WARM_S
        while self._warm and (len(self._warm) > limit or self._warm[0].idle_since < before):
            self._warm.pop(0).close()

    def close(self) -> None:
        self.cool(0)
        self._caller.close()


log = logging.getLogger("wtb")

RETRY_S = 30.0  # before a sweep that was refused is tried again


@dataclass
class FullDisk:
    """A disk was full for a sweep `tries` + 1 times in a row. `waits` is true until the watch sees more room."""

    watch: Watch
    tries: int
    waits: bool = True


class Refusals:
    """The refused sweeps of a session, and the ends of their refusals.

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
        """Return the ids of the sweeps that are refused now."""
        present = time.monotonic()
        with self._lock:
            return [sweep_id for sweep_id, until in self._until.items() if until > present]

    def refused_ids(self) -> set[str]:
        """Return the ids of all sweeps that are or were refused, until `forget` drops them."""
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
        """Record the currently refused sweeps in the database. Returns whether any refusal has ended."""
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
        """Report that a disk is full for a sweep."""
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
            statuses: Status and reason of each sweep that exists.
        """
        with self._lock:
            for sweep_id in list(self._full):
                if statuses.get(sweep_id, ("deleted", None))[0] != "running":
                    del self._full[sweep_id]
            for sweep_id in list(self._until):
                if statuses.get(sweep_id, ("deleted", None))[1] is None:
                    del self._until[sweep_id]
