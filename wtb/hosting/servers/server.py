"""A private server of this machine: its user, its directory, its password and its port on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, NotRequired, Self, TypedDict

from wtb.config.distribution import pip_install
from wtb.core.errors import ConflictError, StoreError
from wtb.core.frozen import frozen
from wtb.hosting.servers.program import Line, Program, to_files

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where `wtb up` is refused
    import fcntl

HOST = "127.0.0.1"
NOBODY = 65534


def is_root() -> bool:
    return os.geteuid() == 0


class OfServer(TypedDict):
    """Arguments of `subprocess` for programs of a server."""

    env: dict[str, str]
    cwd: str
    umask: int


class OfServersUser(OfServer):
    """The same for a process of a server's user, who is named if the caller is root."""

    start_new_session: bool
    user: NotRequired[int]
    group: NotRequired[int]
    extra_groups: NotRequired[list[int]]


def server_process() -> OfServer:
    """Return arguments of `subprocess` for programs of a server, without PG* variables and locale of the caller."""
    env = {name: setting for name, setting in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {"env": env | {"LC_ALL": "C"}, "cwd": "/", "umask": 0o077}


def as_server() -> OfServersUser:
    """Return arguments of `subprocess` for a process of a server's user, who is never root."""
    own = server_process()
    # A session of its own: Ctrl-C in a terminal is for the owner, who then stops the server.
    arguments: OfServersUser = {"env": own["env"], "cwd": own["cwd"], "umask": own["umask"], "start_new_session": True}
    if is_root():
        arguments["user"] = arguments["group"] = NOBODY
        arguments["extra_groups"] = []
    return arguments


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield a path by which a server's process reaches its folder, and the descriptors that it must inherit.

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
    """Make a folder that is closed to others. Raises StoreError if that is impossible."""
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
        folder: The folder, which nobody else can lock meanwhile.
        conflict: The message of the error if another process holds the lock.
        patience_s: Seconds to wait for the lock.

    Yields:
        A descriptor that holds the lock, also in processes that inherit it.

    Raises:
        ConflictError: Another process has locked the folder.
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
    """Return the error for a missing server, with how to install it, or how to let its user run a candidate.

    Args:
        what: The missing server.
        packages: Names of the packages that have it.
        candidates: The places where it may be.
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
    """Return the major version that a program prints; None if it cannot be run."""
    # Run by the user of servers: the program may be a wrapper, or in a folder that is closed to that user.
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, **as_server())
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.match(r"\w+ (?:\(PostgreSQL\) |server v=)(\d+)", answer.stdout)
    return int(version[1]) if version else None


def closed_to_server(program: Path) -> str | None:
    """For root, return what keeps the server's user from a program, with a fix; None if nothing does."""
    for folder in reversed(program.resolve().parents) if is_root() else ():
        if not folder.stat().st_mode & 0o001:
            return (
                f"servers do not run as root but as user {NOBODY}, who cannot pass through {folder} to {program}: "
                f"allow it (chmod o+x {folder}), use a Python environment elsewhere, or do not run this as root"
            )
    return None


def free_port() -> int:
    """Return a port of loopback on which no process listens now."""
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


ENDING_S = 10.0  # for the server of a killed owner to end


@frozen
class Command:
    """The command that starts a server: its arguments, its standard input, and the descriptors that it inherits."""

    arguments: list[str]
    stdin: bytes = b""
    descriptors: tuple[int, ...] = ()


class Server(Program, ABC):
    """The server of a directory; nothing happens before `start`.

    It listens on 127.0.0.1 only and requires the password in the file `password` (0600) of the directory. For root it
    runs as an unprivileged user. It ends with its owner, in whatever way that ends. POSIX systems only.
    """

    title: ClassVar[str]

    def __init__(
        self,
        name: str,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        line: Line | None = None,
        grace: float,
    ) -> None:
        """Describe a server.

        Args:
            name: The name of its log.
            directory: Its own directory, which is made if necessary.
            port: The port; by default a free one, kept as long as this object lives.
            settings: Its configuration, by name.
            line: Called with each line of its output; by default it goes to a log in the directory.
            grace: Seconds from the request to stop until it is killed.
        """
        self.directory = Path(directory).resolve()
        super().__init__(
            name, [], folder=self.directory, line=line or to_files(self.directory), environment={}, grace=grace
        )
        self.settings = dict(settings or {})
        self.port = port
        self._password = self.directory / "password"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process of the server; None while it does not run."""
        part = self.part
        return part.pid if self.poll() is None and part is not None else None

    @property
    def url(self) -> str:
        """Its URL, password included: not for logs."""
        if self.port is None or not self._password.exists():
            raise StoreError(f"no {self.title} runs in {self.directory}; start it first")
        return self.url_of(self.port, self._password.read_text())

    @abstractmethod
    def url_of(self, port: int, password: str) -> str:
        """Return the URL of the server on a port, password included."""

    def prepare(self) -> None:
        """Prepare the directory for a start. Raises StoreError."""

    @abstractmethod
    def command(self, port: int) -> AbstractContextManager[Command]:
        """Yield the command that starts it on a port."""

    @abstractmethod
    def ask(self, port: int) -> str:
        """Return an empty text if it responds on a port, else the problem."""

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server. Returns once it responds.

        Args:
            timeout: Seconds that it may take.

        Raises:
            StoreError: It does not respond; the message has the end of its log.
            ConflictError: A server runs in the directory.
        """
        conflict = f"{self.title} runs in {self.directory}: use it, or stop it first"
        if self.poll() is None:
            raise ConflictError(conflict)
        with locked(self.directory, conflict, ENDING_S) as lock:
            self.prepare()
            # Another process may take a free port before the server listens on it.
            for port in [self.port] if self.port else [free_port() for _ in range(5)]:
                problem = self._try(port, lock, timeout)
                if not problem:
                    self.port = port
                    return self
                if "Address already in use" not in problem:
                    break
        raise StoreError(f"{self.title} in {self.directory} did not start: {problem}")

    def _try(self, port: int, lock: int, timeout: float) -> str:
        """Start it on a port. Returns an empty text once it responds, else the problem."""
        self._address = f"{HOST}:{port}"
        with self.command(port) as command:
            self._spawn(
                command.arguments,
                user=NOBODY if is_root() else None,
                lock=[lock],
                stdin=command.stdin,
                pass_fds=command.descriptors,
                **server_process(),
            )
        problem = "interrupted"
        try:
            problem = self._await_answer(port, time.monotonic() + timeout)
        finally:
            if problem:
                self.end_now()
        return "\n".join([problem, *self.tail]) if problem else ""

    def _await_answer(self, port: int, deadline: float) -> str:
        """Wait until the server responds. Returns the problem if it has not by the deadline, or has ended."""
        problem = "it was not ready in time"
        while time.monotonic() < deadline:
            # Not before its own log shows it: another process on this port would get the password.
            if self.is_announced:
                problem = self.ask(port)
                if not problem:
                    return ""
            # Waiting for its end, to learn of it at once, is also the pause between two looks.
            if (how := self.wait(0.02)) is not None:
                return f"it {how}"
        return problem

    def stop(self, immediate: bool = False, timeout: float | None = None) -> None:
        """Stop the server, if it runs.

        Args:
            immediate: End it at once, which is as good as a crash: the next start recovers.
            timeout: Seconds until it is killed.
        """
        if self.poll() is None:
            if immediate:
                self.end_now()
            else:
                self.ask_to_stop()
                self.end(grace=timeout)

    def kill(self) -> None:
        """Kill -9 every process of the server."""
        self.signal(signal.SIGKILL)
        self.end_now()

    def keep_password(self, password: str | None = None) -> str:
        """Write a password, by default a new one, to a file that only this user can read."""
        password = password or secrets.token_urlsafe(24)
        # A new file, because an existing one would keep its mode.
        self._password.unlink(missing_ok=True)
        self._password.touch(mode=0o600)
        self._password.write_text(password)
        return password
