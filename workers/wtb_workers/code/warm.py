"""User code of sweeps for this process: checked against what the sweep records, and kept warm between sweeps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.authoring.code.drafts import Draft
from wtb.core.errors import InputError, WTBError
from wtb.core.ids import new_id
from wtb.core.serialization.user_modules import bar
from wtb.core.tree.stored_code import why
from wtb.core.tree.stored_spec import recorded_evaluators
from wtb.execution.described_code import DescribedCode, bind_described, describe_code, run_described
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.imports import imports
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.sweep_context import on_threads
from wtb.planning.binding import Bound, bind, draft_of
from wtb.planning.checks import check_pool
from wtb.planning.prepare import stored_spec
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Bounds, Workspaces
from wtb.store.tables.sweeps import SweepRow

WARM_S = 300.0  # that idle node processes are kept for another sweep of the same code
MAX_WARM = 4


class Refused(WTBError):
    """This worker cannot run a sweep: the code is missing, or differs from what the sweep records."""


def check_recorded(row: SweepRow, bound: Bound, written: WrittenFiles) -> Bound:
    """Check that code is what a sweep records, and that it can run here.

    Args:
        row: The sweep.
        bound: The code.
        written: The files among it that nodes write.

    Returns:
        The code, under the fingerprints that the sweep records.

    Raises:
        Refused: It is other code, or cannot run here.
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
    known = set(recorded.variants())
    different = [pair for pair in present.variants() if pair in known and not recorded.has_same(present, *pair)]
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

    key: identifies code, options, project and session; a sweep with the same key can use it. home: the root of all
    workspaces. described: the code, unless this process has imported it.
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

    home: where files are. slots: the maximum number of node processes. threads: whether sweeps may run on threads of
    this process, which then imports their code.
    """

    def __init__(self, home: Workspaces, runner_id: str, slots: int, *, threads: bool = True) -> None:
        self._threads = threads
        self._home = home
        self._runner_id = runner_id
        self._slots = slots
        self._warm: list[Warm] = []
        self._caller = Caller()

    def take(self, row: SweepRow, written: WrittenFiles, *, apart: bool) -> tuple[Bound, Warm]:
        """Bind the code of a sweep, and make it ready to run.

        Args:
            row: The sweep.
            written: The files among its code that nodes write.
            apart: Whether it runs in node processes whatever pool it names.

        Raises:
            Refused: The code is missing, or differs from what the sweep records.
        """
        try:
            spec = stored_spec(row)
            draft = replace(draft_of(spec), is_checked=True)
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
        """Run code in node processes, the first of which describes it: this process imports nothing."""
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
                "'run.pool: thread' runs nodes in the worker itself, which can read what other projects have; set "
                "'pool: process'"
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
        below = (row.id, self._runner_id, new_id())
        bounds = Bounds(**spec.run.workspace.model_dump())
        return self._home.of_project(row.project).of_runner(self._runner_id, *below, bounds=bounds)

    def _ready(self, warm: Warm) -> Warm:
        """Make code ready to run. Raises Refused."""
        try:
            warm.code.prepare()
        except WTBError as error:
            warm.close()
            raise Refused(str(error)) from error
        return warm

    def give(self, warm: Warm) -> None:
        """Return code that `take` gave, for the next sweep with the same key."""
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
