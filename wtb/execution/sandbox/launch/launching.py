"""Starting a node process below its reaper, which may be ahead of knowing what it is for.

Until its first frame arrives a process has imported nothing but WTB, so it can start while the command that will need
it still reads the sweep, imports the database's client and submits. If nobody takes it, it ends with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from wtb.config.credentials import client_credentials, database_files, is_credential, is_guarded
from wtb.config.project_settings import node_walls, writable_folders
from wtb.config.stack_file import HOME, OPEN, SECRET
from wtb.core.classes.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.serialization.user_modules import folder_of_modules, search_path
from wtb.execution.sandbox.launch import reaper
from wtb.execution.sandbox.launch.process_tags import PROCESS, RUNNER, limit_of
from wtb.execution.sandbox.launch.read_only import NOTHING_CLOSED, ReadOnly, read_only
from wtb.execution.sandbox.launch.walls import Hidden, Opened, hide
from wtb.store.files.shared_store import SharedFiles
from wtb.store.files.workspaces import Workspaces

_OURS = ("WTB_", "FLOWER_")
_POSTGRES = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")  # by which its client finds a password


def environment(names: Sequence[str] | None, owner: str) -> dict[str, str]:
    """What node processes inherit: all but WTB's and Flower's settings and credentials, or the named variables alone.

    Nor those by which PostgreSQL's client finds passwords, where WTB's database is there, unless they are named.
    The tag says whose they are, for the cleanup that finds one left over.
    """
    left_out = (*_OURS, *_POSTGRES) if is_guarded() else _OURS
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    if names is not None:
        inherited = {name: os.environ[name] for name in names if name in os.environ and not is_credential(name)}
    armed = {"WTB_FAULT": os.environ["WTB_NODE_FAULT"]} if "WTB_NODE_FAULT" in os.environ else {}
    return {**inherited, **armed, RUNNER: owner}


@frozen
class Launch:
    """What a process is started with, before it is told anything.

    environment: all it inherits. limits: as in `run.rlimits`, those that are set. path: where it finds modules.
    hidden: what walls hide from it; None for no walls. opened: what stays open within that. read_only: what they do not
    let it write.
    """

    environment: Mapping[str, str]
    limits: Mapping[str, int]
    folder: Path
    path: Sequence[str]
    hidden: Sequence[Hidden] | None = None
    opened: Sequence[Opened] = ()
    read_only: ReadOnly = NOTHING_CLOSED


def launch_of(
    environment: Mapping[str, str],
    limits: Mapping[str, int | None],
    folder: Path,
    workspaces: Workspaces | None = None,
) -> Launch:
    """What a process of this environment and these limits is started with now. workspaces: of its project."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    path = tuple(search_path())
    if not is_walled():
        return Launch(environment, given, folder, path)
    hidden, opened = _project_walls(os.getcwd(), workspaces)
    secrets = (*_secrets(os.getcwd()), *(one for path in database_files() if (one := hide(path)) is not None))
    # What nodes of this process write, this process and others of its user must not run.
    closed = read_only(os.fspath(folder), path, sorted(writable_folders()))
    return Launch(environment, given, folder, path, (*secrets, *hidden), opened, closed)


def is_walled() -> bool:
    """Return whether node processes of this process have walls: where the database is a server, or settings say so."""
    return is_guarded() or node_walls() == "all"


def files_to_hide() -> list[str]:
    """Return what node processes hide from user code before they import it: files of SQLite databases, by default.

    Those with all walls start with these, and hide the files by them.
    """
    return database_files() if not is_guarded() and node_walls() == "database" else []


def _project_walls(folder: str, workspaces: Workspaces | None) -> tuple[tuple[Hidden, ...], tuple[Opened, ...]]:
    """Return what hides the files of all projects, and what stays open of those of one.

    Nodes read the stored files of their project, and write in the directory of their runner and to the replies of
    judges.
    """
    tops = {os.path.join(folder, HOME, name) for name in OPEN}
    opened = []
    if workspaces is not None:
        files = workspaces.files
        tops |= {os.fspath(files.top), os.fspath(workspaces.top)}
        opened = [(files.root, False), (files.judgements, True), (workspaces.root, True)]
        if isinstance(files, SharedFiles):
            tops.add(os.fspath(files.cache.root))
            opened.append((files.cache.folder, False))
    places = tuple(Opened(os.path.realpath(path), writable) for path, writable in opened if path.is_dir())
    within = {place.path for place in places}  # a store that is no project's is its own top, and stays open
    hidden = {top for path in tops if (top := os.path.realpath(path)) not in within}
    return tuple(one for top in sorted(hidden) if (one := hide(top)) is not None), places


def make_folders(workspaces: Workspaces) -> None:
    """Make the folders that node processes of a project use: walls leave open only what was there before."""
    files = workspaces.files
    workspaces.root.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # who needs a shared directory that is not there says so
        files.make()
        files.judgements.mkdir(exist_ok=True)
    if isinstance(files, SharedFiles):
        with contextlib.suppress(OSError):
            files.cache.folder.mkdir(0o700, parents=True, exist_ok=True)


@cache
def _secrets(folder: str) -> tuple[Hidden, ...]:
    """Where credentials of WTB's servers may lie: as it was when this process first asked, whatever nodes move."""
    for name in OPEN if os.path.isdir(HOME) else ():  # walls may let be read only what was there before
        os.makedirs(os.path.join(HOME, name), exist_ok=True)
    home = Path.home()
    places = (
        *(Path(folder, HOME, name) for name in SECRET),
        Path(os.environ.get("PGPASSFILE") or home / ".pgpass"),
        Path(os.environ.get("PGSERVICEFILE") or home / ".pg_service.conf"),
        client_credentials().parent,
    )
    return tuple(one for place in places if (one := hide(os.fspath(place))) is not None)


@frozen
class Launched:
    """A process that was started. Closing the leash ends it, with everything below it."""

    id: str
    leash: socket.socket
    channel: socket.socket
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """Close its leash, and the pipes to it, once it has ended."""
        for thing in (self.leash, self.channel, self.process.stdout, self.process.stderr):
            if thing is not None:
                thing.close()


_ahead: deque[tuple[Launch, Launched]] = deque()


def start_ahead(launch: Launch) -> None:
    """Start the process that the next `start` is expected to ask for."""
    with contextlib.suppress(OSError):  # who needs it says so
        _ahead.append((launch, start(launch)))


def start(launch: Launch) -> Launched:
    """Start a process, or take the one that was started ahead. Raises OSError."""
    return _taken(launch) or _start(launch)


def _taken(launch: Launch) -> Launched | None:
    """Take the process that was started ahead for the same; one that was started for something else is ended."""
    try:
        expected, launched = _ahead.popleft()
    except IndexError:
        return None
    if expected == launch:
        return launched
    launched.close()
    launched.process.wait()
    return None


def _start(launch: Launch) -> Launched:
    name = new_id()
    leash, reaper_leash = socket.socketpair()
    channel, worker_channel = socket.socketpair()
    options = {
        "leash": reaper_leash.fileno(),
        "channel": worker_channel.fileno(),
        "limits": launch.limits,
        "mark": limit_of(name, launch.environment[RUNNER]),
        "path": launch.path,
        "modules": folder_of_modules(),
        "hidden": launch.hidden,
        "opened": launch.opened,
        "closed": launch.read_only.closed,
        "open": launch.read_only.open,
    }
    with reaper_leash, worker_channel, contextlib.ExitStack() as started:
        started.callback(leash.close)
        started.callback(channel.close)
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(reaper.__file__)), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=launch.folder,
            env={**launch.environment, PROCESS: name},
            pass_fds=(reaper_leash.fileno(), worker_channel.fileno()),
            start_new_session=True,  # Ctrl-C is for the runner alone
        )
        started.pop_all()
    return Launched(name, leash, channel, process)
