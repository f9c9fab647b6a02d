"""A proxy in front of PostgreSQL that cuts connections at their COMMITs, so that the client never hears the outcome."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
from collections import Counter
from contextlib import suppress
from typing import Self

COMMIT = b"COMMIT\0"
ANSWER_S = 5.0


class CuttingProxy(socketserver.ThreadingTCPServer):
    """Passes on what clients and PostgreSQL say, and cuts `most` connections, at one in `every` COMMITs.

    Of those cut, half have been committed and half have not. cut: how many there were of both.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], *, seed: int, every: int, max_cuts: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.behind = address
        self.cut: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._every = every
        self._max_cuts = max_cuts
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.05,), name="proxy", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def judge(self) -> str | None:
        """Return the fate of the next COMMIT; None passes it on."""
        with self._lock:
            if self.cut.total() == self._max_cuts or self._dice.randrange(self._every):
                return None
            outcome = self._dice.choice(["committed", "not committed"])
            self.cut[outcome] += 1
            return outcome

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def __enter__(self) -> Self:
        return self


class Connection(socketserver.BaseRequestHandler):
    """One client and its connection to PostgreSQL."""

    server: CuttingProxy

    def handle(self) -> None:
        self._muted = threading.Event()
        self._answered = threading.Event()
        with suppress(OSError), socket.create_connection(self.server.behind) as behind:
            back = threading.Thread(target=self._pass_back, args=(behind,), daemon=True)
            back.start()
            try:
                while chunk := self.request.recv(1 << 16):
                    outcome = self.server.judge() if COMMIT in chunk else None
                    if outcome == "committed":
                        self._muted.set()
                        behind.sendall(chunk)
                        self._answered.wait(ANSWER_S)
                    if outcome is not None:
                        return
                    behind.sendall(chunk)
            finally:
                with suppress(OSError):
                    behind.shutdown(socket.SHUT_RDWR)
                back.join(ANSWER_S)

    def _pass_back(self, behind: socket.socket) -> None:
        with suppress(OSError):
            while chunk := behind.recv(1 << 16):
                if self._muted.is_set():
                    self._answered.set()
                else:
                    self.request.sendall(chunk)
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)
