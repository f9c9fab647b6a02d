"""The URL of a database: its resolution, its errors, and what errors of a database mean."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from wtb.config.credentials import DATABASE_URL, credential, shown_url
from wtb.config.stack_file import find_stack
from wtb.core.errors import InputError, StoreAway, StoreError, did_you_mean

DEFAULT_URL = "sqlite:///.wtb/wtb.db"


def database_url(location: str | Path | None = None) -> str:
    """Return the URL of the database to use, given or from the settings.

    Without a location it is `WTB_DATABASE_URL`, else the database of the stack that is up in this folder, else
    `.wtb/wtb.db`. A path is that of an SQLite file.
    """
    if isinstance(location, Path):
        return sa.URL.create("sqlite", database=str(location)).render_as_string()
    if url := location or credential(DATABASE_URL):
        return url
    stack = find_stack()
    return stack.database_url if stack else DEFAULT_URL


def parse_url(url: str) -> sa.URL:
    """Parse the URL of a database. Raises InputError, which shows no password, for an invalid one."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise bad_url(url, "cannot be read") from None
    except ValueError:
        raise bad_url(url, "has a port that is not a number") from None
    backend = parsed.get_backend_name()
    if backend in ("http", "https"):
        safe_url = shown_url(url)
        raise InputError(
            f"{safe_url!r} is a server, not a database; use `wtb --server {safe_url}`, or wtb.open({safe_url!r}) in "
            f"Python"
        )
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"database URL: {backend!r:.40} is not supported; expected sqlite or postgresql")
    if not url.isprintable():
        raise bad_url(url, "has a character that cannot be printed")
    problem = _problem_of_sqlite(parsed) if backend == "sqlite" else _problem_of_postgresql(parsed)
    if problem is not None:
        raise bad_url(url, problem)
    # One driver for PostgreSQL: the store uses pipelines and COPY of psycopg.
    return parsed if backend == "sqlite" else parsed.set(drivername="postgresql+psycopg")


def bad_url(url: str, problem: str) -> InputError:
    expected = "sqlite:///path/to/file.db or postgresql://user@host/name"
    return InputError(f"database URL {shown_url(url)!r} {problem}; expected {expected}")


def _problem_of_sqlite(url: sa.URL) -> str | None:
    """Return the problem of the URL of an SQLite database; None if there is none."""
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        return f"asks for the driver {url.get_driver_name()!r:.40}, which WTB does not use"
    if url.host or url.username or url.port:
        return "names a host, which SQLite does not have: three slashes come before a relative path"
    return f"has the option {min(url.query)!r:.40}; SQLite takes none here" if url.query else None


def _problem_of_postgresql(url: sa.URL) -> str | None:
    """Return the problem of the URL of a PostgreSQL database; None if there is none."""
    from psycopg.pq import Conninfo

    if url.host and "@" in url.host:
        return "has more than one @; write %40 for one in the password"
    if url.port is not None and not 0 < url.port < 65536:
        return f"has the port {url.port!s:.10}, which is not a valid one"
    options = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for option in url.query:
        if option not in options:
            return f"has the option {option!r:.40}, which PostgreSQL does not know{did_you_mean(option, options)}"
    return None


QUERY_CANCELED = "57014"  # a statement took longer than it may
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL gave up waiting for a row that another transaction has locked
# Refusals of PostgreSQL that waiting does not help against. Before a session begins there are no codes, only texts.
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "not permitted")


def sqlstate(error: StoreError) -> str | None:
    """Return the code of the PostgreSQL error that caused an error, if one did."""
    # SQLAlchemy wraps the driver's error; statements that bypass it raise the driver's own.
    cause = error.__cause__
    return getattr(getattr(cause, "orig", cause), "sqlstate", None)


def was_deadlock(error: StoreError) -> bool:
    """Return whether a transaction was ended to resolve a deadlock, so that it can be tried again."""
    return sqlstate(error) == "40P01"


def gave_way(error: StoreError) -> bool:
    """Return whether a transaction was ended because others have locked its rows, so that it can be tried again."""
    return was_deadlock(error) or sqlstate(error) == LOCK_NOT_AVAILABLE


def is_disk_full(error: StoreError) -> bool:
    """Return whether a write failed because the disk of the database is full."""
    return sqlstate(error) == "53100" or "disk is full" in str(getattr(error.__cause__, "orig", error.__cause__))


def out_of_reach(text: str) -> StoreError:
    return StoreError(text) if any(refusal in text for refusal in _REFUSALS) else StoreAway(text)


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver's message; the others are details."""
    return str(error).strip().partition("\n")[0]
