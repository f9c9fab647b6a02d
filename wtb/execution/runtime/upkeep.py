"""Upkeep: the heartbeat of a runner, what dead runners left, and sweeps with damaged values.

Attempts work in `<home>/sessions/<project>/<sweep>/<runner>/<attempt>`, in earlier releases below a session's folder.
Nothing of a runner that lives, or may live on another machine, is removed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from wtb.core.errors import StoreError
from wtb.core.fault_points import point
from wtb.core.frozen import frozen
from wtb.execution.sandbox.launch.process_tags import RUNNER, is_of_runner, kill, limit_of, limited, tagged, wait_for
from wtb.store.database import Database
from wtb.store.database_url import is_disk_full
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import stored_values
from wtb.store.process_identity import started_at, state_of
from wtb.store.read.queries import case_rows, line
from wtb.store.runs import leases
from wtb.store.runs.leases import runner_ids, runner_rows
from wtb.store.tables.sweeps import RunnerRow, SweepRow

UNKNOWN_S = 3600.0  # a directory of a runner that the database does not know is removed when it is so old
OLD_LAYOUT_S = 86400.0  # the same for what lies in `<home>/attempts`, where attempts worked before
EMPTY_S = 60.0  # a younger empty directory may be one that somebody is about to fill
_DEATH_S = 2.0
_ROUNDS = 5  # a process may start others while it is being killed


@frozen
class Cleaned:
    """Counts of removed directories of runners (or of attempts, in the old layout) and of killed processes.

    `unremoved` lists directories that could not be removed.
    """

    directories: int = 0
    processes: int = 0
    unremoved: tuple[str, ...] = ()


def clean(database: Database, workspaces_root: Path, *, dry: bool = False) -> Cleaned:
    """Remove directories without a live owner, and kill node processes whose runner is provably dead.

    Takes some milliseconds if there is nothing to do.

    Args:
        database: The database.
        workspaces_root: `<home>/sessions`.
        dry: Whether to count only.
    """
    folders = list(_runner_folders(workspaces_root))
    carried = _node_processes(database)
    owner_ids = {folder.name for folder in folders} | carried.keys()
    runners = runner_rows(database, owner_ids) if owner_ids else {}
    dead = {id: row for id, row in runners.items() if state_of(row) == "dead"}
    killed = sum(len(carried[id]) for id in dead.keys() & carried.keys()) if dry else _kill_all(database, carried, dead)
    # After the kills: a living node process would write into its directory again.
    orphaned = [folder for folder in folders if _is_orphaned(folder, runners.get(folder.name), dead, carried)]
    orphaned += _old_layout(workspaces_root.parent / "attempts")
    unremoved = [] if dry else [str(folder) for folder in orphaned if not _remove(folder)]
    if not dry:
        _remove_empty(workspaces_root, {folder.parent for folder in orphaned})
    return Cleaned(len(orphaned) - len(unremoved), killed, tuple(unremoved))


def clean_files(database: Database, files: FileStore) -> int:
    """Remove files that dead or ended runners had not finished adding to a store. Returns their number."""
    parts = files.parts()
    owners = {name.partition(".")[0] for part in parts for name in part.unfinished() if "." in name}
    runners = runner_rows(database, owners) if owners else {}
    ended_ids = [id for id, row in runners.items() if row.ended_at is not None or state_of(row) == "dead"]
    return sum(part.remove_unfinished(f"{id}.") for id in ended_ids for part in parts)


def _runner_folders(root: Path) -> Iterator[Path]:
    for project in _folders(root):
        for sweep in _folders(project):
            yield from _folders(sweep)


def _folders(place: Path) -> list[Path]:
    """Return the directories in a directory, without links to directories."""
    try:
        with os.scandir(place) as entries:
            return [Path(child.path) for child in entries if child.is_dir(follow_symlinks=False)]
    except OSError:  # not there, gone meanwhile, or not ours to look into
        return []


def _is_orphaned(folder: Path, row: RunnerRow | None, dead: Container[str], carried: Container[str]) -> bool:
    """Return whether the directory of a runner can go: the runner is dead, has ended, or has been unknown for long."""
    if row is not None:
        return row.id in dead or row.ended_at is not None
    # Of another database that keeps its files here too, or of a sweep that was deleted with its runner.
    return folder.name not in carried and _newest(folder) < time.time() - UNKNOWN_S


def _newest(folder: Path) -> float:
    """Return the last time at which a directory, or one in it, has changed."""
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
    """Return the processes of this user that carry the mark of a runner, by runner id."""
    by_runner = {runner: set(pids) for runner, pids in tagged(RUNNER).items()}
    named = set().union(*by_runner.values())
    if unnamed := {number: pids for number, pids in limited().items() if not named.issuperset(pids)}:
        # A process that gave up its environment carries only a number, which cannot be turned back into an id.
        for runner in runner_ids(database):
            if pids := unnamed.get(limit_of("", runner)[1]):
                by_runner.setdefault(runner, set()).update(pids)
    ours = {os.getpid()}
    if RUNNER in os.environ:
        # This process was started by a node, perhaps of a dead runner, and must not kill itself.
        ours |= {parent.pid for parent in psutil.Process().parents()}
    return {runner: sorted(remaining) for runner, pids in by_runner.items() if (remaining := pids - ours)}


def _kill_all(database: Database, carried: Mapping[str, list[int]], dead: Mapping[str, RunnerRow]) -> int:
    """Kill the node processes of dead runners, and those that they start meanwhile. Returns their number."""
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
    # A node process starts after its runner, so that an older process is an unrelated one.
    return is_of_runner(pid, runner.id) and started > runner.process_started_at - 1.0


LOOK_S = 1.0  # between two looks at what others decided
END_S = 1.0  # for a beat that is under way at the end


class Heartbeat:
    """Renews the leases of a runner three times in each `lease_s`, and calls `look` once a second.

    If renewing fails for as long as the leases last, or this thread ends, `stopped` is called: others may claim, so
    the runner has to abandon its work.
    """

    def __init__(
        self,
        database: Database,
        runner_id: str,
        lease_s: float,
        *,
        look: Callable[[], None],
        stopped: Callable[[], None],
    ) -> None:
        self._database = database
        self._runner_id = runner_id
        self._lease_s = lease_s
        self._look = look
        self._stopped = stopped
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="wtb-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End the heartbeat."""
        self._ending.set()
        # The caller may close the database next. If all threads share one connection, closing it during a beat ends
        # the process. The wait is short, because the database may not respond at all.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _beat(self) -> None:
        """The body of the thread. Calls `stopped` unless `end` was called."""
        # Two renewals may fail before the leases end.
        every = self._lease_s / 3
        try:
            renewed = due = time.monotonic()
            due += every
            while not self._ending.wait(max(0.0, min(LOOK_S, due - time.monotonic()))):
                try:
                    if time.monotonic() >= due:
                        due = time.monotonic() + every
                        point("heartbeat")
                        leases.renew(self._database, self._runner_id, self._lease_s)
                        renewed = time.monotonic()
                    self._look()
                except StoreError as error:
                    if is_disk_full(error):
                        # Others cannot write either, so they cannot claim. If one does, fencing rejects the late writes
                        # of this runner.
                        renewed = time.monotonic()
                    elif time.monotonic() - renewed > self._lease_s:
                        return
        finally:
            if not self._ending.is_set():
                self._stopped()


def repair_sweep(database: Database, sweep: SweepRow) -> int:
    """Verify by hash the values that open executions of a sweep start from, and move damaged ones back.

    Executions that move to the same checkpoint continue as one, so that lost work runs once. Returns their number.

    Raises StoreError if the input of a case is damaged: it cannot be computed again.
    """
    # Executions that have not begun have no other values than their input.
    _check_inputs(database, sweep, stored_values.waiting_cases(database, sweep.id))
    rows = stored_values.open_heads(database, sweep.id)
    written = stored_values.writes_from(database, (row.head_id for row in rows if row.head_id is not None))
    value_keys = {key for row in rows for key in row.state.values()} | {
        key for keys in written.values() for key in keys
    }
    lost = stored_values.find_damaged(database, value_keys)
    if not lost:
        return 0
    moves: defaultdict[tuple[int, int, str | None, str | None], list[Any]] = defaultdict(list)
    for row in rows:
        if row.head_id is not None and not lost.isdisjoint(row.state.values()):
            back, more = _intact(database, row.head_id, lost)
            lost |= more
            if back is None:  # it starts from the input, unless that is damaged, too
                _check_inputs(database, sweep, {row.case_number})
            # Forks by a person choose variants of their own, so they are not merged.
            alone = None if row.choices is None else row.id
            moves[row.case_number, row.repeat, back, alone].append(row)
    # The checkpoints that executions move back to have node runs, too, whose results may be damaged.
    written |= stored_values.writes_from(database, (back for _, _, back, _ in moves if back is not None))
    lost |= stored_values.find_damaged(database, (key for keys in written.values() for key in keys))
    damaged_runs = [id for id, keys in written.items() if not lost.isdisjoint(keys)]
    stored_values.go_back(database, sweep, lost, damaged_runs, moves)
    return sum(map(len, moves.values()))


def _intact(database: Database, head_id: str, lost: set[str]) -> tuple[str | None, set[str]]:
    """Return the nearest intact checkpoint of a line, if any, and the damaged values found on the way."""
    more: set[str] = set()
    for checkpoint in reversed(line(database, head_id)):
        keys = set(checkpoint.state.values())
        if keys.isdisjoint(lost | more):
            damaged = stored_values.find_damaged(database, keys)
            more |= damaged
            if not damaged:
                return checkpoint.id, more
    return None, more


def _check_inputs(database: Database, sweep: SweepRow, numbers: set[int]) -> None:
    """Check the inputs of cases by number. Raises StoreError."""
    cases = case_rows(database, sweep.id, numbers)
    lost = stored_values.find_damaged(database, {key for case in cases.values() for key in case.input.values()})
    for case in cases.values():
        if not lost.isdisjoint(case.input.values()):
            raise StoreError(
                f"sweep {sweep.id}: the stored input of case {case.id!r} is damaged, and nothing can compute it again; "
                f"submit the sweep anew with `wtb run`"
            )
