"""User code of sweeps in this process: checked against what the sweep records, and kept warm between sweeps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.core.errors import WTBError
from wtb.core.ids import new_id
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.runtime.sweep_context import in_processes, on_threads
from wtb.planning.binding import Bound, bind
from wtb.planning.checks import check_pool
from wtb.planning.prepare import stored_spec
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Bounds, Workspaces
from wtb.store.rows.sweeps import SweepRow
from wtb_workers.code.imports import imports

WARM_S = 300.0  # that idle node processes are kept for another sweep of the same code
MAX_WARM = 4


class Refused(WTBError):
    """This worker cannot run a sweep: the code is missing, or differs from what the sweep records."""


def bind_as_recorded(row: SweepRow) -> Bound:
    """Bind the code of a stored sweep. Modules that changed since they were imported are imported again.

    Raises Refused if the code differs from what the sweep records.
    """
    try:
        with imports.fresh():
            bound = bind(stored_spec(row))
        check_pool(bound)
    except WTBError as error:
        raise Refused(str(error)) from error
    if different := _different(row, bound):
        names = ", ".join(f"{node}={variant}" for node, variant in different)
        raise Refused(
            f"its code of {names} is not what the sweep records: install the same code here and start the worker "
            f"again, or submit the sweep anew"
        )
    return bound


def _different(row: SweepRow, bound: Bound) -> list[tuple[str, str]]:
    recorded = row.fingerprints
    return [
        (node, variant)
        for node, variants in bound.fingerprints.items()
        for variant, code in variants.items()
        if recorded.get(node, {}).get(variant) != code
    ]


@dataclass
class Warm:
    """User code that is ready to run, and the workspaces of its attempts.

    key: identifies code, options and session; a sweep with the same key can use it. home: the root of all workspaces.
    """

    key: tuple[Any, ...]
    code: CodeExecutor
    workspaces: Workspaces
    home: Path
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

    home: where files are. slots: the maximum number of node processes.
    """

    def __init__(self, home: Workspaces, runner_id: str, slots: int) -> None:
        self._home = home
        self._runner_id = runner_id
        self._slots = slots
        self._warm: list[Warm] = []
        self._caller = Caller()

    def take(self, row: SweepRow, bound: Bound, *, apart: bool) -> Warm:
        """The code of a sweep, ready to run. apart: in node processes in any case. Raises Refused."""
        threads = bound.pool == "thread" and not apart
        run = bound.spec.run.model_dump_json(exclude={"concurrency", "durability", "share", "grace", "priority"})
        code_as_is = (bound.recipe.text(), repr(sorted(bound.fingerprints.items())), imports.rounds)
        key = (row.session_id, threads, run, *code_as_is)
        for place, warm in enumerate(self._warm):
            if warm.key == key:
                return self._warm.pop(place)
        # In a directory of its own: older code of the same sweep may be closed while this one is in use.
        root = self._home.root / row.session / row.id / self._runner_id / new_id()
        files = self._home.files.owned(f"{self._runner_id}.")
        bounds = Bounds(**bound.spec.run.workspace.model_dump())
        workspaces = Workspaces(files, root, bounds)
        code = (
            on_threads(bound, workspaces, self._caller)
            if threads
            else in_processes(bound, workspaces, self._runner_id, self._slots)
        )
        try:
            code.prepare()
        except WTBError as error:
            code.close()
            raise Refused(str(error)) from error
        return Warm(key, code, workspaces, self._home.root)

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
