"""The URL of a database: which one is used, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from wtb.config.credentials import DATABASE_URL, credential
from wtb.config.stack_file import find_stack
from wtb.config.urls import shown_url
from wtb.core.errors import InputError, did_you_mean

DEFAULT_URL = "sqlite:///.wtb/wtb.db"


def database_url(given: str | Path | None = None) -> str:
    """The database to use: the one given, else `WTB_DATABASE_URL`, else that of the stack that is up in this folder,
    else `.wtb/wtb.db`. A path is that of an SQLite file."""
    if isinstance(given, Path):
        return sa.URL.create("sqlite", database=str(given)).render_as_string()
    if found := given or credential(DATABASE_URL):
        return found
    stack = find_stack()
    return stack.database_url if stack else DEFAULT_URL


def parse_url(url: str) -> sa.URL:
    """The URL of a database. Raises InputError, which shows no password, for what cannot be one."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise bad_url(url, "cannot be read") from None
    except ValueError:
        raise bad_url(url, "has a port that is not a number") from None
    backend = parsed.get_backend_name()
    if backend in ("http", "https"):
        shown = shown_url(url)
        raise InputError(
            f"{shown!r} is a server and no database: ask it with `wtb --server {shown}`, or from Python with "
            f"wtb.client.Client({shown!r}), which has the methods of a bench"
        )
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"database URL: {backend!r:.40} is not supported; expected sqlite or postgresql")
    if not url.isprintable():
        raise bad_url(url, "has a character that cannot be printed")
    problem = _problem_of_sqlite(parsed) if backend == "sqlite" else _problem_of_postgresql(parsed)
    if problem is not None:
        raise bad_url(url, problem)
    return parsed if backend == "sqlite" else parsed.set(drivername="postgresql+psycopg")


def bad_url(url: str, problem: str) -> InputError:
    expected = "sqlite:///path/to/file.db or postgresql://user@host/name"
    return InputError(f"database URL {shown_url(url)!r} {problem}; expected {expected}")


def _problem_of_sqlite(url: sa.URL) -> str | None:
    """What is wrong with the URL of an SQLite database; None if nothing is."""
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        return f"asks for the driver {url.get_driver_name()!r:.40}, which WTB does not use"
    if url.host or url.username or url.port:
        return "names a host, which SQLite does not have: three slashes come before a relative path"
    return f"has the option {min(url.query)!r:.40}; SQLite takes none here" if url.query else None


def _problem_of_postgresql(url: sa.URL) -> str | None:
    """What is wrong with the URL of a PostgreSQL database; None if nothing is."""
    from psycopg.pq import Conninfo

    if url.host and "@" in url.host:
        return "has more than one @; write %40 for one in the password"
    if url.port is not None and not 0 < url.port < 65536:
        return f"has the port {url.port!s:.10}, which is not a valid one"
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for option in url.query:
        if option not in known:
            return f"has the option {option!r:.40}, which PostgreSQL does not know{did_you_mean(option, known)}"
    return None
