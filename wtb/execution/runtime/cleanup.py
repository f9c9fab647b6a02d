"""Cleaning up after the dead: directories of attempts whose runner is gone, and node processes that outlived theirs.

Attempts work in `<home>/sessions/<project>/<sweep>/<runner>/<attempt>`, in earlier releases below a session's folder.
What belongs to a runner that lives, or that may live on another machine, is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from wtb.core.classes.frozen import frozen
from wtb.execution.sandbox.launch.process_tags import RUNNER, is_of_runner, kill, limit_of, limited, tagged, wait_for
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.store import FileStore
from wtb.store.process_identity import started_at, state_of
from wtb.store.runs.leases import runner_ids, runner_rows
from wtb.store.tables.sweeps import RunnerRow

UNKNOWN_S = 3600.0  # a directory of a runner that the database does not know is removed when it is so old
OLD_LAYOUT_S = 86400.0  # the same for what lies in `<home>/attempts`, where attempts worked before
EMPTY_S = 60.0  # a younger empty directory may be one that somebody is about to fill
_DEATH_S = 2.0
_ROUNDS = 5  # a process may start others while it is being killed


@frozen
class Cleaned:
    """What was removed: directories of runners (or attempts, of the old layout), and processes killed.

    left: directories that should go and could not be removed.
    """

    directories: int = 0
    processes: int = 0
    left: tuple[str, ...] = ()


def clean(database: Database, workspaces_root: Path, *, dry: bool = False) -> Cleaned:
    """Remove directories without a live owner, and kill node processes whose runner is provably dead.

    workspaces_root: `<home>/sessions`. dry: only count. Takes some milliseconds where there is nothing to do.
    """
    folders = list(_runner_folders(workspaces_root))
    carried = _node_processes(database)
    wanted = {folder.name for folder in folders} | carried.keys()
    known = runner_rows(database, wanted) if wanted else {}
    dead = {id: row for id, row in known.items() if state_of(row) == "dead"}
    killed = sum(len(carried[id]) for id in dead.keys() & carried.keys()) if dry else _kill_all(database, carried, dead)
    gone = [folder for folder in folders if _is_orphaned(folder, known.get(folder.name), dead, carried)]
    gone += _old_layout(workspaces_root.parent / "attempts")
    left = [] if dry else [str(folder) for folder in gone if not _remove(folder)]
    if not dry:
        _remove_empty(workspaces_root, {folder.parent for folder in gone})
    return Cleaned(len(gone) - len(left), killed, tuple(left))


def clean_files(database: Database, files: FileStore) -> int:
    """Remove what dead runners, and those that have ended, had not finished adding to a store. Returns how many."""
    parts = files.parts()
    owners = {name.partition(".")[0] for part in parts for name in part.unfinished() if "." in name}
    known = runner_rows(database, owners) if owners else {}
    gone = [id for id, row in known.items() if row.ended_at is not None or state_of(row) == "dead"]
    return sum(part.remove_unfinished(f"{id}.") for id in gone for part in parts)


def _runner_folders(root: Path) -> Iterator[Path]:
    for project in _folders(root):
        for sweep in _folders(project):
            yield from _folders(sweep)


def _folders(place: Path) -> list[Path]:
    """The directories in a directory; links to directories are none."""
    try:
        with os.scandir(place) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # not there, gone meanwhile, or not ours to look into
        return []


def _is_orphaned(folder: Path, row: RunnerRow | None, dead: Container[str], carried: Container[str]) -> bool:
    """Return whether the directory of a runner can go: the runner is dead, has ended, or has been unknown for long."""
    if row is not None:
        return row.id in dead or row.ended_at is not None
    # Of another database that keeps its files here too, or of a sweep that was deleted with its runner.
    return folder.name not in carried and _newest(folder) < time.time() - UNKNOWN_S


def _newest(folder: Path) -> float:
    """When something was last made or removed in a directory or in one of those in it."""
    times = [0.0]
    for place in (folder, *_folders(folder)):
        with suppress(OSError):
            times.append(place.lstat().st_mtime)
    return max(times)


def _old_layout(attempts: Path) -> list[Path]:
    before = time.time() - OLD_LAYOUT_S
    return [folder for folder in _folders(attempts) if _newest(folder) < before]


def _remove(folder: Path) -> bool:
    remove_tree(folder)
    return not os.path.lexists(folder)


def _remove_empty(root: Path, emptied: set[Path]) -> None:
    """Remove directories of sweeps and projects with nothing in them: those just emptied, and old ones."""
    before = time.time() - EMPTY_S
    for project in _folders(root):
        for sweep in _folders(project):
            if _remove_if_empty(sweep, before, sweep in emptied):
                emptied.add(project)
        _remove_if_empty(project, before, project in emptied)
    attempts = root.parent / "attempts"
    if attempts in emptied:
        _remove_if_empty(attempts, before, True)


def _remove_if_empty(folder: Path, before: float, now: bool) -> bool:
    """Remove a directory at once, or only if it is old. Returns True if it was empty and is gone."""
    try:
        if now or folder.lstat().st_mtime < before:
            folder.rmdir()
            return True
    except OSError:  # not empty, or gone
        pass
    return False


def _node_processes(database: Database) -> dict[str, list[int]]:
    """Runner id -> the processes of this user that carry its mark."""
    by_runner = {runner: set(pids) for runner, pids in tagged(RUNNER).items()}
    named = set().union(*by_runner.values())
    if unnamed := {number: pids for number, pids in limited().items() if not named.issuperset(pids)}:
        for runner in runner_ids(database):  # what gave up its environment says only a number
            if pids := unnamed.get(limit_of("", runner)[1]):
                by_runner.setdefault(runner, set()).update(pids)
    ours = {os.getpid()}
    if RUNNER in os.environ:  # we were started by a node: what we are a part of stays
        ours |= {parent.pid for parent in psutil.Process().parents()}
    return {runner: sorted(left) for runner, pids in by_runner.items() if (left := pids - ours)}


def _kill_all(database: Database, carried: Mapping[str, list[int]], dead: Mapping[str, RunnerRow]) -> int:
    """Kill the node processes of dead runners, and what those start meanwhile. Returns how many were killed."""
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        ending = []
        for runner in dead.keys() & carried.keys():
            for pid in carried[runner]:
                handle = kill(pid, partial(_belongs_to, dead[runner]))
                if handle is not None:
                    ending.append(handle)
                    killed.add(pid)
        if not ending:
            break
        wait_for(ending, _DEATH_S)
        carried = _node_processes(database)
    return len(killed)


def _belongs_to(runner: RunnerRow, pid: int) -> bool:
    """Return whether a process is a dead runner's, not an unrelated one that reuses the number."""
    try:
        started = started_at(pid, runner)
    except psutil.Error:
        return False
    return is_of_runner(pid, runner.id) and started > runner.process_started_at - 1.0
