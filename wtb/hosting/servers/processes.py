"""What every server that WTB starts has in common: its user, its port on the loopback, its start and its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from wtb.core.errors import StoreError

HOST = "127.0.0.1"
NOBODY = 65534


def is_root() -> bool:
    return os.geteuid() == 0


def as_server() -> dict[str, Any]:
    """Arguments of `subprocess` for a server's process: never root, deaf to the caller's PG* and locale."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root() else {}
    # A session of its own: Ctrl-C in a terminal is for the owner, who then stops the server.
    return {"env": env | {"LC_ALL": "C"}, "cwd": "/", "umask": 0o077, "start_new_session": True, **user}


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A path by which a server's process gets at a folder of its own, and the descriptors that it has to inherit.

    For root it runs as another user, who may not be able to pass through the folders above. By a descriptor it
    need not.
    """
    if not is_root() or sys.platform != "linux":
        yield str(folder), ()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}", (descriptor,)
    finally:
        os.close(descriptor)


def closed_to_server(program: Path) -> str | None:
    """For root: what keeps the server's user from a program, and what to do about it; None where nothing does."""
    for folder in reversed(program.resolve().parents) if is_root() else ():
        if not folder.stat().st_mode & 0o001:
            return (
                f"servers do not run as root but as user {NOBODY}, who cannot pass through {folder} to {program}: "
                f"allow it (chmod o+x {folder}), use a Python environment elsewhere, or do not run this as root"
            )
    return None


def free_port() -> int:
    """A port of the loopback that nobody listens on just now."""
    # Below the range from which systems take ports for outgoing connections: in there, a client that knocks
    # while the server is down can be given the server's own port and keep it from coming back.
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do, else a port that was in use a minute ago counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise StoreError(f"none of 100 ports between 20000 and 32000 on {HOST} is free; name one")


def ended(processes: Sequence[psutil.Process], timeout: float) -> bool:
    """Whether all of them ended within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while any(map(_runs, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _runs(process: psutil.Process) -> bool:
    try:
        # A zombie ended too: only its parent has not asked yet how.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class ServerProcess:
    """The process of a server, which this process started or another one left behind.

    find: looks for one that this process did not start. farewell: the signal that ends it when this process does,
    in whatever way; None: it outlives this process.
    """

    def __init__(
        self, name: str, find: Callable[[], psutil.Process | None], farewell: signal.Signals | None = None
    ) -> None:
        self._name = name
        self._find = find
        self._farewell = farewell
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def find(self) -> psutil.Process | None:
        """The server as it runs, whoever started it."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = self._process  # which another thread may forget meanwhile
            if process and process.poll() is None:
                return psutil.Process(process.pid)
            return self._find()
        return None

    def start(
        self,
        command: Sequence[str],
        log: Path,
        answers: Callable[[int], str | None],
        timeout: float,
        *,
        given: bytes = b"",
        started: Callable[[int], None] = lambda pid: None,
        inherited: Sequence[int] = (),
    ) -> str:
        """Start the server; empty once it answers, else what went wrong with the end of its log.

        answers: asked with the process id again and again; empty where it does, None where it is not ready, else why
        not. given: its standard input. started: told the process id at once. inherited: descriptors. timeout: seconds.
        """
        self._unwatch()
        log.touch(mode=0o600)
        with log.open("ab") as end:
            begin = end.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=end, stderr=end, pass_fds=inherited, **as_server()
            )
        problem = "interrupted"
        try:
            self._watch(self._process.pid)
            started(self._process.pid)
            assert self._process.stdin is not None, "it is a pipe"
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # it says itself why it ended
                stdin.write(given)
            problem = _await(self._process, answers, time.monotonic() + timeout)
        finally:
            if problem:
                self.end(signal.SIGQUIT, 10.0)
        lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
        return "\n".join([problem, *lines[-20:]]) if problem else ""

    def end(self, number: signal.Signals, timeout: float) -> None:
        """End the server by a signal, and after `timeout` seconds by SIGKILL; no server is fine."""
        self._unwatch()  # first: it must not signal a process id that somebody else got meanwhile
        server = self.find()
        if server:
            if number == signal.SIGKILL:
                server.suspend()  # or it might start another process while they are listed
            family = [server, *server.children(recursive=True)]
            for process in family if number == signal.SIGKILL else [server]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            if not ended(family, timeout):
                if number == signal.SIGKILL:
                    raise StoreError(f"{self._name} {server.pid} outlived SIGKILL")
                self.end(signal.SIGKILL, 10.0)
        if self._process:
            self._process.wait()
            self._process = None

    def _watch(self, pid: int) -> None:
        if self._farewell is not None:
            # The read ends when this process does, which alone (with its forks) holds the other end.
            script = ["/bin/sh", "-c", f"read _; kill -{self._farewell.value} {pid}; kill -CONT {pid}"]
            self._watcher = subprocess.Popen(script, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, **as_server())

    def _unwatch(self) -> None:
        if self._watcher:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None


def _await(process: subprocess.Popen[bytes], answers: Callable[[int], str | None], deadline: float) -> str:
    problem = "it was not ready in time"
    while time.monotonic() < deadline:
        answer = answers(process.pid)
        if answer == "":
            return ""
        problem = answer or problem
        # Waiting for its end, to learn of it at once, is also the pause between two looks.
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"it ended with status {process.wait(0.02)}"
    return problem


def on_a_port(ports: Iterable[int], launch: Callable[[int], str], what: str) -> int:
    """The port on which a launch went well; the next one is tried where somebody was quicker. Raises StoreError."""
    problem = "no port"
    for port in ports:
        problem = launch(port)
        if not problem:
            return port
        if "Address already in use" not in problem:
            break
    raise StoreError(f"{what} did not start: {problem}")
