"""Commands and node processes as forks of processes that have imported everything: starting Python and importing is
most of what a short one takes, and tests start thousands.

    process = start(["run", "sweep.yaml"], cwd=folder, env=environment, stdin=0, stdout=1, stderr=2)
    with Script("print(1)") as script:  # `python -c` with pipes
        assert script.stdout.read() == "1\n"

A process that is forked differs from one that was started in what it has imported and built, in its parent and in its
entry `cmdline` below /proc. `tests/cli/test_help.py` and commands with `own=True` are started as users do. Node
processes are forked where a test does not ask for others (`@pytest.mark.nodes`, see tests/conftest.py): those of
tests/faults are started, but where a test there asks for forks.

There is a server for each kind of process, started when it is first needed; where tests run side by side, their
processes share the servers of the one that hands them out. A request is a connection to a server's socket; the answer
is the pid, once /proc shows the process as what was asked for, and the exit code once there is one.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn, Self

COMMAND = [sys.executable, "-m", "wtb"]
# What modules read when they are imported: there is a server for each set of their values.
READ_AT_IMPORT = ("WTB_LEASE_S", "WTB_SCHEDULER_INTERVAL_S")
# What Python itself reads when it starts: commands that have others of these are really started.
READ_AT_START = ("PYTHON", "LANG", "LC_")
_MAX_BYTES = 1 << 20  # bytes of a request
_MOST_FILES = 1024  # that the server has open at a time
# What node processes of each kind have imported before they are forked.
_NODE = ["wtb.execution.sandbox.worker_main", "wtb.execution.engine.native", "asyncio", "ctypes", "genai_prices.data"]
NODES = {
    "plain": _NODE,
    "langgraph": [*_NODE, "wtb.integrations.langgraph", "langgraph.graph"],
    "clients": [
        *(*_NODE, "wtb.integrations.mcp", "mcp.client.stdio", "mcp.client.streamable_http"),
        *("wtb.integrations.judge_replies", "openai.resources.chat"),
    ],
}
_BECOME = "+"  # before the pid; without it an answer is the exit code
_ROOM = "WTB_ROOM_FOR_THE_ENVIRONMENT"  # of a server: forked processes write theirs over it, for /proc


class Forked:
    """A process that a server forked, with what `subprocess.Popen` has of it that tests and node processes use."""

    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None

    def __init__(self, args: Sequence[str], pid: int, connection: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended. Raises subprocess.TimeoutExpired."""
        if (code := self._look(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._connection, select.POLLIN)
            if ready.poll(None if timeout is None else timeout * 1000):
                self._read()
        return self.returncode

    def _read(self) -> None:
        with self._lock:  # several threads may wait
            if self.returncode is None:
                answer = os.read(self._connection, 16)
                self.returncode = int(answer) if answer else -signal.SIGKILL  # nothing: its server has been killed
                os.close(self._connection)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """A server of this process, which ends with it. kind: "commands", or one of NODES."""

    def __init__(self, kind: str, settings: Mapping[str, str]) -> None:
        self.address = f"wtb-tests-{os.getpid()}-{secrets.token_hex(8)}"
        env = {name: value for name, value in os.environ.items() if not name.startswith("WTB_")}
        # A process with threads is not to be forked.
        env = {**env, **settings, "OPENBLAS_NUM_THREADS": "1", _ROOM: "." * 100_000}
        self._leash, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0" + self.address)
            listener.listen(64)
            numbers = [listener.fileno(), theirs.fileno()]
            command = [sys.executable, "-P", __file__, kind, *map(str, numbers)]
            self._process = subprocess.Popen(command, env=env, pass_fds=numbers, stdin=subprocess.DEVNULL)
        atexit.register(self.close)

    def close(self) -> None:
        self._leash.close()
        self._process.wait()


_servers: dict[tuple[str | None, ...], _Server] = {}
_addresses: dict[tuple[str | None, ...], str] = {}  # of those servers, and of those of other processes
_nodes: str | None = None  # the address of the server of node processes; None: they are started


def _server(kind: str, settings: Mapping[str, str]) -> str:
    """The address of the server of a kind of process that has these settings."""
    key = _key(kind, settings)
    if key not in _addresses:
        environment = {name: settings[name] for name in READ_AT_IMPORT if name in settings}
        _servers[key] = _Server(kind, environment)
        _addresses[key] = _servers[key].address
    return _addresses[key]


def _key(kind: str, settings: Mapping[str, str]) -> tuple[str | None, ...]:
    return (kind, *(settings.get(name) for name in READ_AT_IMPORT))


def start_servers(settings: Sequence[Mapping[str, str]]) -> list[tuple[tuple[str | None, ...], str]]:
    """Start the servers that the processes of a run share. They end with this one.

    Args:
        settings: Those of commands, one server each, beside the default ones.

    Returns:
        What `share_servers` takes in each of those processes.
    """
    for kind in NODES:
        _server(kind, {})
    for environment in ({}, *settings):
        _server("commands", environment)
    return list(_addresses.items())


def share_servers(started: Sequence[tuple[Sequence[str | None], str]]) -> None:
    """Have this process ask servers of another one, which has started them."""
    _addresses.update((tuple(key), address) for key, address in started)


def fork_nodes(kind: str | None) -> None:
    """From now on, fork the node processes of this process and of commands from the server of a kind of NODES.

    Args:
        kind: None where they are to be started as they are for users.
    """
    _fork_nodes_at(None if kind is None else _server(kind, {}))


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
    # A server for settings that only a fault's process has would import more than that.
    alone = "WTB_FAULT" in env and _key("commands", env) not in _addresses
    if own or alone or _read_at_start(env) != _MINE_AT_START:
        return subprocess.Popen([*COMMAND, *args], cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    request = {"args": ["wtb", *args], "cwd": os.fspath(cwd), "env": dict(env), "nodes": _nodes}
    return _ask(_server("commands", env), request, [stdin.fileno(), stdout.fileno(), stderr.fileno()])


# What it needs of Python is little, so that it starts in a fiftieth of what `wtb` takes.
_STAND_IN = """#!{python} -IS
import array, json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect("\\0" + {address!r})
asked = {{"args": ["wtb", *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ), "nodes": {nodes!r}}}
server.sendmsg([json.dumps(asked).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))])
pid = int(server.recv(16))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
code = int(server.recv(16) or -signal.SIGKILL)
sys.exit(code if code >= 0 else 128 - code)
"""


def write_stand_in(folder: Path) -> None:
    """Write a program `wtb` that has a server fork the command, for the PATH of a shell. Signals go to the command."""
    file = folder / "wtb"
    file.write_text(_STAND_IN.format(python=sys.executable, address=_server("commands", {}), nodes=_nodes), "utf-8")
    file.chmod(0o755)


class Script:
    """A process that runs code like `python -c CODE ARGS`, with all that commands import there: what of
    `subprocess.Popen` tests use. Its stdin and stdout are pipes of text; the end of a `with` block ends it.

    Args:
        code: What it runs.
        args: Its `sys.argv` from 1 on, as text.
        env: Variables that it has beside those of this process.
        kind: The server that forks it: "commands", or one of NODES.
    """

    def __init__(self, code: str, *args: object, env: Mapping[str, str] | None = None, kind: str = "commands") -> None:
        words, environment = ["-c", *map(str, args)], {**os.environ, **(env or {})}
        (theirs_in, mine_in), (mine_out, theirs_out) = os.pipe(), os.pipe()
        self.stdin, self.stdout = open(mine_in, "w"), open(mine_out)  # noqa: SIM115
        with open(theirs_in, "rb") as source, open(theirs_out, "wb") as target:
            if _read_at_start(environment) == _MINE_AT_START:
                request = {"args": words, "code": code, "cwd": os.getcwd(), "env": environment}
                self._process = _ask(_server(kind, environment), request, [source.fileno(), target.fileno(), 2])
            else:
                command = [sys.executable, "-c", code, *words[1:]]
                self._process = subprocess.Popen(command, env=environment, stdin=source, stdout=target)
        self.pid = self._process.pid
        self.poll, self.wait = self._process.poll, self._process.wait
        self.send_signal, self.kill = self._process.send_signal, self._process.kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.communicate()

    def communicate(self, timeout: float | None = None) -> str:
        """End its input; what it writes until it ends. It is killed where that takes longer than so many seconds."""
        if self.stdout.closed:
            return ""
        with suppress(BrokenPipeError):
            self.stdin.close()
        late = threading.Timer(timeout, self.kill) if timeout is not None else None
        if late is not None:
            late.start()
        try:
            with self.stdout:
                return self.stdout.read()
        finally:
            if late is not None:
                late.cancel()
            self.wait()


def _ask(address: str, request: Mapping[str, Any], files: Sequence[int]) -> Forked:
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect("\0" + address)
        connection.sendmsg([json.dumps(request).encode()], passed)
        answer = connection.recv(16).decode()
        if not answer.startswith(_BECOME):
            raise RuntimeError(f"no process was forked: {answer or 'its server has ended'}")
        return Forked(request["args"], int(answer), connection.detach())


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    mine = "PYTHONDONTWRITEBYTECODE"  # which a process that was forked heeds, too
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name != mine}


_MINE_AT_START = _read_at_start(os.environ)


class _Subprocess:
    """The part of `subprocess` that wtb.execution.sandbox.launch.launching needs, with forked node processes."""

    DEVNULL, PIPE = subprocess.DEVNULL, subprocess.PIPE

    @staticmethod
    def Popen(
        args: Sequence[str], *, env: Mapping[str, str], cwd: str, pass_fds: Sequence[int], **how: Any
    ) -> Forked | subprocess.Popen[bytes]:
        if _nodes is None or _read_at_start(env) != _MINE_AT_START:
            return subprocess.Popen(args, env=env, cwd=cwd, pass_fds=pass_fds, **how)
        *_, script, options_text = args
        options = json.loads(options_text)
        options |= {name: 3 + pass_fds.index(options[name]) for name in ("leash", "channel")}
        request = {"args": [script, json.dumps(options)], "cwd": os.fspath(cwd), "env": dict(env)}
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing, open(their_out, "wb"), open(their_err, "wb"):
            process = _ask(_nodes, request, [nothing.fileno(), their_out, their_err, *pass_fds])
        process.stdout, process.stderr = open(out, "rb"), open(err, "rb")  # noqa: SIM115
        return process


def _fork_nodes_at(address: str | None) -> None:
    from wtb.execution.sandbox.launch import launching

    global _nodes
    _nodes = address
    launching.subprocess = _Subprocess  # type: ignore[assignment]


# The servers.


def _import_all() -> None:
    """Everything that commands, workers and schedulers import, but for what makes something when it is imported."""
    import wtb
    import wtb_workers

    for name in (
        *("kombu.transport.redis", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite"),
        *("celery.apps.worker", "celery.worker.consumer", "celery.worker.strategy", "celery.app.trace"),
        *("celery.app.control", "celery.app.log", "celery.concurrency.thread"),
        *("celery.backends.base", "numpy.ma", "numpy.random", "wtb_scheduler.rounds"),
        *("typer._adapters", "typer.rich_utils", "rich.markdown", "rich.columns", "rich.traceback"),
    ):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(wtb.__path__, "wtb."):
        if not module.name.startswith(
            ("wtb.__main__", "wtb.integrations", "wtb.store.migrations", "wtb.cli.templates")
        ):
            importlib.import_module(module.name)
    for module in pkgutil.iter_modules(wtb_workers.__path__, "wtb_workers."):
        if module.name not in ("wtb_workers.app", "wtb_workers.tasks"):  # they are bound to a broker from then on
            importlib.import_module(module.name)


def _build_commands() -> None:
    """Build the options of all commands: a process builds those of one module, for as long as many a command takes."""
    from wtb.cli import commands

    for module in {entry.module for entry in commands.ENTRIES.values()}:
        commands._commands_of(module)


def serve(listener: socket.socket, leash: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, until the process of the tests is gone.

    Returns:
        In each process that was forked: what was asked for. It has become that.
    """
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([listener, leash, woken], [], [])
        if leash in readable:
            os._exit(0)
        if woken in readable:
            with suppress(BlockingIOError):
                woken.recv(4096)
            _reap(running)
        if listener in readable:
            connection, _ = listener.accept()
            try:
                data, files = _receive(connection)
            except ConnectionError:
                data, files = b"", []
            if not data:
                connection.close()
                continue
            request: dict[str, Any] = json.loads(data)
            if (pid := os.fork()) == 0:
                answer = fcntl.fcntl(connection, fcntl.F_DUPFD, _MOST_FILES)
                for mine in (listener, leash, woken, wake, connection, *running.values()):
                    mine.detach()  # closed below, and their numbers are others' from then on
                _become(request, files)
                with suppress(ConnectionError):  # whoever asked was killed meanwhile
                    os.write(answer, f"{_BECOME}{os.getpid()}".encode())
                os.close(answer)
                return request
            running[pid] = connection
            for file in files:
                os.close(file)


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    files = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(_MAX_BYTES, socket.CMSG_LEN(8 * files.itemsize))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    return data, files.tolist()


def _reap(running: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if (connection := running.pop(pid, None)) is not None:
            with suppress(ConnectionError), connection:
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Be what was asked for: in that folder, with that environment and these files as 0, 1, 2 and so on."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    apart = [fcntl.fcntl(file, fcntl.F_DUPFD, _MOST_FILES) for file in files]
    for number, file in enumerate(apart):
        os.dup2(file, number)
        os.close(file)
    os.closerange(len(files), _MOST_FILES)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _show_environment()
    time.tzset()
    importlib.invalidate_caches()
    if "WTB_FAULT" in os.environ and "wtb.core.fault_points" in sys.modules:
        importlib.reload(sys.modules["wtb.core.fault_points"])  # it reads the environment once
    sys.dont_write_bytecode = bool(request["env"].get("PYTHONDONTWRITEBYTECODE"))
    sys.stdin = io.TextIOWrapper(open(0, "rb"), "utf-8")  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb"), "utf-8", line_buffering=os.isatty(1))  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb"), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115
    sys.argv = list(request["args"])
    if sys.argv[0] == "-c":
        sys.path.insert(0, request["cwd"])  # as Python does


def _show_environment() -> None:
    """Have /proc show the environment as of a process that was started: it reads it where that began."""
    if sys.platform == "linux":
        fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        first, end = int(fields[47]), int(fields[48])  # env_start and env_end, see proc(5)
        block = b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items())
        ctypes.memmove(first, block[: end - first].ljust(end - first, b"\0"), end - first)


def _main() -> NoReturn:
    kind, *numbers = sys.argv[1:]
    listener, leash = (socket.socket(fileno=int(number)) for number in numbers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the tests
    if kind == "commands":
        _import_all()
        _build_commands()
        from wtb.cli.main import main
    else:
        for name in NODES[kind]:
            importlib.import_module(name)
        from wtb.execution.sandbox.launch.reaper import main
    gc.freeze()
    request = serve(listener, leash)
    sys.modules["__main__"] = types.ModuleType("__main__")
    if "code" in request:
        code = request["code"]
        _run(lambda: exec(code, vars(sys.modules["__main__"])))
    if kind == "commands":
        _fork_nodes_at(request["nodes"])
    else:
        os.setsid()
    _run(main)


def _run(main: Callable[[], object]) -> NoReturn:
    """Run a process to its end, which is that of Python but for one thing: it frees nothing.

    Freeing what the server has imported means to copy the memory in which it is: most of what a short command takes.
    """
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads it, or it is closed
        sys.exit(code)
    if not isinstance(code, int):
        sys.exit(code)  # it is a text, which Python writes
    os._exit(code)


if __name__ == "__main__":
    _main()
