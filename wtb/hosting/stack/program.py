"""One program of the stack: a command on a leash, its output line by line, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wtb.config.credentials import PIPE, handed
from wtb.config.stack_file import Part
from wtb.core.ids import new_id
from wtb.execution.sandbox.process_tags import kill_tagged

TAG = "WTB_STACK_PART"  # in the environment of a program and of what it starts, unless that is told otherwise
KILL_S = 10.0  # for a leash to end what it keeps


class Program:
    """A command that `start` starts, any number of times one after the other.

    environment: all it inherits, but for credentials, which it gets through a pipe. grace: seconds from SIGTERM to
    SIGKILL. address: where it listens, if it does.
    is_ready: whether it does its work, asked again and again; None: as soon as it runs. line: gets what it prints.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        credentials: Mapping[str, str] | None = None,
        line: Callable[[str, str], None],
        grace: float,
        address: str | None = None,
        is_ready: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self._command = list(command)
        self._folder = folder
        self._environment = dict(environment)
        self._credentials = dict(credentials or {})
        self._line = line
        self._grace = grace
        self._address = address
        self._is_ready = is_ready
        self._leash: socket.socket | None = None
        self._ended = threading.Event()
        self.part: Part | None = None

    def start(self) -> None:
        """Start it; what it prints goes to `line` by a thread."""
        self._ended.clear()
        self._tag = new_id()
        self._leash, far = socket.socketpair()
        with far, handed(**self._credentials) as (given, inherited):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wtb.hosting.servers.child_reaper", str(far.fileno()), *self._command],
                cwd=self._folder,
                env={**self._environment, PIPE: given[PIPE], TAG: self._tag, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(far.fileno(), *inherited),
                start_new_session=True,  # Ctrl-C is for whoever holds the leash
            )
        self._reader = threading.Thread(target=self._read, name=f"log of {self.name}", daemon=True)
        self._reader.start()
        self._said = self._leash.makefile("r")
        pid = self._said.readline().removeprefix("pid ").strip()
        self.part = Part(self.name, int(pid or self._process.pid), time.time(), self._address)

    def is_ready(self) -> bool:
        """Whether it runs and does its work."""
        return self.part is not None and not self._ended.is_set() and (self._is_ready is None or self._is_ready())

    def wait(self) -> str:
        """Wait until it has ended, and its whole tree; how, in words."""
        said = self._said.readline().removeprefix("code ").strip()
        self._process.wait()
        if not said:  # its keeper did not come to its end by itself, so others may be left
            kill_tagged(TAG, self._tag)
        self._reader.join(KILL_S)
        self.part = None
        if self._leash is not None:
            self._said.close()
            self._leash.close()
        self._ended.set()
        return _words(int(said)) if said else "ended together with its keeper"

    def ask_to_stop(self) -> None:
        """Send it SIGTERM. It may have ended by itself."""
        with contextlib.suppress(OSError):
            if self._leash is not None:
                self._leash.send(b"T")

    def stop(self, is_urgent: Callable[[], bool]) -> bool:
        """Wait for its end as long as its grace lasts and nothing is urgent, then kill its tree.

        Returns whether it ended by itself. `wait` has to be under way in another thread.
        """
        ends = time.monotonic() + self._grace
        while not self._ended.wait(0.05):
            if is_urgent() or time.monotonic() > ends:
                with contextlib.suppress(OSError):
                    if self._leash is not None:
                        self._leash.shutdown(socket.SHUT_WR)
                if not self._ended.wait(KILL_S):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._process.pid, signal.SIGKILL)
                    self._ended.wait(KILL_S)
                return False
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as output:
            for line in output:
                self._line(self.name, line.decode("utf-8", "replace").rstrip("\r\n"))


def _words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
