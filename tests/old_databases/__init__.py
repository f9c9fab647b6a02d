"""Databases at the last migration before the initial one, filled by the WTB of that time.

Both were made by running its eleven migrations, then a sweep of 2 x 2 variants over 2 cases (two cells fail), a
baseline, a paused schedule, a single execution and a budget. SQLite's is a dump of Python's `iterdump`, PostgreSQL's
one of `pg_dump --inserts --no-owner --no-privileges`, each with its statements on one line.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from wtb.hosting.servers.databases import connect


def restore(url: str) -> None:
    """Fill an empty database."""
    parsed = sa.make_url(url)
    kind = parsed.get_backend_name()
    script = Path(__file__).with_name(f"{kind}.sql").read_text("utf-8")
    if kind == "sqlite":
        file = Path(str(parsed.database))
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(script)
    else:
        with connect(url) as connection:
            connection.execute(script)
