"""What rows refer to: values, and snapshots of files.

A dry run asks the same of the database as it would be: `imagining` notes in temporary tables which sweeps and
checkpoints would be gone, and queries that take `imagined` leave out what belongs to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import sqlalchemy as sa

from wtb.store.database import Database

# Table, the column that names values by key, and the one that says which checkpoint a row goes with; all of them have
# a snapshot of files too.
_REFERRING = (("checkpoints", "state", "id"), ("node_runs", "writes", "checkpoint_id"), ("cases", "input", None))
# The same where it is one part of the column that names values.
_IN_PART = (("checkpoints", "inside", "saved", "id"), ("approvals", "answer", "set", "checkpoint_id"))

_imagined = sa.MetaData()
GONE_SWEEPS = sa.Table("wtb_gone_sweeps", _imagined, sa.Column("id", sa.String(32), primary_key=True))
GONE_CHECKPOINTS = sa.Table("wtb_gone_checkpoints", _imagined, sa.Column("id", sa.String(32), primary_key=True))


def values_named(connection: sa.Connection, since: int | None = None, *, imagined: bool = False) -> str:
    """A query for the digests (`value`) of all values that rows name.

    Args:
        connection: Tells the dialect.
        since: Of PostgreSQL, only rows that this transaction wrote or one with a higher number.
        imagined: As everything would be, as noted within `imagining`.
    """
    if connection.dialect.name == "sqlite":
        whole, part = 'json_each(t."{column}")', "json_each(t.\"{column}\", '$.{key}')"
    else:
        whole, part = '{json}_each_text(t."{column}")', "jsonb_each_text(t.\"{column}\" -> '{key}')"
    named = [
        (table, whole.format(column=column, json="jsonb" if table == "cases" else "json"), checkpoint)
        for table, column, checkpoint in _REFERRING
    ]
    named += [(table, part.format(column=column, key=key), checkpoint) for table, column, key, checkpoint in _IN_PART]
    # Threads go with no sweep and no checkpoint of one.
    entries = whole.format(column="state", json="jsonb")
    parts = [f"SELECT d.value FROM {_rows('thread_checkpoints', since)} AS t, {entries} AS d"]
    parts.append(f"SELECT t.digest FROM {_rows('thread_writes', since)} AS t WHERE t.digest IS NOT NULL")
    for table, entries, checkpoint in named:
        where = f" WHERE {still_there('t', checkpoint)}" if imagined else ""
        parts.append(f"SELECT d.value FROM {_rows(table, since)} AS t, {entries} AS d{where}")
    return " UNION ALL ".join(parts)


# Tables with many rows, which are written once: a column that says by which transaction, second in an index by sweep.
_WRITTEN_BY = {"checkpoints": "created_transaction", "node_runs": "ended_transaction"}


def _rows(table: str, since: int | None) -> str:
    """The rows of a table, or those that a transaction wrote or one with a higher number."""
    if since is None:
        return f'"{table}"'
    # Ages, since the numbers that rows have wrap around. A row that looks younger than it is does no harm.
    young = f"age(r.xmin) <= age('{since % 2**32}'::xid)"
    if (number := _WRITTEN_BY.get(table)) is None:
        return f'(SELECT * FROM "{table}" AS r WHERE {young})'
    # OFFSET 0 keeps these apart, so that each is a look into the index for each sweep and not a scan of the table.
    of_sweep = f'SELECT * FROM "{table}" AS r WHERE r.sweep_id = s.id AND r.{number}'
    some = f"{of_sweep} >= {since} UNION ALL {of_sweep} IS NULL AND {young} OFFSET 0"
    return f"(SELECT r.* FROM sweeps AS s CROSS JOIN LATERAL ({some}) AS r)"


class SnapshotOf(NamedTuple):
    """A snapshot of files by its digest, and the session and the project of a sweep that refers to it."""

    session: str
    project: str
    digest: str


def snapshots(connection: sa.Connection, *, imagined: bool = False) -> list[SnapshotOf]:
    """List every snapshot of files that a checkpoint, a node run or a case has."""
    parts = []
    for table, _, checkpoint in _REFERRING:
        where = "t.workspace IS NOT NULL" + (f" AND {still_there('t', checkpoint)}" if imagined else "")
        join = f'"{table}" AS t JOIN sweeps AS s ON s.id = t.sweep_id'
        parts.append(f"SELECT s.session_id, s.project, t.workspace FROM {join} WHERE {where}")
    rows = connection.execute(sa.text(f"{' UNION '.join(parts)} ORDER BY 1, 2, 3"))
    return [SnapshotOf(*row) for row in rows]


@contextmanager
def imagining(database: Database) -> Iterator[sa.Connection]:
    """A single state of the database with room to note what would be gone. Nothing is written to the database."""
    with database.read(long=True) as connection:
        end = "" if database.is_sqlite else " ON COMMIT DROP"
        tables = (GONE_SWEEPS.name, GONE_CHECKPOINTS.name)
        for table in tables:
            connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {table} (id VARCHAR(32) PRIMARY KEY){end}")
        try:
            yield connection
        finally:
            if database.is_sqlite:
                with suppress(sa.exc.OperationalError):  # the transaction was rolled back, and they with it
                    for table in tables:
                        connection.exec_driver_sql(f"DROP TABLE {table}")


def imagine_sweep_gone(connection: sa.Connection, sweep_id: str) -> None:
    connection.execute(GONE_SWEEPS.insert().values(id=sweep_id))


def still_there(table: str, checkpoint: str | None) -> str:
    """Of a row with a sweep, and a checkpoint that it goes with: whether it would still be there, as imagined."""
    where = f"NOT EXISTS (SELECT 1 FROM {GONE_SWEEPS} AS g WHERE g.id = {table}.sweep_id)"
    if checkpoint:
        where += f' AND NOT EXISTS (SELECT 1 FROM {GONE_CHECKPOINTS} AS g WHERE g.id = {table}."{checkpoint}")'
    return where
