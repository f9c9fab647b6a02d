"""A private PostgreSQL: made, started, found again and stopped by its directory.

    with PostgresServer(".wtb/postgres") as server:
        create_engine(server.url)

The directory holds `data/`, `server.log` and `password` (0600). The server listens on 127.0.0.1 only, has no
Unix socket and asks everybody for that password. For root it runs as an unprivileged user, who must be able
to reach the directory. POSIX systems only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg

from wtb.errors import ConflictError, StoreError
from wtb.servers.binaries import Binaries, find_binaries
from wtb.servers.databases import connect, create_database
from wtb.servers.processes import HOST, NOBODY, as_server, ended, free_port, is_root


class PostgresServer:
    """The PostgreSQL of `directory`; nothing happens before `start`.

    `port`: default a free one, kept as long as this object lives. `settings`: parameters of the server.
    `die_with_parent`: shut down when this process ends in whatever way, kill -9 included.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        die_with_parent: bool = False,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.log = self.directory / "server.log"
        self._data = self.directory / "data"
        self._password = self.directory / "password"
        self._port = port
        self._settings = dict(settings or {})
        self._binaries = binaries
        self._die_with_parent = die_with_parent
        self._process: subprocess.Popen[Any] | None = None
        self._watcher: subprocess.Popen[Any] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server that runs on this directory, whoever started it."""
        server, _ = self._find()
        return server.pid if server else None

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the database `wtb`, password included: not for logs."""
        _, port = self._find()
        if port is None or not self._password.exists():
            raise StoreError(f"no PostgreSQL runs in {self.directory}; start it first")
        return self._url(port, "wtb")

    def create_database(self, name: str) -> str:
        """Make the empty database `name`; its URL."""
        return create_database(self.url, name)

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server, making its data first if there are none; returns once it answers.

        StoreError with the end of its log when it does not answer; ConflictError when one runs here already.
        """
        self._prepare()
        with self._locked():
            if self.pid:
                raise ConflictError(f"PostgreSQL {self.pid} runs in {self.directory}: use it, or stop it first")
            made_by = self._data / "PG_VERSION"
            major = int(made_by.read_text()) if made_by.exists() else None
            binaries = self._binaries or find_binaries(major)
            if major is None:
                self._initialise(binaries)
            for port in [self._port] if self._port else [free_port() for _ in range(5)]:
                problem = self._launch(binaries, port, timeout)
                if "Address already in use" not in problem:
                    break  # else somebody was quicker to take the free port
            if problem:
                raise StoreError(f"PostgreSQL in {self.directory} did not start: {problem}")
            self._port = port
        return self

    def stop(self, immediate: bool = False, timeout: float = 30.0) -> None:
        """Stop the server, also one that another process left behind; no server is fine.

        Open transactions are rolled back. `immediate` is as good as a crash: the next start recovers.
        """
        self._signal(signal.SIGQUIT if immediate else signal.SIGINT, timeout)

    def kill(self) -> None:
        """Kill -9 every process of the server."""
        self._signal(signal.SIGKILL, 10.0)

    def _signal(self, number: signal.Signals, timeout: float) -> None:
        if self._watcher:  # first: it must not signal a process id that somebody else got meanwhile
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        server, _ = self._find()
        if server:
            if number == signal.SIGKILL:
                server.suspend()  # or it might start another process while they are listed
            family = [server, *server.children(recursive=True)]
            for process in family if number == signal.SIGKILL else [server]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            if not ended(family, timeout):
                if number == signal.SIGKILL:
                    raise StoreError(f"PostgreSQL {server.pid} in {self.directory} outlived SIGKILL")
                self.kill()
        if self._process:
            self._process.wait()
            self._process = None

    def _find(self) -> tuple[psutil.Process | None, int | None]:
        """The running server, if any, and the port: of this object, or as the server wrote it down."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if self._process and self._process.poll() is None:
                return psutil.Process(self._process.pid), self._port
            if note := self._note():
                server = psutil.Process(note[0])
                # After a crash the id may be somebody else's by now.
                if server.name() == "postgres" and Path(server.cwd()) == self._data:
                    return server, note[1]
        return None, self._port

    def _note(self) -> tuple[int, int, bool] | None:
        """Process id, port and readiness, as the server keeps them in its data directory."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            if len(lines) > 7:  # else it is still being written
                return int(lines[0]), int(lines[3]), lines[7].startswith("ready")
        return None

    def _url(self, port: int, database: str) -> str:
        return f"postgresql+psycopg://wtb:{self._password.read_text()}@{HOST}:{port}/{database}"

    def _prepare(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"PostgreSQL cannot have the directory {self.directory}: {error}") from error
        if is_root():
            self.directory.chmod(0o711)
        for folder in self.directory.parents if is_root() else ():
            if not folder.stat().st_mode & 0o001:
                raise StoreError(
                    f"PostgreSQL refuses to run as root; user {NOBODY}, as whom it runs instead, cannot pass "
                    f"through {folder}: choose another directory, or allow it (chmod o+x)"
                )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConflictError(f"somebody else is starting PostgreSQL in {self.directory}") from error
            yield
        finally:
            os.close(descriptor)

    def _initialise(self, binaries: Binaries) -> None:
        # Under another name until it is complete, so that a killed start leaves nothing half made.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        self._password.unlink(missing_ok=True)
        new.mkdir(mode=0o700)
        # Kept for whoever finds the server later; its readers could read the data directory just as well.
        self._password.touch(mode=0o600)
        self._password.write_text(secrets.token_urlsafe(24))
        if is_root():
            os.chown(new, NOBODY, NOBODY)
            os.chown(self._password, NOBODY, NOBODY)
        binaries.initialise(new, self._password, sync=self._settings.get("fsync") != "off")
        new.rename(self._data)

    def _launch(self, binaries: Binaries, port: int, timeout: float) -> str:
        """Start the server on `port`; empty once it answers, else what went wrong with the end of its log."""
        settings = {"timezone": "UTC", "log_timezone": "UTC", **self._settings}
        settings |= {"listen_addresses": HOST, "unix_socket_directories": "", "port": str(port)}
        command = [str(binaries.folder / "postgres"), "-D", str(self._data)]
        command += [f"--{name}={value}" for name, value in settings.items()]
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **as_server())
        problem = "interrupted"
        try:
            if self._die_with_parent:
                # The read ends when this process does, which alone (with its forks) holds the other end.
                script = ["/bin/sh", "-c", f"read _; kill -INT {self._process.pid}"]
                self._watcher = subprocess.Popen(
                    script, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, **as_server()
                )
            problem = self._await_answer(self._process, port, time.monotonic() + timeout)
        finally:
            if problem:
                self.stop(immediate=True)
        lines = self.log.read_bytes()[begin:].decode(errors="replace").splitlines()
        return "\n".join([problem, *lines[-20:]]) if problem else ""

    def _await_answer(self, process: subprocess.Popen[Any], port: int, deadline: float) -> str:
        problem = "it was not ready in time"
        while time.monotonic() < deadline:
            # Not asked before it is ready: whoever else listens on this port would be sent the password.
            if self._note() == (process.pid, port, True):
                try:
                    with connect(self._url(port, "postgres")) as connection:
                        query = "SELECT 1 FROM pg_database WHERE datname = 'wtb'"
                        if not connection.execute(query).fetchone():
                            connection.execute("CREATE DATABASE wtb TEMPLATE template0")
                        return ""
                except psycopg.OperationalError as error:
                    problem = f"it does not answer: {error}"
            # Waiting for its end, to learn of it at once, is also the pause between two looks.
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"it ended with status {process.wait(0.02)}"
        return problem
