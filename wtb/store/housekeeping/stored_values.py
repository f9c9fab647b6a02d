"""Stored values: those that no row names any more, old outputs of attempts, their removal, and damaged values.

Values are stored once for all projects, so the rows of all projects are read, whatever the caller is limited to. The
bytes of a damaged value do not match its hash; an execution goes back to its nearest intact checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.serialization.codec import digest
from wtb.core.status import FINAL_CELLS, OPEN_EXECUTIONS
from wtb.store.access.usage import has_output, octets, output_size, total
from wtb.store.bulk import MOST_ROWS, fetch_among, insert_rows, parts, update_rows
from wtb.store.cell_status import attempt_column, node_runs_with_attempts
from wtb.store.control.approvals import withdraw
from wtb.store.database import Database
from wtb.store.database_url import LOCK_NOT_AVAILABLE, sqlstate
from wtb.store.log import add_event, keep_events, of_execution
from wtb.store.read.lineage import is_edited
from wtb.store.read.queries import as_bytes, stored_bytes
from wtb.store.records import CellsOfExecution, OpenHead
from wtb.store.runs.leases import continuing, of_cells
from wtb.store.runs.node_progress import record_first_attempts
from wtb.store.runs.submit import next_id
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.schema import attempts, cells, checkpoints, executions, node_runs, sweeps, values
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import Scope

# Table, the column that names values by key, and the column of the checkpoint with which a row is removed. All have
# a snapshot of files, too.
_REFERRING = (("checkpoints", "state", "id"), ("node_runs", "writes", "checkpoint_id"), ("cases", "input", None))
# The same, if a part of the column names the values.
_IN_PART = (("checkpoints", "inside", "saved", "id"), ("approvals", "answer", "set", "checkpoint_id"))

_imagined = sa.MetaData()
GONE_SWEEPS = sa.Table("wtb_gone_sweeps", _imagined, sa.Column("id", sa.String(32), primary_key=True))
GONE_CHECKPOINTS = sa.Table("wtb_gone_checkpoints", _imagined, sa.Column("id", sa.String(32), primary_key=True))


def values_named(connection: sa.Connection, since: int | None = None, *, imagined: bool = False) -> str:
    """Return the query for the digests (`value`) of all values that rows name.

    Args:
        connection: The connection, for its dialect.
        since: On PostgreSQL, only rows that this transaction or one with a higher number wrote.
        imagined: Leave out rows that are marked as gone within `imagining`.
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
    # Threads belong to no sweep and to no checkpoint of one.
    entries = whole.format(column="state", json="jsonb")
    parts = [f"SELECT d.value FROM {_rows('thread_checkpoints', since)} AS t, {entries} AS d"]
    parts.append(f"SELECT t.digest FROM {_rows('thread_writes', since)} AS t WHERE t.digest IS NOT NULL")
    for table, entries, checkpoint in named:
        where = f" WHERE {still_there('t', checkpoint)}" if imagined else ""
        parts.append(f"SELECT d.value FROM {_rows(table, since)} AS t, {entries} AS d{where}")
    return " UNION ALL ".join(parts)


# Large tables whose rows are written once, with the column of the writing transaction, which is second in an index.
_WRITTEN_BY = {"checkpoints": "created_transaction", "node_runs": "ended_transaction"}


def _rows(table: str, since: int | None) -> str:
    """Return the rows of a table, or those that a transaction wrote or one with a higher number."""
    if since is None:
        return f'"{table}"'
    # Ages, because the numbers in rows wrap around. A row that looks younger than it is does no harm.
    young = f"age(r.xmin) <= age('{since % 2**32}'::xid)"
    if (number := _WRITTEN_BY.get(table)) is None:
        return f'(SELECT * FROM "{table}" AS r WHERE {young})'
    # OFFSET 0 keeps PostgreSQL from merging these, so that it searches the index for each sweep and scans no table.
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
    """Open one snapshot of the database in which rows can be marked as gone. Nothing is written to the database."""
    with database.read(long=True) as connection:
        end = "" if database.is_sqlite else " ON COMMIT DROP"
        tables = (GONE_SWEEPS.name, GONE_CHECKPOINTS.name)
        for table in tables:
            connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {table} (id VARCHAR(32) PRIMARY KEY){end}")
        try:
            yield connection
        finally:
            if database.is_sqlite:
                with suppress(sa.exc.OperationalError):  # the transaction was rolled back, and the tables with it
                    for table in tables:
                        connection.exec_driver_sql(f"DROP TABLE {table}")


def imagine_sweep_gone(connection: sa.Connection, sweep_id: str) -> None:
    connection.execute(GONE_SWEEPS.insert().values(id=sweep_id))


def still_there(table: str, checkpoint: str | None) -> str:
    """Return the condition that a row, with its sweep and checkpoint, is not marked as gone."""
    where = f"NOT EXISTS (SELECT 1 FROM {GONE_SWEEPS} AS g WHERE g.id = {table}.sweep_id)"
    if checkpoint:
        where += f' AND NOT EXISTS (SELECT 1 FROM {GONE_CHECKPOINTS} AS g WHERE g.id = {table}."{checkpoint}")'
    return where


PART = 500  # values that are removed at a time, while all writers wait
_PART_SQLITE = 20_000  # there, finding some costs as much as finding all
_LOCK_WAIT_MS = 50  # all later writers wait behind this lock request
_LOCK_TRIES = 60


class Busy(StoreError):
    """The table of values was written to without a pause; try again later."""


@frozen
class Unreferenced:
    """Values that no row named. `horizon` is, on PostgreSQL, the oldest transaction whose rows were not all seen."""

    digests: Sequence[str]
    horizon: int | None

    def parts(self) -> Iterator[Unreferenced]:
        """Yield the parts that `remove_values` removes at a time."""
        size = _PART_SQLITE if self.horizon is None else PART
        return (Unreferenced(part, self.horizon) for part in parts(self.digests, size))


def unreferenced(database: Database, limit: int) -> Unreferenced:
    """Find up to `limit` values that no state, input or write names. `remove_values` considers rows written since."""
    return _unreferenced(database, f'SELECT digest FROM "values" EXCEPT {{named}} LIMIT {int(limit)}')


def unreferenced_among(database: Database, digests: Sequence[str]) -> Unreferenced:
    """Find the unreferenced values among these, as `unreferenced` does."""
    return _unreferenced(database, f"{_digests_query(database.is_sqlite)} EXCEPT {{named}}", digests=_dumped(digests))


def _unreferenced(database: Database, query: str, **parameters: str) -> Unreferenced:
    with database.within(Scope()).read(long=True) as connection:
        named = f"SELECT value FROM ({values_named(connection)}) AS r"
        digests = list(connection.scalars(sa.text(query.format(named=named)), parameters))
        if database.is_sqlite:
            return Unreferenced(digests, None)
        # Read in the same snapshot: the query has seen all transactions that ended before this one.
        horizon = connection.scalar(sa.text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))
        return Unreferenced(digests, int(horizon))


def _digests_query(on_sqlite: bool) -> str:
    """Return the query for the digests of a parameter."""
    each = "json_each(:digests)" if on_sqlite else "jsonb_array_elements_text(CAST(:digests AS jsonb))"
    return f"SELECT value FROM {each}"


def _dumped(digests: Sequence[str]) -> str:
    return orjson.dumps(list(digests)).decode()


def count_unreferenced(connection: sa.Connection) -> tuple[int, int]:
    """Return how many values would be unreferenced without the rows marked as gone, and their bytes."""
    named = values_named(connection, imagined=True)
    digests = _listed(f'SELECT digest FROM "values" EXCEPT SELECT value FROM ({named}) AS r')
    query = sa.select(sa.func.count(), total(octets(values.c.data))).where(values.c.digest.in_(digests))
    count, size = connection.execute(query).one()
    return count, size


def remove_values(database: Database, garbage: Unreferenced, tries: int = _LOCK_TRIES) -> tuple[int, int]:
    """Remove values that still nobody names.

    A writer inserts a missing value before its reference, in the same transaction. On PostgreSQL, the lock waits for
    all such writers, and the rows of transactions that `unreferenced` did not see are read once more, by their indexes.
    Later writers find the values missing and insert them again.

    Returns:
        The number of values removed, and their bytes.

    Raises:
        Busy: If the table could not be locked.
    """
    for attempt in range(1, tries + 1):
        try:
            with database.within(Scope()).write() as connection:
                return _remove(connection, garbage)
        except StoreError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(min(0.05 * attempt, 1.0))
    raise Busy(
        "values were not collected, because other processes wrote all the time; run `wtb admin gc` again when less "
        "is running"
    )


def _remove(connection: sa.Connection, garbage: Unreferenced) -> tuple[int, int]:
    """Delete values that nothing names. Returns how many, and their bytes."""
    if garbage.horizon is not None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}")
        connection.exec_driver_sql('LOCK TABLE "values" IN EXCLUSIVE MODE')
    named = values_named(connection, garbage.horizon)
    query = _listed(f"{_digests_query(garbage.horizon is None)} EXCEPT SELECT value FROM ({named}) AS r")
    removal = values.delete().where(values.c.digest.in_(query)).returning(octets(values.c.data))
    sizes = list(connection.scalars(removal, {"digests": _dumped(garbage.digests)}))
    return len(sizes), sum(sizes)


def _listed(query: str) -> sa.TextualSelect:
    return sa.text(query).columns(sa.column("digest", sa.String))


def old_outputs(database: Database, before: float) -> list[tuple[str, int, int]]:
    """Return attempts that ended before a time and still have an output, at most 5,000: (node run, number, bytes)."""
    query = _old(sa.select(attempt_column("node_run_id"), attempt_column("number"), output_size), before)
    return database.tuples(query.limit(MOST_ROWS), long=True)


def count_outputs(connection: sa.Connection, before: float) -> tuple[int, int]:
    """Return how many attempts would lose their output, and its bytes, without the rows marked as gone."""
    query = _old(sa.select(sa.func.count(), total(output_size)), before)
    count, size = connection.execute(query.where(sa.text(still_there("node_runs", "checkpoint_id")))).one()
    return count, size


def remove_outputs(database: Database, outputs: Iterable[tuple[str, int, int]]) -> None:
    nothing = {"stdout": None, "stderr": None}
    keys = [(run, number) for run, number, _ in outputs]
    with database.write() as connection:
        # The first attempt may have no row of its own: its output is in the row of the node run.
        update_rows(connection, node_runs, [{"id": run, **nothing} for run, number in keys if number == 1], ("id",))
        rows = [{"node_run_id": run, "number": number, **nothing} for run, number in keys]
        update_rows(connection, attempts, rows, ("node_run_id", "number"))


def _old(query: sa.Select[*tuple[Any, ...]], before: float) -> sa.Select[*tuple[Any, ...]]:
    """Restrict a query to attempts that ended before a time, in sweeps that are not pinned.

    The clock of the machine that ran them may have been behind, but no attempt is older than its sweep.
    """
    table = node_runs_with_attempts.join(sweeps, sweeps.c.id == node_runs.c.sweep_id)
    ended = attempt_column("started_at") + attempt_column("duration_s")
    return query.select_from(table).where(has_output, ended < before, sweeps.c.created_at < before, ~sweeps.c.pinned)


def find_damaged(database: Database, digests: Iterable[str]) -> set[str]:
    """Return the digests whose value is missing or has another hash."""
    keys = set(digests)
    query = sa.select(values.c.digest, stored_bytes(database))
    with database.read() as connection:
        stored = fetch_among(connection, query, values.c.digest, keys)
        return keys - {key for key, content in stored if digest(as_bytes(content)) == key}


def open_heads(database: Database, sweep_id: str) -> list[OpenHead]:
    """Return the executions that have begun and that nobody runs, with the state of their head."""
    query = (
        sa.select(executions, checkpoints.c.state)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(
            executions.c.sweep_id == sweep_id,
            executions.c.status.in_(OPEN_EXECUTIONS),
            executions.c.status != "running",
        )
    )
    return database.records(OpenHead, query)


def waiting_cases(database: Database, sweep_id: str) -> set[int]:
    """Return the cases of executions that have not begun."""
    query = sa.select(executions.c.case_number).where(
        executions.c.sweep_id == sweep_id, executions.c.status == "pending", executions.c.head_id.is_(None)
    )
    return set(database.scalars(query))


def writes_from(database: Database, checkpoint_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the digests that accepted node runs wrote, by node run, of those that started from these checkpoints."""
    query = sa.select(node_runs.c.id, node_runs.c.writes).where(node_runs.c.status == "succeeded")
    rows = database.rows_among(query, node_runs.c.checkpoint_id, checkpoint_ids)
    return {id: list((writes or {}).values()) for id, writes in rows}


def go_back(
    database: Database,
    sweep: SweepRow,
    lost: Iterable[str],
    lost_runs: Iterable[str],
    moves: Mapping[tuple[int, int, str | None, str | None], Sequence[ExecutionRow]],
) -> None:
    """Move executions back to intact checkpoints, in one transaction.

    Args:
        database: The database.
        sweep: The sweep.
        lost: Digests of values that are of no use any more.
        lost_runs: Node runs whose result was lost.
        moves: Executions by (case, repeat, checkpoint to move to, id of a manual fork); those of one key continue as
            one execution. Without a checkpoint it begins from the case's input.
    """
    with database.write() as connection:
        # The lock makes this take turns with retries, which number executions of the same cells.
        connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == sweep.id).with_for_update())
        for part in parts(sorted(set(lost))):
            connection.execute(values.delete().where(values.c.digest.in_(part)))
        for part in parts(sorted(set(lost_runs))):
            keep_events(connection, node_runs, part)
            record_first_attempts(connection, node_runs.c.id.in_(part))
            connection.execute(node_runs.update().where(node_runs.c.id.in_(part)).values(status="failed", writes=None))
        for (case, repeat, checkpoint, _), members in moves.items():
            _replace(connection, sweep, case, repeat, checkpoint, members)


def _replace(
    connection: sa.Connection,
    sweep: SweepRow,
    case: int,
    repeat: int,
    checkpoint: str | None,
    members: Sequence[ExecutionRow],
) -> None:
    """Replace executions by one that continues their cells at the same checkpoint."""
    combinations = sorted(number for row in members for number in row.combinations)
    made_id = new_id() if members[0].choices is not None else next_id(connection, sweep.id)
    first, paused = members[0], all(row.status == "paused" for row in members)
    replacement: NewExecution = {
        **continuing(made_id, "retry" if first.choices is None else "manual", first, combinations),
        "status": "paused" if paused else "pending",
        "reason": first.reason if paused else None,
        "head_id": checkpoint,
        "choices": first.choices,
        "edited": is_edited(connection, checkpoint, any(row.edited for row in members)),
        "created_at": time.time(),
    }
    insert_rows(connection, executions, [replacement])
    ids = [row.id for row in members]
    connection.execute(
        executions.update()
        .where(executions.c.id.in_(ids), executions.c.status.in_(OPEN_EXECUTIONS))
        # Only open executions, because one may have ended since the moves were planned.
        .values(status="cancelled", reason="a stored value was damaged", finished_at=time.time())
    )
    withdraw(connection, ids)
    new = CellsOfExecution(made_id, sweep.session_id, sweep.id, case, repeat, combinations)
    mine = of_cells(cells, new)
    connection.execute(cells.update().where(*mine, cells.c.status == "waiting").values(status="pending"))
    connection.execute(cells.update().where(*mine, cells.c.status.not_in(FINAL_CELLS)).values(execution_id=made_id))
    details = {"checkpoint": checkpoint, "executions": len(members), "cells": len(combinations)}
    add_event(connection, of_execution(new), "execution.rewound", details, "warning")
