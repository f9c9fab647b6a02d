"""A private PostgreSQL: made, started and stopped in a directory.

    with PostgresServer(".wtb/postgres") as server:
        create_engine(server.url)

The directory holds `data/`, `postgres.log` and `password` (0600). The server listens on 127.0.0.1 only, has no
Unix socket and lets in three roles, none of them a superuser: the owner `wtb`, with that password, `wtb_worker` and
`wtb_server`. For root it runs as an unprivileged user. POSIX systems only.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from wtb.core.errors import StoreError
from wtb.hosting.servers import roles
from wtb.hosting.servers.binaries import Binaries, find_binaries
from wtb.hosting.servers.databases import connect, create_database
from wtb.hosting.servers.logs import Line
from wtb.hosting.servers.processes import HOST, NOBODY, is_root, reachable
from wtb.hosting.servers.server import Command, Server


def role_url(url: str, role: str) -> str:
    """Return the URL of a database of such a server for another role, from that of the owner."""
    parts = make_url(url)
    password = roles.password_of(role, str(parts.password))
    return parts.set(username=role, password=password).render_as_string(hide_password=False)


class PostgresServer(Server):
    """The PostgreSQL of a directory; nothing happens before `start`. See `Server`.

    To be stopped rolls back open transactions.
    """

    title = "PostgreSQL"
    ready_text = "database system is ready to accept connections"
    stop_signal = signal.SIGINT
    kill_signal = signal.SIGQUIT

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        create_databases: bool = False,
        line: Line | None = None,
    ) -> None:
        """Describe a server.

        Args:
            directory: Of its own; made if it is not there.
            port: Default: a free one, kept as long as this object lives.
            settings: Parameters of the server.
            binaries: Default: the first that run here, of the version of the data.
            create_databases: Whether the role of its URL may make databases beside its own.
            line: Called with each line of its output. Default: a log in the directory.
        """
        super().__init__("postgres", directory, port=port, settings=settings, line=line, grace=30.0)
        self._data = self.directory / "data"
        self._binaries = binaries
        self._create_databases = create_databases

    def url_of(self, port: int, password: str) -> str:
        return f"postgresql+psycopg://{roles.ROLE}:{password}@{HOST}:{port}/{roles.ROLE}"

    def create_database(self, name: str) -> str:
        """Make the empty database `name`, where the role may. Returns its URL."""
        return create_database(self.url, name)

    def prepare(self) -> None:
        self.directory.chmod(0o700)
        # On Linux it gets at its data by a descriptor.
        for folder in self.directory.parents if is_root() and sys.platform != "linux" else ():
            if not folder.stat().st_mode & 0o001:
                raise StoreError(
                    f"PostgreSQL refuses to run as root; user {NOBODY}, as whom it runs instead, cannot pass "
                    f"through {folder}: choose another directory, or allow it (chmod o+x)"
                )
        version = self._data / "PG_VERSION"
        major = int(version.read_text()) if version.exists() else None
        self._binaries = self._binaries or find_binaries(major)
        if major is None:
            self._initialise(self._binaries)
        elif not (self._password.exists() and roles.are_set_up(self._data, create_databases=self._create_databases)):
            self._set_up_roles(self._binaries, self._data)

    def _initialise(self, binaries: Binaries) -> None:
        """Make the data directory, complete or not at all."""
        # Under another name until it is complete, so that a killed start leaves nothing half made.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if is_root():
            os.chown(new, NOBODY, NOBODY)
        binaries.initialise(new, sync=self.settings.get("fsync") != "off")
        self._set_up_roles(binaries, new)
        new.rename(self._data)

    def _set_up_roles(self, binaries: Binaries, data: Path) -> None:
        password = self.keep_password()  # whoever reads it could read the data directory just as well
        roles.set_up(binaries, data, password, create_databases=self._create_databases)

    @contextmanager
    def command(self, port: int) -> Iterator[Command]:
        assert self._binaries is not None, "they were found by `prepare`"
        settings = {"timezone": "UTC", "log_timezone": "UTC", "wal_compression": "on", **self.settings}
        settings |= {"listen_addresses": HOST, "unix_socket_directories": "", "port": str(port)}
        with reachable(self._data) as (path, descriptors):
            options = [f"--{name}={value}" for name, value in settings.items()]
            yield Command([str(self._binaries.folder / "postgres"), "-D", path, *options], b"", descriptors)

    def ask(self, port: int) -> str:
        try:
            connect(self.url_of(port, self._password.read_text())).close()
        except psycopg.OperationalError as error:
            return f"it does not answer: {error}"
        return ""
