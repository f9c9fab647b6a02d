"""A private PostgreSQL: made, started, found again and stopped by its directory.

    with PostgresServer(".wtb/postgres") as server:
        create_engine(server.url)

The directory holds `data/`, `server.log` and `password` (0600). The server listens on 127.0.0.1 only, has no
Unix socket and lets in one role, `wtb`, which is no superuser, with that password. For root it runs as an unprivileged
user. POSIX systems only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil
import psycopg

from wtb.core.errors import ConflictError, StoreError
from wtb.hosting.servers import roles
from wtb.hosting.servers.binaries import Binaries, find_binaries
from wtb.hosting.servers.databases import connect, create_database
from wtb.hosting.servers.folder import keep_password, locked, make_folder
from wtb.hosting.servers.processes import HOST, NOBODY, ServerProcess, ended, free_port, is_root, on_a_port, reachable

NAME = "PostgreSQL"


class PostgresServer:
    """The PostgreSQL of `directory`; nothing happens before `start`.

    `port`: default a free one, kept as long as this object lives. `settings`: parameters of the server.
    `die_with_parent`: shut down when this process ends in whatever way, kill -9 included. `create_databases`: whether
    the role of its URL may make databases beside its own.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        die_with_parent: bool = False,
        create_databases: bool = False,
    ) -> None:
        self.directory = Path(directory).resolve()
        self.log = self.directory / "server.log"
        self._data = self.directory / "data"
        self._password = self.directory / "password"
        self._port = port
        self._settings = dict(settings or {})
        self._binaries = binaries
        self._create_databases = create_databases
        self._process = ServerProcess(NAME, self._left_behind, signal.SIGINT if die_with_parent else None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server that runs on this directory, whoever started it."""
        server = self._process.find()
        return server.pid if server else None

    @property
    def port(self) -> int | None:
        """Where the server listens, or will again; None before its first start."""
        note = self._note()
        return note[1] if note and note[0] == self.pid else self._port

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the database `wtb` for the role that owns it, password included: not for logs."""
        port = self.port
        if port is None or not self._password.exists():
            raise StoreError(f"no PostgreSQL runs in {self.directory}; start it first")
        return f"postgresql+psycopg://{roles.ROLE}:{self._password.read_text()}@{HOST}:{port}/{roles.ROLE}"

    def create_database(self, name: str) -> str:
        """Make the empty database `name`, where the role may; its URL."""
        return create_database(self.url, name)

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server, making its data first if there are none; returns once it answers.

        StoreError with the end of its log when it does not answer; ConflictError when one runs here already.
        """
        self._prepare()
        with locked(self.directory, NAME):
            if self.pid:
                raise ConflictError(f"PostgreSQL {self.pid} runs in {self.directory}: use it, or stop it first")
            self._end_orphans()
            made_by = self._data / "PG_VERSION"
            major = int(made_by.read_text()) if made_by.exists() else None
            binaries = self._binaries or find_binaries(major)
            if major is None:
                self._initialise(binaries)
            elif not (self._has_roles(self._data) and self._password.exists()):
                self._set_up_roles(binaries, self._data)
            ports = [self._port] if self._port else [free_port() for _ in range(5)]
            self._port = on_a_port(
                ports, lambda port: self._launch(binaries, port, timeout), f"{NAME} in {self.directory}"
            )
        return self

    def stop(self, immediate: bool = False, timeout: float = 30.0) -> None:
        """Stop the server, also one that another process left behind; no server is fine.

        Open transactions are rolled back. `immediate` is as good as a crash: the next start recovers.
        """
        self._process.end(signal.SIGQUIT if immediate else signal.SIGINT, timeout)

    def kill(self) -> None:
        """Kill -9 every process of the server."""
        self._process.end(signal.SIGKILL, 10.0)

    def _left_behind(self) -> psutil.Process | None:
        if note := self._note():
            server = psutil.Process(note[0])
            # After a crash the id may be somebody else's by now.
            if server.name() == "postgres" and Path(server.cwd()) == self._data:
                return server
        return None

    def _note(self) -> tuple[int, int, bool] | None:
        """Process id, port and readiness, as the server keeps them in its data directory."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            if len(lines) > 7:  # else it is still being written
                return int(lines[0]), int(lines[3]), lines[7].startswith("ready")
        return None

    def _end_orphans(self) -> None:
        """End what a server that was killed left running: a new one does not start beside it, nor wait for it."""
        left = []
        for process in psutil.process_iter(["name", "cwd"]):
            if process.info["name"] == "postgres" and process.info["cwd"] == str(self._data):
                left.append(process)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        ended(left, 10.0)

    def _prepare(self) -> None:
        make_folder(self.directory, NAME)
        self.directory.chmod(0o700)
        # On Linux it gets at its data by a descriptor.
        for folder in self.directory.parents if is_root() and sys.platform != "linux" else ():
            if not folder.stat().st_mode & 0o001:
                raise StoreError(
                    f"PostgreSQL refuses to run as root; user {NOBODY}, as whom it runs instead, cannot pass "
                    f"through {folder}: choose another directory, or allow it (chmod o+x)"
                )

    def _initialise(self, binaries: Binaries) -> None:
        # Under another name until it is complete, so that a killed start leaves nothing half made.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if is_root():
            os.chown(new, NOBODY, NOBODY)
        binaries.initialise(new, sync=self._settings.get("fsync") != "off")
        self._set_up_roles(binaries, new)
        new.rename(self._data)

    def _has_roles(self, data: Path) -> bool:
        return roles.are_set_up(data, create_databases=self._create_databases)

    def _set_up_roles(self, binaries: Binaries, data: Path) -> None:
        password = keep_password(self._password)  # whoever reads it could read the data directory just as well
        roles.set_up(binaries, data, password, create_databases=self._create_databases)

    def _launch(self, binaries: Binaries, port: int, timeout: float) -> str:
        """Start the server on `port`; empty once it answers, else what went wrong with the end of its log."""
        settings = {"timezone": "UTC", "log_timezone": "UTC", **self._settings}
        settings |= {"listen_addresses": HOST, "unix_socket_directories": "", "port": str(port)}
        with reachable(self._data) as (path, inherited):
            command = [str(binaries.folder / "postgres"), "-D", path]
            command += [f"--{name}={value}" for name, value in settings.items()]
            return self._process.start(
                command, self.log, lambda pid: self._answer(pid, port), timeout, inherited=inherited
            )

    def _answer(self, pid: int, port: int) -> str | None:
        # Not asked before it is ready: whoever else listens on this port would be sent the password.
        if self._note() != (pid, port, True):
            return None
        try:
            connect(self.url).close()
        except psycopg.OperationalError as error:
            return f"it does not answer: {error}"
        return ""
