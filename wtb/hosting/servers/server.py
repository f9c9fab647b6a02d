"""A private server of this machine: its directory, its password and its port."""

from __future__ import annotations

import os
import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Self

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, StoreError
from wtb.hosting.servers.logs import Line, to_files
from wtb.hosting.servers.processes import HOST, NOBODY, free_port, is_root, locked, server_process
from wtb.hosting.servers.program import Program

ENDING_S = 10.0  # that what an owner left behind may take to end, when that was killed


@frozen
class Command:
    """How to start a server: its arguments, its standard input, and the descriptors that it inherits."""

    arguments: list[str]
    stdin: bytes = b""
    descriptors: tuple[int, ...] = ()


class Server(Program, ABC):
    """The server of a directory; nothing happens before `start`.

    It listens on 127.0.0.1 only and asks for the password in the file `password` (0600) of the directory. For root it
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
            name: What its log is called.
            directory: Of its own; made if it is not there.
            port: Default: a free one, kept as long as this object lives.
            settings: Its configuration, by name.
            line: Called with each line of its output. Default: a log in the directory.
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
        """Make what is needed before the first start. Raises StoreError."""

    @abstractmethod
    def command(self, port: int) -> AbstractContextManager[Command]:
        """The command that starts it on a port."""

    @abstractmethod
    def ask(self, port: int) -> str:
        """Return an empty text if it answers on a port, else what is wrong."""

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server; returns once it answers.

        Args:
            timeout: Seconds that it may take.

        Raises:
            StoreError: It does not answer; the message has the end of its log.
            ConflictError: A server runs in the directory.
        """
        taken = f"{self.title} runs in {self.directory}: use it, or stop it first"
        if self.poll() is None:
            raise ConflictError(taken)
        with locked(self.directory, taken, ENDING_S) as lock:
            self.prepare()
            for port in [self.port] if self.port else [free_port() for _ in range(5)]:
                problem = self._try(port, lock, timeout)
                if not problem:
                    self.port = port
                    return self
                if "Address already in use" not in problem:
                    break
        raise StoreError(f"{self.title} in {self.directory} did not start: {problem}")

    def _try(self, port: int, lock: int, timeout: float) -> str:
        """Start it on a port. Returns an empty text once it answers, else what went wrong."""
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
        """Wait until the server answers. Returns what is wrong if it has not by the deadline, or has ended."""
        problem = "it was not ready in time"
        while time.monotonic() < deadline:
            if self.is_announced:  # else whoever listens on this port instead would be sent the password
                problem = self.ask(port)
                if not problem:
                    return ""
            # Waiting for its end, to learn of it at once, is also the pause between two looks.
            if (how := self.wait(0.02)) is not None:
                return f"it {how}"
        return problem

    def stop(self, immediate: bool = False, timeout: float | None = None) -> None:
        """Stop the server; one that does not run is fine.

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
        """Write a password, by default a new one, for whoever finds the server later: this user alone reads it."""
        password = password or secrets.token_urlsafe(24)
        self._password.unlink(missing_ok=True)
        self._password.touch(mode=0o600)
        self._password.write_text(password)
        return password
