"""What every server that WTB starts has in common: its user, its files, and its port on the loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

from wtb.config.distribution import pip_install
from wtb.core.errors import ConflictError, StoreError

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where `wtb up` is refused
    import fcntl

HOST = "127.0.0.1"
NOBODY = 65534


def is_root() -> bool:
    return os.geteuid() == 0


class OfServer(TypedDict):
    """Arguments of `subprocess` for what belongs to a server."""

    env: dict[str, str]
    cwd: str
    umask: int


class OfServersUser(OfServer):
    """The same for a process of a server's user, who is named where the caller is root."""

    start_new_session: bool
    user: NotRequired[int]
    group: NotRequired[int]
    extra_groups: NotRequired[list[int]]


def server_process() -> OfServer:
    """Return arguments of `subprocess` for what belongs to a server: deaf to the caller's PG* and locale."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {"env": env | {"LC_ALL": "C"}, "cwd": "/", "umask": 0o077}


def as_server() -> OfServersUser:
    """Return arguments of `subprocess` for a process of a server's user, who is never root."""
    own = server_process()
    # A session of its own: Ctrl-C in a terminal is for the owner, who then stops the server.
    found: OfServersUser = {"env": own["env"], "cwd": own["cwd"], "umask": own["umask"], "start_new_session": True}
    if is_root():
        found["user"] = found["group"] = NOBODY
        found["extra_groups"] = []
    return found


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A path by which a server's process gets at a folder of its own, and the descriptors that it has to inherit.

    For root it runs as another user, who may not be able to pass through the folders above. By a descriptor it
    need not.
    """
    if not is_root() or sys.platform != "linux":
        yield str(folder), ()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}", (descriptor,)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder that is closed to others. Raises StoreError where that cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder} ({error.strerror}): run this in a folder that is yours to write to"
        ) from error


@contextlib.contextmanager
def locked(folder: Path, conflict: str, patience_s: float = 0.0) -> Iterator[int]:
    """Make a folder, and lock it.

    Args:
        folder: Nobody else locks it meanwhile.
        conflict: The message of the error where somebody else does.
        patience_s: Seconds to wait for that.

    Yields:
        A descriptor that holds the lock, also in processes that inherit it.

    Raises:
        ConflictError: Somebody else has locked the folder.
        StoreError: It cannot be made.
    """
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    ends = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > ends:
                    raise ConflictError(conflict) from error
                time.sleep(0.02)
        yield descriptor
    finally:
        os.close(descriptor)


def not_found(what: str, packages: str, candidates: Iterator[Path]) -> StoreError:
    """Return the error that says how to install a server, or what keeps the server's user from one of the candidates.

    Args:
        what: The server that was looked for.
        packages: Names of the packages that have it.
        candidates: Where it was looked for.
    """
    for program in dict.fromkeys(candidates):
        if closed := closed_to_server(program):
            return StoreError(closed)
    who = f"user {NOBODY} (as whom it runs for root)" if is_root() else "this user"
    return StoreError(
        f"no {what} that {who} can run; "
        f"install one: `{pip_install('stack')}`, or the package {packages} of your distribution"
    )


def files_of_wheel(module: str, pattern: str) -> Iterator[Path]:
    """Yield files of an installed package without importing it, which would run its own helpers."""
    wheel = importlib.util.find_spec(module)
    for root in (wheel and wheel.submodule_search_locations) or ():
        yield from Path(root).glob(pattern)


def version_of(program: Path) -> int | None:
    """Return the major version that a program prints; None where it cannot be run."""
    # Asked as the user it would run as: it may be a wrapper, or in a folder that is closed to that user.
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, **as_server())
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.match(r"\w+ (?:\(PostgreSQL\) |server v=)(\d+)", answer.stdout)
    return int(version[1]) if version else None


def closed_to_server(program: Path) -> str | None:
    """For root: what keeps the server's user from a program, and what to do about it; None where nothing does."""
    for folder in reversed(program.resolve().parents) if is_root() else ():
        if not folder.stat().st_mode & 0o001:
            return (
                f"servers do not run as root but as user {NOBODY}, who cannot pass through {folder} to {program}: "
                f"allow it (chmod o+x {folder}), use a Python environment elsewhere, or do not run this as root"
            )
    return None


def free_port() -> int:
    """Return a port of the loopback that nobody listens on just now."""
    # Below the range from which systems take ports for outgoing connections: in there, a client that knocks
    # while the server is down can be given the server's own port and keep it from coming back.
    for port in random.sample(range(20_000, 32_000), 100):
        if is_free(port):
            return port
    raise StoreError(f"none of 100 ports between 20000 and 32000 on {HOST} is free; name one")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do, else a port that was in use a minute ago counts as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
