"""Starting a node process below its reaper, perhaps before its task is known.

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
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.serialization.user_modules import folder_of_modules, search_path
from wtb.execution.sandbox.launch import reaper
from wtb.execution.sandbox.launch.process_tags import PROCESS, RUNNER, limit_of
from wtb.execution.sandbox.launch.walls import NOTHING_CLOSED, Hidden, Opened, ReadOnly, hide, read_only
from wtb.store.files.shared_store import SharedFiles
from wtb.store.files.workspaces import Workspaces

_OURS = ("WTB_", "FLOWER_")
_POSTGRES = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")  # by which its client finds a password


def environment(names: Sequence[str] | None, owner: str) -> dict[str, str]:
    """Return the variables that node processes inherit.

    These are the named ones, else all but settings and credentials of WTB and Flower. With a database server, variables
    by which PostgreSQL's client finds passwords are left out, too, unless they are named. A tag with the owner lets the
    cleanup find processes that are left over.
    """
    left_out = (*_OURS, *_POSTGRES) if is_guarded() else _OURS
    inherited = {name: setting for name, setting in os.environ.items() if not name.startswith(left_out)}
    if names is not None:
        inherited = {name: os.environ[name] for name in names if name in os.environ and not is_credential(name)}
    armed = {"WTB_FAULT": os.environ["WTB_NODE_FAULT"]} if "WTB_NODE_FAULT" in os.environ else {}
    return {**inherited, **armed, RUNNER: owner}


@frozen
class Launch:
    """The settings with which a process starts, before its first message.

    Attributes:
        environment: All variables that it inherits.
        limits: The limits of `run.rlimits` that are set.
        folder: Its working directory.
        path: The search path for modules.
        hidden: Places that walls hide; None for no walls.
        opened: Places that stay open within hidden ones.
        read_only: Directories that it cannot write.
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
    """Make the launch of a process with this environment and these limits. `workspaces` are its project's."""
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    path = tuple(search_path())
    if not is_walled():
        return Launch(environment, set_limits, folder, path)
    hidden, opened = _project_walls(os.getcwd(), workspaces)
    secrets = (*_secrets(os.getcwd()), *(hiding for path in database_files() if (hiding := hide(path)) is not None))
    # Files that nodes of this process write must not be run by this process or others of its user.
    closed = read_only(os.fspath(folder), path, sorted(writable_folders()))
    return Launch(environment, set_limits, folder, path, (*secrets, *hidden), opened, closed)


def is_walled() -> bool:
    """Return whether node processes have walls: if the database is a server, or if settings require it."""
    return is_guarded() or node_walls() == "all"


def files_to_hide() -> list[str]:
    """Return the files that node processes hide before they import user code: SQLite databases, by default.

    Those with all walls start with these, and hide the files by them.
    """
    return database_files() if not is_guarded() and node_walls() == "database" else []


def _project_walls(folder: str, workspaces: Workspaces | None) -> tuple[tuple[Hidden, ...], tuple[Opened, ...]]:
    """Return the hidden places of all projects, and the places of one project that stay open.

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
    return tuple(hiding for top in sorted(hidden) if (hiding := hide(top)) is not None), places


def make_folders(workspaces: Workspaces) -> None:
    """Make the folders that node processes of a project use: walls leave open only what was there before."""
    files = workspaces.files
    workspaces.root.mkdir(parents=True, exist_ok=True)
    # A shared directory may be out of reach now. Whatever needs it later reports that.
    with contextlib.suppress(OSError):
        files.make()
        files.judgements.mkdir(exist_ok=True)
    if isinstance(files, SharedFiles):
        with contextlib.suppress(OSError):
            files.cache.folder.mkdir(0o700, parents=True, exist_ok=True)


@cache
def _secrets(folder: str) -> tuple[Hidden, ...]:
    """Return places where credentials of WTB's servers may lie, as of the first call: nodes may move files later."""
    # Walls can leave open only directories that exist when they are raised.
    for name in OPEN if os.path.isdir(HOME) else ():
        os.makedirs(os.path.join(HOME, name), exist_ok=True)
    home = Path.home()
    places = (
        *(Path(folder, HOME, name) for name in SECRET),
        Path(os.environ.get("PGPASSFILE") or home / ".pgpass"),
        Path(os.environ.get("PGSERVICEFILE") or home / ".pg_service.conf"),
        client_credentials().parent,
    )
    return tuple(hiding for place in places if (hiding := hide(os.fspath(place))) is not None)


@frozen
class Launched:
    """A started process. Closing the leash ends it, with everything below it."""

    id: str
    leash: socket.socket
    channel: socket.socket
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """Close its leash, and the pipes to it, once it has ended."""
        for resource in (self.leash, self.channel, self.process.stdout, self.process.stderr):
            if resource is not None:
                resource.close()


_ahead: deque[tuple[Launch, Launched]] = deque()


def start_ahead(launch: Launch) -> None:
    """Start the process that the next `start` is expected to need."""
    with contextlib.suppress(OSError):
        _ahead.append((launch, start(launch)))


def start(launch: Launch) -> Launched:
    """Start a process, or take the one that was started ahead. Raises OSError."""
    return _take_ahead(launch) or _start(launch)


def _take_ahead(launch: Launch) -> Launched | None:
    """Take the process that was started ahead with the same settings; another one is ended."""
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
        # -P keeps the script's folder off the path, because modules beside it could shadow those of the standard
        # library.
        process = subprocess.Popen(
            [sys.executable, "-P", str(Path(reaper.__file__)), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=launch.folder,
            env={**launch.environment, PROCESS: name},
            pass_fds=(reaper_leash.fileno(), worker_channel.fileno()),
            # The terminal sends Ctrl-C to its whole process group, and the runner alone decides when node processes
            # end.
            start_new_session=True,
        )
        started.pop_all()
    return Launched(name, leash, channel, process)
