"""The code of sweeps in this process: bound to what the sweep records, and kept warm from one sweep to the next."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.config.run_options import Rlimits
from wtb.core.errors import WTBError
from wtb.core.ids import new_id
from wtb.execution.engine.executor import UserCode
from wtb.execution.runtime.sweep_context import in_processes, on_threads
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import check_pool, stored_spec
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Bounds, Workspaces

WARM_S = 300.0  # that node processes wait for another sweep of the same code
MOST_WARM = 4
FILE_CLOCK_S = 0.01  # by which the clock of files may be behind
OURS = {"wtb", "wtb_workers", "wtb_scheduler", "__main__"}  # where WTB itself is developed in

Row = Mapping[str, Any]


class Refused(WTBError):
    """This worker cannot run a sweep: its code is not there, or is not what the sweep records."""


def bind_as_recorded(row: Row) -> Bound:
    """The code of a stored sweep. Raises Refused where it is not what the sweep records.

    Where a module was changed after this process imported it, it is imported anew.
    """
    try:
        with _imports.anew():
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


def _different(row: Row, bound: Bound) -> list[tuple[str, str]]:
    recorded = row["fingerprints"]
    return [
        (node, variant)
        for node, variants in bound.fingerprints.items()
        for variant, code in variants.items()
        if recorded.get(node, {}).get(variant) != code
    ]


class Imports:
    """What this process has imported from the folder that it works in. What is installed in an environment stays.

    A fingerprint reads the source that is on disk, so code must not be older than that. rounds: how often some was
    changed.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._began = time.time()  # to import, the last time
        self._known: dict[str, tuple[float, tuple[int, ...]]] = {}  # module -> (imported after, file as it was then)

    @contextmanager
    def anew(self) -> Iterator[None]:
        """Import within what was changed on disk since it was imported, and whatever was imported beside it."""
        present = self._present()
        if any(self._changed(name, file) for name, file in present.items()):
            self.rounds += 1
            self._known.clear()
            for name in present:
                del sys.modules[name]
            importlib.invalidate_caches()
        self._began = time.time()
        try:
            yield
        finally:
            for name, file in self._present().items():
                self._known.setdefault(name, (self._began, _state(file)))

    def _changed(self, name: str, file: str) -> bool:
        present = _state(file)
        # What nodes imported meanwhile is not known yet.
        after, before = self._known.setdefault(name, (self._began, present))
        # One that was written while it was imported may have been imported as it was before.
        return present != before or present[0] >= (after - FILE_CLOCK_S) * 1e9

    def _present(self) -> dict[str, str]:
        # As text: there may be thousands of modules, and paths take some twenty times as long.
        here, *installed = (os.path.join(folder, "") for folder in (os.getcwd(), sys.prefix, sys.base_prefix))
        found = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not file or not file.startswith(here) or file.startswith(tuple(installed)):
                continue
            if name.partition(".")[0] not in OURS:
                found[name] = file
        return found


def _state(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:  # it was removed
        return (0,)
    return found.st_mtime_ns, found.st_size, found.st_ino


_imports = Imports()


@dataclass
class Warm:
    """User code that is ready to run, and where its attempts work. key: what it can be used for again.

    home: below which all attempts work.
    """

    key: tuple[Any, ...]
    code: UserCode
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
            except OSError:  # somebody else works there
                return


class Codes:
    """Makes the code of sweeps ready to run under one runner, and keeps some of it warm.

    home: where files are. slots: so many node processes at most. threads: nodes share this process, unless they need
    what only processes can give.
    """

    def __init__(self, home: Workspaces, runner_id: str, slots: int, threads: bool) -> None:
        self._home = home
        self._runner_id = runner_id
        self._slots = slots
        self._threads = threads
        self._warm: list[Warm] = []
        self._caller = Caller()

    def shares_process(self, bound: Bound) -> bool:
        """Whether the nodes of a sweep run on threads of this process."""
        run = bound.spec.run
        if run.pool is not None:
            return run.pool == "thread"
        return self._threads and run.env is None and run.rlimits == Rlimits()

    def take(self, row: Row, bound: Bound, *, apart: bool) -> Warm:
        """The code of a sweep, ready. apart: in node processes in any case. Raises Refused."""
        threads = self.shares_process(bound) and not apart
        run = bound.spec.run.model_dump_json(exclude={"concurrency", "durability", "share", "grace", "priority"})
        code_as_is = (bound.recipe.text(), repr(sorted(bound.fingerprints.items())), _imports.rounds)
        key = (row["session_id"], threads, run, *code_as_is)
        for place, warm in enumerate(self._warm):
            if warm.key == key:
                return self._warm.pop(place)
        # A directory of its own: code of the same sweep that is older may be let go of while this works.
        root = self._home.root / row["session"] / row["id"] / self._runner_id / new_id()
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
        """Keep code for the next sweep of its kind."""
        warm.idle_since = time.monotonic()
        self._warm.append(warm)
        self.cool(MOST_WARM)

    def cool(self, most: int = MOST_WARM) -> None:
        """Let go of what waited for too long, or is too much."""
        before = time.monotonic() - WARM_S
        while self._warm and (len(self._warm) > most or self._warm[0].idle_since < before):
            self._warm.pop(0).close()

    def close(self) -> None:
        self.cool(0)
        self._caller.close()
