"""The engine of a database: the connections of its driver, and their settings."""

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

from wtb.config.credentials import is_hidden_database, shown_url
from wtb.core.errors import InputError
from wtb.store.database_url import bad_url
from wtb.store.tables.schema import sweeps

# PostgreSQL compiles a statement for a second if it expects many rows; no statement here gains that much.
_SETTINGS = "-c statement_timeout=30s -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s -c jit=off"
_BUSY_S = 30.0  # for so long other processes may lock an SQLite file
_PING_AFTER_S = 10.0  # a connection that was idle for so long is pinged before use


def make_engine(url: sa.URL, is_sqlite: bool) -> sa.Engine:
    """Create the engine. Raises InputError for a URL that the driver cannot read."""
    # Errors must not show the values of users' states.
    create = partial(
        sa.create_engine, url, hide_parameters=True, json_serializer=_dumps, json_deserializer=orjson.loads
    )
    if not is_sqlite:
        url_options = url.normalized_query.get("options", ())
        arguments = {"connect_timeout": 5, "options": " ".join((_SETTINGS, *url_options))}
        try:
            # LIFO uses the same few connections, so that the others become idle and the server may end them.
            engine = create(pool_size=10, max_overflow=5, pool_use_lifo=True, connect_args=arguments)
        except (sa.exc.ArgumentError, ValueError):  # for hosts and ports among the options
            problem = "has a host or port that cannot be read"
            raise bad_url(url.render_as_string(hide_password=False), problem) from None
        sa.event.listen(engine, "checkin", _note_checkin)
        sa.event.listen(engine, "checkout", partial(_check, engine.dialect))
        return engine
    arguments = {"timeout": _BUSY_S, "check_same_thread": False}
    if url.database in (None, "", ":memory:"):
        # Each connection to a database in memory has another one, so all threads share a connection.
        create = partial(create, poolclass=sa.StaticPool)
    elif url.database:
        create = partial(create, creator=partial(_connect_sqlite, url.database))
    engine = create(connect_args=arguments)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect_sqlite(file: str) -> sqlite3.Connection:
    """Open a file. A file beside which nothing can be written is opened read-only, because reading a log needs writing.

    Changes that are only in an existing log are read from that, if SQLite can.
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
    uri = read_only_uri(path, is_unchanging=not (log.is_file() and log.stat().st_size))
    connection = sqlite3.connect(uri, timeout=_BUSY_S, check_same_thread=False, uri=True)
    connection.execute("PRAGMA query_only=ON").close()  # which `_prepare_sqlite` reads
    return connection


def read_only_uri(path: Path, *, is_unchanging: bool = False) -> str:
    """Return the URI under which SQLite opens a file only to read it.

    Args:
        path: The file.
        is_unchanging: Whether nobody changes the file meanwhile, so that SQLite neither locks it nor writes beside it.
    """
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_unchanging else ''}"


def _note_checkin(connection: Any, record: Any) -> None:
    record.info["idle_since"] = time.monotonic()


def _check(dialect: sa.Dialect, connection: Any, record: Any, fairy: Any) -> None:
    """Ping a connection that may be dead; the pool then replaces all of them.

    A server that ends a connection sends a message, which makes the connection readable. A lost network sends nothing,
    so connections that were idle for a while are pinged, too. A ping each time would take a tenth of a short request.
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
    # FULL keeps commits through a loss of power: a worker's results are acknowledged once they are committed.
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _is_of_another_program(connection: Any) -> bool:
    """Return whether a file has tables and none of WTB's; then nothing of it is changed, not even its journal mode."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":  # as WTB's are, so this is quick
        return False
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return bool(names) and sweeps.name not in names


def _write_ahead(connection: Any) -> None:
    """Switch a file to WAL. While others open a new file, too, SQLite refuses that without waiting."""
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
