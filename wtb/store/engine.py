"""The engine of a database: how its driver connects, and what each connection is told."""

from __future__ import annotations

import os
import select
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from wtb.config.credentials import is_hidden_database
from wtb.config.urls import shown_url
from wtb.core.errors import InputError
from wtb.store.database_url import bad_url
from wtb.store.tables.schema import sweeps

# Compiling a statement takes PostgreSQL a second, where it takes its rows for many; none of ours gains that.
_SETTINGS = "-c statement_timeout=30s -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s -c jit=off"
_BUSY_S = 30.0  # for so long others may have an SQLite file to themselves
_PING_AFTER_S = 10.0  # a connection that was idle for so long is asked whether it lives


def make_engine(url: sa.URL, is_sqlite: bool) -> sa.Engine:
    """Create the engine. Raises InputError for a URL that the driver cannot read."""
    # Errors must not show the values of users' states.
    create = partial(
        sa.create_engine, url, hide_parameters=True, json_serializer=_dumps, json_deserializer=orjson.loads
    )
    if not is_sqlite:
        given = url.normalized_query.get("options", ())
        arguments = {"connect_timeout": 5, "options": " ".join((_SETTINGS, *given))}
        try:
            engine = create(pool_size=10, max_overflow=5, pool_use_lifo=True, connect_args=arguments)
        except (sa.exc.ArgumentError, ValueError):  # of hosts and ports that stand among the options
            problem = "has a host or port that cannot be read"
            raise bad_url(url.render_as_string(hide_password=False), problem) from None
        sa.event.listen(engine, "checkin", _note_checkin)
        sa.event.listen(engine, "checkout", partial(_check, engine.dialect))
        return engine
    arguments = {"timeout": _BUSY_S, "check_same_thread": False}
    if url.database in (None, "", ":memory:"):
        create = partial(create, poolclass=sa.StaticPool)
    elif url.database:
        create = partial(create, creator=partial(_connect_sqlite, url.database))
    engine = create(connect_args=arguments)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect_sqlite(file: str) -> sqlite3.Connection:
    """Open a file. One that nothing can be written beside is opened as it is: a log would have to be written to read.

    Changes that are only in a log of before are read from that, if SQLite can.
    """
    path = Path(file)
    if is_hidden_database(file):
        raise InputError(
            f"database {shown_url(f'sqlite:///{file}')} is hidden from nodes: use another one, such as a file in the "
            "workspace; or set `walls = false` below [nodes] in wtb.toml, or WTB_WALLS=0, where the sweep is run"
        )
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return sqlite3.connect(file, timeout=_BUSY_S, check_same_thread=False)
    log = path.with_name(f"{path.name}-wal")
    unchanging = "" if log.is_file() and log.stat().st_size else "&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode=ro{unchanging}"
    connection = sqlite3.connect(uri, timeout=_BUSY_S, check_same_thread=False, uri=True)
    connection.execute("PRAGMA query_only=ON").close()  # which `_prepare_sqlite` reads
    return connection


def _note_checkin(connection: Any, record: Any) -> None:
    record.info["idle_since"] = time.monotonic()


def _check(dialect: sa.Dialect, connection: Any, record: Any, fairy: Any) -> None:
    """Ask the server for a sign of life, where a connection may be dead: the pool then makes others.

    A server that ends a connection says so, and what it said can be read. Nothing is heard only of a network that is
    gone, so what was not used for a while is asked, too. To ask each time would take a tenth of a short request.
    """
    since = record.info.get("idle_since")
    if since is None:  # it is new
        return
    if time.monotonic() - since < _PING_AFTER_S and not _is_readable(connection):
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise sa.exc.InvalidatePoolError from error


def _is_readable(connection: Any) -> bool:
    """Return whether anything was sent on an idle connection, or it is closed."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # WTB begins its transactions itself
    (is_read_only,) = connection.execute("PRAGMA query_only").fetchone()
    if not is_read_only and not _is_of_another_program(connection):
        _write_ahead(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _is_of_another_program(connection: Any) -> bool:
    """Return whether a file has tables and none of WTB's: then nothing of it is changed, not even its journal mode."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":  # as WTB's are, so this is quick
        return False
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return bool(names) and sweeps.name not in names


def _write_ahead(connection: Any) -> None:
    """Have a file be written by its log. While others open a new one, too, SQLite refuses that without waiting."""
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except connection.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once, whatever the busy timeout.
    writes = connection.get_execution_options().get("wtb_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _dumps(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
