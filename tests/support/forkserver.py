"""Commands as processes of their own, forked from one that has imported everything: starting Python and importing is
most of what a short command takes, and tests start thousands.

A process that is forked differs from one that was started in what it has imported, and in its entries `cmdline` and
`environ` below /proc. `tests/cli/test_help.py` and the pages of docs/ start the real thing.

    process = start(["run", "sweep.yaml"], cwd=folder, env=environment, stdin=0, stdout=1, stderr=2)
"""

from __future__ import annotations

import array
import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NoReturn

COMMAND = [sys.executable, "-m", "wtb"]
# What modules read when they are imported: there is a server for each set of their values.
READ_AT_IMPORT = ("WTB_LEASE_S", "WTB_SCHEDULER_INTERVAL_S")
# What Python itself reads when it starts, and what is to break a process early: such commands are really started.
READ_AT_START = ("PYTHON", "LANG", "LC_", "WTB_FAULT")
_MOST = 1 << 20  # bytes of a request
_MOST_FILES = 1024  # that the server has open at a time


class Forked:
    """A process that the server forked, with what `subprocess.Popen` has of it that tests use."""

    def __init__(self, args: Sequence[str], pid: int, status: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            said = os.read(self._status, 16)
            self.returncode = int(said) if said else -signal.SIGKILL  # nothing: its server has been killed
            os.close(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Client:
    """A server, started when it is first needed; it ends with this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: value for name, value in os.environ.items() if not name.startswith("WTB_")}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env={**env, **settings, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads is not to be forked
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def start(self, args: Sequence[str], cwd: os.PathLike[str], env: Mapping[str, str], files: Sequence[int]) -> Forked:
        status, theirs = os.pipe()
        request = json.dumps({"args": list(args), "cwd": os.fspath(cwd), "env": dict(env)}).encode()
        passed = array.array("i", [*files, theirs])
        try:
            with self._lock:
                self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
                answer = self._socket.recv(64)
        finally:
            os.close(theirs)
        if not answer:
            raise RuntimeError("the server that forks commands has ended")
        return Forked(args, int(answer), status)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_clients: dict[tuple[str | None, ...], _Client] = {}


def start(
    args: Sequence[str],
    *,
    cwd: os.PathLike[str],
    env: Mapping[str, str],
    stdin: IO[Any],
    stdout: IO[Any],
    stderr: IO[Any],
    own: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """Start `wtb ARGS`. own: as a child of this process, started as users do."""
    if own or _read_at_start(env) != _read_at_start(os.environ):
        return subprocess.Popen([*COMMAND, *args], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    key = tuple(env.get(name) for name in READ_AT_IMPORT)
    if key not in _clients:
        _clients[key] = _Client({name: env[name] for name in READ_AT_IMPORT if name in env})
    return _clients[key].start(args, cwd, env, [stdin.fileno(), stdout.fileno(), stderr.fileno()])


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    mine = "PYTHONDONTWRITEBYTECODE"  # which a process that was forked heeds, too
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name != mine}


# The server.


def _import_all() -> None:
    """Everything that commands, workers and schedulers import, but for what makes something when it is imported."""
    import importlib
    import pkgutil

    import kombu.transport.redis  # noqa: F401
    import psycopg  # noqa: F401
    import sqlalchemy.dialects.postgresql.psycopg
    import sqlalchemy.dialects.sqlite  # noqa: F401

    import wtb

    for found in pkgutil.walk_packages(wtb.__path__, "wtb."):
        if not found.name.startswith(("wtb.__main__", "wtb.integrations", "wtb.store.migrations", "wtb.cli.templates")):
            importlib.import_module(found.name)
    import wtb_workers

    for found in pkgutil.iter_modules(wtb_workers.__path__, "wtb_workers."):
        if found.name not in ("wtb_workers.app", "wtb_workers.tasks"):  # they are bound to a broker from then on
            importlib.import_module(found.name)
    importlib.import_module("wtb_scheduler.rounds")


def serve(channel: socket.socket) -> None:
    """Fork a process for each request, until the client is gone. Returns in each that was forked, as `wtb` would."""
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    statuses: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([channel, woken], [], [])
        if woken in readable:
            with suppress(BlockingIOError):
                woken.recv(4096)
            _reap(statuses)
        if channel in readable:
            data, files = _receive(channel)
            if not data:
                os._exit(0)
            asked = json.loads(data)
            if (pid := os.fork()) == 0:
                for mine in (channel, woken, wake):  # closed below, and their numbers are others' from then on
                    mine.detach()
                _become(asked, files)
                return
            statuses[pid] = files.pop()
            for file in files:
                os.close(file)
            channel.send(str(pid).encode())


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    files = array.array("i")
    data, ancillary, _, _ = channel.recvmsg(_MOST, socket.CMSG_LEN(4 * files.itemsize))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    return data, files.tolist()


def _reap(statuses: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if (file := statuses.pop(pid, None)) is not None:
            with suppress(BrokenPipeError):
                os.write(file, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(file)


def _become(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    """Be what `python -m wtb ARGS` is in that folder, with that environment and these files."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, _MOST_FILES)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    sys.dont_write_bytecode = bool(asked["env"].get("PYTHONDONTWRITEBYTECODE"))
    sys.stdin = io.TextIOWrapper(open(0, "rb"), "utf-8")  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb"), "utf-8", line_buffering=os.isatty(1))  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb"), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115
    sys.argv = ["wtb", *asked["args"]]
    sys.path.insert(0, asked["cwd"])


def _main() -> NoReturn:
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the tests
    _import_all()
    gc.freeze()
    serve(channel)
    sys.modules["__main__"] = types.ModuleType("__main__")
    from wtb.cli.main import main

    main()
    sys.exit(0)


if __name__ == "__main__":
    _main()
