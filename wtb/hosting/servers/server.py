"""A server as a part of the stack: PostgreSQL or Valkey, and the lines of its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wtb.config.stack_file import Part
from wtb.hosting.servers.postgres import PostgresServer
from wtb.hosting.servers.processes import HOST
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.hosting.stack.logs import Followed, Line

_LOOK_S = 0.5  # between looks at the server and its log


class Server:
    """PostgreSQL or Valkey as a part of the stack, and the lines of its log."""

    def __init__(self, name: str, server: PostgresServer | ValkeyServer, line: Line) -> None:
        self.name = name
        self.server = server
        self._line = line
        self._log = Followed(server.log)
        self._stopping = threading.Event()
        self._part: Part | None = None

    @property
    def part(self) -> Part | None:
        return self._part

    def start(self) -> None:
        self.server.start()
        if (pid := self.server.pid) is not None:
            self._part = Part(self.name, pid, time.time(), f"{HOST}:{self.server.port}")

    def wait(self) -> str:
        while not self._stopping.wait(_LOOK_S) and self.server.pid is not None:
            self._say_what_is_new()
        self._part = None
        self._say_what_is_new()
        return "ended"

    def is_ready(self) -> bool:
        return self._part is not None

    def ask_to_stop(self) -> None:
        """A server is stopped only when it is its turn."""

    def stop(self, is_urgent: Callable[[], bool]) -> bool:
        self._stopping.set()
        self.server.stop(immediate=is_urgent())
        return True

    def _say_what_is_new(self) -> None:
        for line in self._log.lines():
            self._line(self.name, line)
