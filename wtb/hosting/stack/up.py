"""What `wtb up` starts, in which order, and how it stops."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
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
from wtb.config.stack_file import HOME, Flower, Stack, find_stack, forget_stack, write_stack
from wtb.config.webhooks import PAGES_URL
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StoreError
from wtb.hosting.servers import binaries, valkey
from wtb.hosting.servers.databases import connect
from wtb.hosting.servers.flower import flower_auth
from wtb.hosting.servers.logs import Line
from wtb.hosting.servers.postgres import PostgresServer, role_url
from wtb.hosting.servers.processes import HOST, free_port, is_free, locked
from wtb.hosting.servers.program import Program
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.hosting.stack.supervisor import Requests, Supervisor
from wtb.store.tables.walls import SERVER, WORKER

SPARE = "spare"
READY_S = 90.0  # the first time includes making a database
# The worker finishes its nodes within its own grace.
GRACE_S = {"worker": 45.0, SPARE: 45.0, "scheduler": 10.0, "flower": 5.0, "serve": 10.0}
STOP_ORDER = (("scheduler", "flower", "serve"), ("worker", SPARE), ("valkey",), ("postgres",))


@frozen
class StackOptions:
    """Options of a stack. None: the default, or a free port.

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
    """Start the stack of a folder, keep it running until somebody asks to stop, and stop it.

    Args:
        folder: Where the stack is.
        options: What it consists of.
        line: Called with each line of each program.
        ready: Called once all programs do their work, with the seconds that it took.

    Raises:
        InputError: Something is missing.
        ConflictError: A stack is up here.
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
        stopping.callback(report, "all of it is stopped")
        stopping.callback(forget_stack, folder)
        stopping.callback(supervisor.stop, STOP_ORDER)
        supervisor.start(broker)
        note(broker_url=broker.url)
        if flower is not None:  # it needs no database, and takes its time
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
        note(ready=True)  # after the line that says so: `wtb up --detach` reads no further
        supervisor.run()
        report("stopping: the worker finishes or gives back what it does; press Ctrl-C again to be quick")


def check_installed(flower: bool, serve: bool = False) -> None:
    """Raises InputError that says what is missing, and how to install it."""
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
    """What is wrong if another process has locked the folder."""
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


def _port(given: int | None, option: str) -> int:
    if given and not is_free(given):
        raise InputError(f"port {given} of {HOST} is taken; give another {option}, or none")
    return given or free_port()


def _flower_program(folder: Path, flower: Flower, broker: str, line: Line) -> Program:
    address = flower.url.removeprefix("http://")
    port = address.rpartition(":")[2]
    credentials = {BROKER_URL: broker, FLOWER_AUTH: f"{flower.user}:{flower.password}"}
    return _program(
        "flower",
        ("--port", port),
        folder=folder,
        credentials=credentials,
        line=line,
        address=address,
        check=lambda: _listens(int(port)),
    )


def _programs(folder: Path, options: StackOptions, stack: Stack, line: Line) -> Iterator[Program]:
    """The programs that run beside the servers: a worker, a scheduler, and the API if it is asked for."""
    make = partial(_program, folder=folder, line=line)
    credentials = {DATABASE_URL: role_url(stack.database_url, WORKER), BROKER_URL: stack.broker_url}
    given = {"--concurrency": options.concurrency, "--queues": options.queues}
    arguments = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    if options.spare:
        arguments += ["--name", f"wtb-{stack.pid}", "--standby"]
    started = time.time()  # the clock of the database, too, which is on this machine
    check = partial(_worker_runs, stack.database_url, started)
    # With a spare there are two equal ones: the first to have the turn works, the other one whenever that has ended.
    for name in ("worker", SPARE) if options.spare else ("worker",):
        yield make(name, arguments, command="worker", credentials=credentials, check=check)
    key = credential(TELEMETRY_HEADERS)
    keys = {} if key is None else {TELEMETRY_HEADERS: key}
    # Where the pages are, unless the environment names the address of a proxy.
    pages = {} if stack.api is None or PAGES_URL in os.environ else {PAGES_URL: _origin(stack.api)}
    yield make("scheduler", (), credentials=credentials | keys, also=pages, ready_text="scheduler: every")
    if stack.api is not None:
        address = urlsplit(stack.api).netloc
        port = address.rpartition(":")[2]
        # Nobody knows that token: whoever asks has one of `wtb token create`.
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
        name: Of the program.
        arguments: Of the command.
        command: Its name, if it is not that of the program.
        also: What its environment has besides that of this process.
        options: Of the program.

    Returns:
        The program.
    """
    words = [sys.executable, "-P", "-m", "wtb", command or name, *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | dict(also or {})
    return Program(name, words, environment=environment, grace=GRACE_S[name], **options)


def _worker_runs(url: str, since: float) -> bool:
    """Return True if a worker that was started since then has sent a heartbeat."""
    query = "SELECT 1 FROM runners WHERE worker IS NOT NULL AND ended_at IS NULL AND seen_at IS NOT NULL"
    try:
        with connect(url) as connection:
            return connection.execute(f"{query} AND created_at >= %s LIMIT 1", [since]).fetchone() is not None
    except psycopg.OperationalError:  # the server is being started again
        return False


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2.0):
        return True
    return False
