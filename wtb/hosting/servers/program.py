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
from typing import Any, TextIO

from wtb.config.credentials import PIPE, credentials_pipe
from wtb.config.stack_file import Part
from wtb.core.ids import new_id
from wtb.execution.sandbox.launch.process_tags import kill_tagged
from wtb.hosting.servers.reaper import KILL_S

MAX_BYTES = 10 * 2**20  # of a log before it becomes NAME.log.1
_COLORS = {"worker": 36, "scheduler": 35, "flower": 33, "valkey": 31, "postgres": 34, "wtb": 32}
_WIDTH = max(map(len, _COLORS))

Line = Callable[[str, str], None]
"""Takes the name of a program and one line of its output."""


def to_terminal(stream: TextIO = sys.stderr) -> Line:
    """Return a function that prints lines after the program's name, in colour if the terminal supports it."""
    colored = stream.isatty() and not os.environ.get("NO_COLOR")
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        label = f"{name:<{_WIDTH}} |"
        if colored:
            label = f"\x1b[{_COLORS.get(name, 37)}m{label}\x1b[0m"
        # The terminal may be closed; the stack still has to stop in order.
        with lock, contextlib.suppress(OSError, ValueError):
            stream.write(f"{label} {line}\n")
            stream.flush()

    return write


def to_files(folder: Path) -> Line:
    """Return a function that appends lines to NAME.log in a folder; the latest 10 to 20 MB of each are kept."""
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        path = folder / f"{name}.log"
        with lock, contextlib.suppress(OSError):  # a full disk stops no program
            path.touch(mode=0o600)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > MAX_BYTES
            if full:
                path.replace(path.with_suffix(".log.1"))

    return write


TAG = "WTB_STACK_PART"  # in the environment of a program and of what it starts, unless that gets another one
_TAIL = 20  # lines of output that are kept for messages


class Program:
    """A command that ends with this process, however that ends. It can be started again once it has ended.

    Attributes:
        part: The running process; None while there is none.
        tail: The last lines of its output.
        stop_signal: The signal that stops it.
        kill_signal: The signal that ends it at once.
        ready_text: Is in the line of its output by which it is ready.
        is_announced: Whether such a line has come since its start.
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
            name: The name of its lines and its log.
            command: The program and its arguments.
            folder: Its working directory.
            line: Called from a thread with each line of its output.
            environment: All variables that it inherits.
            credentials: Variables that it gets through a pipe, where no list of processes shows them.
            grace: Seconds from the request to stop until it is killed.
            address: The address that it listens on, if any.
            ready_text: Is in the line of its output by which it is ready, if there is such a line.
            check: Returns True once it works, if that can be checked.
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
        with credentials_pipe(**self._credentials) as (variables, inherited):
            # Unbuffered, so that lines arrive when they are written.
            environment = {**self._environment, PIPE: variables[PIPE], "PYTHONUNBUFFERED": "1"}
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
        """Start a command below a reaper, which gets `user` and `lock`. `options` are those of `subprocess.Popen`."""
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
                # With -P no file in the working directory can replace a module of the reaper.
                [sys.executable, "-P", "-m", "wtb.hosting.servers.reaper", json.dumps(reaper), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for this process only, which stops its programs in order.
                start_new_session=True,
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
        """Read the output until its end, in a thread of its own."""
        assert self._process.stdout is not None, "it is a pipe"
        with self._process.stdout as output:
            for line in output:
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                self.tail.append(text)
                self.is_announced |= self.ready_text is not None and self.ready_text in text
                self._line(self.name, text)

    def poll(self) -> str | None:
        """Describe how it ended, once its whole tree has; None while it runs."""
        if self.part is None:
            return self._ended
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            # A signal killed its reaper, so that processes of its tree may be left.
            kill_tagged(TAG, self._tag)
        self._reader.join(KILL_S)
        self._leash.close()
        self.part = None
        self._ended = _describe(code)
        return self._ended

    def is_ready(self) -> bool:
        """Return True if it runs and works."""
        announced = self.ready_text is None or self.is_announced
        return self.poll() is None and announced and (self._check is None or self._check())

    def wait(self, timeout: float) -> str | None:
        """Wait for its end, for at most `timeout` seconds. Returns as `poll` does."""
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
        """Send the signal that stops it, without waiting for its end."""
        self.signal(self.stop_signal)

    def end(self, is_urgent: Callable[[], bool] = lambda: False, grace: float | None = None) -> bool:
        """Wait for its end after `ask_to_stop`. Kill its tree after the grace period, or once that is urgent.

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
        """End it and everything that it started, now."""
        if self.part is not None:
            # The reaper kills the whole tree when its pipe ends.
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
