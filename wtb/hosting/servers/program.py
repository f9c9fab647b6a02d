"""A program that this process runs: a command below a reaper, its output line by line, its readiness and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.config.credentials import PIPE, handed
from wtb.config.stack_file import Part
from wtb.core.ids import new_id
from wtb.execution.sandbox.launch.process_tags import kill_tagged
from wtb.hosting.servers.logs import Line
from wtb.hosting.servers.reaper import KILL_S

TAG = "WTB_STACK_PART"  # in the environment of a program and of what it starts, unless that gets another one
_TAIL = 20  # lines of output that are kept for messages


class Program:
    """A command that ends with this process, however that ends. It can be started again once it has ended.

    Attributes:
        part: What runs; None while nothing does.
        tail: The last lines of its output.
        stop_signal: Asks it to stop.
        kill_signal: Ends it at once.
        ready_text: Is in the line of its output by which it is ready.
        is_announced: Whether there was such a line since its start.
    """

    stop_signal = signal.SIGTERM
    kill_signal = signal.SIGKILL
    ready_text: str | None = None

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        line: Line,
        environment: Mapping[str, str],
        credentials: Mapping[str, str] | None = None,
        grace: float,
        address: str | None = None,
        ready_text: str | None = None,
        check: Callable[[], bool] | None = None,
    ) -> None:
        """Describe a program; `start` starts it.

        Args:
            name: What its lines and its log are called.
            command: The program and its arguments.
            folder: Its working directory.
            line: Called from a thread with each line of its output.
            environment: All variables that it inherits.
            credentials: Variables that it gets through a pipe, where no list of processes shows them.
            grace: Seconds from the request to stop until it is killed.
            address: Where it listens, if it does.
            ready_text: Is in the line of its output by which it is ready, if there is such a line.
            check: Returns True once it does its work, if that can be asked.
        """
        self.name = name
        self.part: Part | None = None
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._command = list(command)
        self._folder = folder
        self._line = line
        self._environment = dict(environment)
        self._credentials = dict(credentials or {})
        self._grace = grace
        self._address = address
        self._check = check
        self.ready_text = ready_text or self.ready_text
        self._ended = ""

    def start(self) -> object:
        """Start it."""
        with handed(**self._credentials) as (given, inherited):
            environment = {**self._environment, PIPE: given[PIPE], "PYTHONUNBUFFERED": "1"}
            self._spawn(self._command, cwd=self._folder, env=environment, pass_fds=inherited)
        return self

    def _spawn(
        self,
        command: Sequence[str],
        *,
        user: int | None = None,
        lock: Sequence[int] = (),
        stdin: bytes = b"",
        **options: Any,
    ) -> None:
        """Start a command below a reaper. user, lock: for the reaper. options: those of `subprocess.Popen`."""
        self.tail.clear()
        self.is_announced = False
        self._tag = new_id()
        reads, writes = os.pipe()
        self._leash = open(writes, "wb", buffering=0)  # noqa: SIM115 - closed by `poll`
        reaper = {"leash": reads, "lock": list(lock), "user": user, "kill_signal": self.kill_signal}
        options["env"] = {**options["env"], TAG: self._tag}
        options["pass_fds"] = (reads, *lock, *options["pass_fds"])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "wtb.hosting.servers.reaper", json.dumps(reaper), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process
                **options,
            )
        finally:
            os.close(reads)
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:  # its output says why it ended
            pipe.write(stdin)
        pid = self._process.stdout.readline().strip()
        self.part = Part(self.name, int(pid) if pid.isdigit() else self._process.pid, time.time(), self._address)
        self._reader = threading.Thread(target=self._read, name=f"log of {self.name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """The body of the thread that reads the output, until its end."""
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as output:
            for data in output:
                text = data.decode("utf-8", "replace").rstrip("\r\n")
                self.tail.append(text)
                self.is_announced |= self.ready_text is not None and self.ready_text in text
                self._line(self.name, text)

    def poll(self) -> str | None:
        """Return how it ended, in words, once its whole tree has; None while it runs."""
        if self.part is None:
            return self._ended
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:  # its reaper was killed, so others may be left
            kill_tagged(TAG, self._tag)
        self._reader.join(KILL_S)
        self._leash.close()
        self.part = None
        self._ended = _describe(code)
        return self._ended

    def is_ready(self) -> bool:
        """Return True if it runs and does its work."""
        announced = self.ready_text is None or self.is_announced
        return self.poll() is None and announced and (self._check is None or self._check())

    def wait(self, timeout: float) -> str | None:
        """Wait for its end, for at most `timeout` seconds. Returns what `poll` does."""
        if self.part is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        return self.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.part is not None:
            with contextlib.suppress(BrokenPipeError):
                self._leash.write(bytes([number]))

    def ask_to_stop(self) -> None:
        """Ask it to end, without waiting for that."""
        self.signal(self.stop_signal)

    def end(self, is_urgent: Callable[[], bool] = lambda: False, grace: float | None = None) -> bool:
        """Wait until it has ended, which it was asked to; kill its tree after the grace, or once that is urgent.

        Returns:
            True if it ended by itself.
        """
        ends = time.monotonic() + (self._grace if grace is None else grace)
        while self.wait(0.05) is None:
            if is_urgent() or time.monotonic() > ends:
                self.end_now()
                return False
        return True

    def end_now(self) -> None:
        """End it and all that it started, now."""
        if self.part is not None:
            self._leash.close()
            if self.wait(2 * KILL_S) is None:
                self._process.kill()
                self.wait(KILL_S)


def _describe(code: int) -> str:
    if code < 0:
        return "ended together with its reaper"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
