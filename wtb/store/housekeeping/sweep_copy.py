"""Copies of one sweep: its rows moved to another database under the same ids, or beside it under new ones.

They are written in batches, each a short transaction. The sweep is invisible until the last one. A copy that was
interrupted leaves invisible rows, which the next copy or `remove_hidden` removes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any, Final, cast

import orjson
import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from wtb.core.errors import ConflictError
from wtb.core.fault_points import point
from wtb.core.frozen import frozen
from wtb.core.ids import new_id, random_text
from wtb.core.values import Json
from wtb.store.access.sessions import session_of_submission
from wtb.store.bulk import (
    NewRow,
    Row,
    fetch_row,
    fetch_rows,
    in_batches,
    insert_missing,
    insert_rows,
    insert_values,
    parts,
)
from wtb.store.database import Database
from wtb.store.housekeeping.contents import add_files, named_values, value_contents
from wtb.store.housekeeping.deletion import discard_submission
from wtb.store.log import add_event, insert_events, log_rows, subject
from wtb.store.tables.column_types import Id
from wtb.store.tables.schema import (
    approvals,
    attempts,
    awaiting,
    calls,
    cases,
    cells,
    checkpoints,
    combinations,
    comments,
    decisions,
    events,
    executions,
    files,
    invocations,
    labels,
    looks,
    metrics,
    node_runs,
    now,
    pooled,
    rollbacks,
    scores,
    sweeps,
    workflows,
)
from wtb.store.tables.sweeps import NewEvent

_PREFIX: Final = 16  # characters of the ids that a process generates in common
_TIME: Final = 7  # characters of them that are the time
_GENERATED: Final = re.compile(r"[0-9a-z]{16}[0-9a-f]{6}")
_NOT_RENAMED: Final = frozenset({"session_id"})
# JSON columns that hold ids; the others hold only contents of users.
_DOCUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "executions": ("asked",),
    "checkpoints": ("position", "writers", "inside"),
    "approvals": ("answer",),
    "rollbacks": ("superseded",),
    "events": ("data",),
}
_SPENT: Final = {"usd": 0.0, "tokens_in": 0, "tokens_out": 0}
_OF_SPENDING: Final = ("node_runs", "attempts", "calls")
# A paused sweep may have executions that workers are about to release.
_RELEASED: Final[Mapping[str, Mapping[str, str]]] = {
    "executions": {"running": "pending"},
    "node_runs": {"running": "failed"},
}


class NewIds:
    """Gives rows of a sweep new ids in the same order of time; each old id always becomes the same new one.

    Spent amounts are left out, because they were spent only once.

    Args:
        old: The id of the sweep.
        new: The id of the copy.
    """

    def __init__(self, old: str, new: str) -> None:
        self._new_ids = {old: new}
        self._prefixes: dict[str, str] = {}

    def row(self, table: str, columns: Mapping[str, TypeEngine[Any]], row: NewRow) -> Row:
        """Return a row of the copy.

        Args:
            table: Its table.
            columns: The types of the columns.
            row: The row of the original.
        """
        renamed = {
            name: self.of(field)
            if columns.get(name) is Id and isinstance(field, str) and name not in _NOT_RENAMED
            else field
            for name, field in row.items()
        }
        for name in _DOCUMENTS.get(table, ()):
            renamed[name] = self._within(renamed.get(name))
        if table in _OF_SPENDING:
            renamed |= _SPENT
        released, status = _RELEASED.get(table, {}), str(renamed.get("status"))
        return {**renamed, "status": released[status]} if status in released else renamed

    def of(self, id: str) -> str:
        """Return the new id of an old one."""
        if id in self._new_ids:
            return self._new_ids[id]
        if not _GENERATED.fullmatch(id):
            self._new_ids[id] = f"{id[:_TIME]}{random_text(25)}" if len(id) == _TIME + 5 else new_id()
            return self._new_ids[id]
        # Ids of a process differ only after a common prefix, so mapping the prefix needs no memory for each id.
        prefix = id[:_PREFIX]
        if prefix not in self._prefixes:
            self._prefixes[prefix] = f"{prefix[:_TIME]}{random_text(45)}"
        return f"{self._prefixes[prefix]}{id[_PREFIX:]}"

    def _within(self, part: Any) -> Any:
        """Return JSON with new ids for all known old ids."""
        if isinstance(part, str):
            is_known = part in self._new_ids or (_GENERATED.fullmatch(part) and part[:_PREFIX] in self._prefixes)
            return self.of(part) if is_known else part
        if isinstance(part, list):
            return [self._within(inner) for inner in part]
        if isinstance(part, dict):
            return {key: self._within(inner) for key, inner in part.items()}
        return part


ENDED: Final = ("completed", "failed", "cancelled", "paused")  # statuses of sweeps that can be copied
INTERRUPTED_S = 60.0  # after its last batch a copy counts as interrupted
_EVENTS = 1_000  # of a batch

# In the order of writing; for tables without a column of the sweep, the column that refers to a row with one.
_TABLES: Final[tuple[tuple[sa.Table, sa.Column[Any] | None], ...]] = (
    (combinations, None),
    (cases, None),
    (metrics, None),
    (executions, None),
    (checkpoints, None),
    (node_runs, None),
    (attempts, attempts.c.node_run_id),
    (calls, calls.c.node_run_id),
    (invocations, invocations.c.node_run_id),
    (decisions, decisions.c.checkpoint_id),
    (approvals, None),
    (awaiting, awaiting.c.approval_id),
    (rollbacks, None),
    (cells, None),
    (scores, None),
    (labels, None),
    (comments, None),
)
_OWNERS: Final = {
    attempts: node_runs,
    calls: node_runs,
    invocations: node_runs,
    decisions: checkpoints,
    awaiting: approvals,
}
# Columns that belong to a database: owners of rows, and positions in its log, whose events are copied as rows.
_LEFT_OUT: Final = frozenset(
    {
        *("owner_id", "lease_until", "created_transaction", "created_event", "started_transaction", "started_event"),
        *("ended_transaction", "ended_event", "children", "logged_transaction", "logged_event"),
    }
)
_EVENT: Final = ("sweep_id", "execution_id", "kind", "severity", "at", "data")
_OF_PLACE: Final = frozenset({"session_id"})
# Columns of the sweep that the other database decides; `notify` may hold secrets of this one.
_OWN: Final = frozenset({"session_id", "project", "token", "runner_id", "queued", "notify", "running_since"})


Write = Callable[[], AbstractContextManager[sa.Connection]]


@frozen
class Home:
    """The session and the project of a copy in the other database."""

    session: str
    project: str


def find_row(connection: sa.Connection, sweep_id: str) -> Row | None:
    """Return the row of a sweep, even an invisible one; None if there is none of this id."""
    return fetch_row(connection, sa.select(sweeps).where(sweeps.c.id == sweep_id))


def is_pool(connection: sa.Connection, sweep_id: str) -> bool:
    """Return whether a sweep is a pool."""
    query = sa.select(pooled.c.pool_id).where(pooled.c.pool_id == sweep_id).limit(1)
    return connection.execute(query).first() is not None


def digests_of_tables(connection: sa.Connection, sweep_id: str) -> dict[str, str]:
    """Return a digest of a sweep's rows for each table, without columns that belong to its database.

    Args:
        connection: In a transaction.
        sweep_id: The sweep.

    Returns:
        The digests by table; equal digests mean equal rows, whatever their order.
    """
    digests = {}
    for table, key in _TABLES:
        total = 0
        for batch in _rows(connection, table, key, sweep_id):
            for row in batch:
                content = {name: field for name, field in row.items() if name not in _OF_PLACE}
                # A sum of the rows' hashes does not depend on their order, which differs between the databases.
                total += int.from_bytes(hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).digest())
        digests[str(table.name)] = f"{total % 2**256:064x}"
    return digests


def begin_copy(database: Database, row: Row, graph: Row, home: Home) -> None:
    """Insert the row of a sweep, still invisible.

    Args:
        database: The target database.
        row: The row of `sweeps` from the other database.
        graph: The row of `workflows` from the other database.
        home: The session and project of the copy.

    Raises:
        ConflictError: If another process copies it, or did a moment ago.
        InputError: If the session was deleted.
    """
    with database.read() as connection:
        before = find_row(connection, row["id"])
        age = 0.0 if before is None else connection.scalar(sa.select(now() - before["created_at"])) or 0.0
    if before is not None:
        if age < INTERRUPTED_S:
            raise ConflictError(
                f"sweep {row['id']} is being copied, or its copy was interrupted a moment ago: "
                f"copy it again in {INTERRUPTED_S - age:.0f} s"
            )
        discard_submission(database, row["id"])
    with database.write() as connection:
        session_of_submission(connection, home.session)
        insert_missing(connection, workflows, [graph])
        columns = {name: field for name, field in row.items() if name not in _OWN}
        place = {"session_id": home.session, "project": home.project}
        insert_rows(connection, sweeps, [{**columns, **place, "status": "submitting"}])
        _renew(connection, row["id"])


def copy_rows(
    source: Database,
    connection: sa.Connection,
    write: Write,
    sweep_id: str,
    home: Home,
    report: Callable[[str], None],
    new_ids: NewIds | None = None,
) -> dict[str, int]:
    """Copy all rows of a sweep except its own, with the values that they name.

    Args:
        source: The source database.
        connection: A connection of it, in a transaction that sees one state.
        write: Begins a transaction of the target database, where `begin_copy` was called.
        sweep_id: The sweep.
        home: The session and project of the copy.
        report: Called with messages about the progress.
        new_ids: Gives the rows new ids; None to keep theirs.

    Returns:
        The numbers of rows by table, and of `values`.

    Raises:
        DamagedError: If a value is missing or damaged in the source.
        ConflictError: If the copy was discarded meanwhile.
    """
    counts: dict[str, int] = {}
    copied: set[str] = set()
    copy_id = sweep_id if new_ids is None else new_ids.of(sweep_id)
    for table, key in _TABLES:
        name = str(table.name)
        counts[name] = 0
        for batch in _rows(connection, table, key, sweep_id):
            digests = sorted({digest for row in batch for digest in named_values(name, row)} - copied)
            if new_ids is not None:
                batch = [new_ids.row(name, _types(table), row) for row in batch]
            with write() as out:
                # Each batch renews the time by which an interrupted copy is recognised.
                _renew(out, copy_id)
                insert_values(out, value_contents(source, connection, digests))
                insert_rows(out, table, [_moved(row, home) for row in batch])
            copied.update(digests)
            counts[name] += len(batch)
            report(f"{name}: {counts[name]:,} rows")
            point("copy.batch")
    log: Iterator[NewEvent] = (_event(row, home) for row in log_rows(connection, sweep_id))
    counts["events"] = 0
    while some := list(islice(log, _EVENTS)):
        if new_ids is not None:
            some = [cast("NewEvent", new_ids.row("events", _types(events), row)) for row in some]
        with write() as out:
            _renew(out, copy_id)
            insert_events(out, some)
        counts["events"] += len(some)
        report(f"events: {counts['events']:,} rows")
    return {**counts, "values": len(copied)}


def publish_copy(
    target: Database,
    row: Row,
    looked: Sequence[Row],
    home: Home,
    contents: Mapping[str, int],
    details: Mapping[str, Json],
) -> None:
    """Make a copy visible whose rows are all written.

    Args:
        target: The target database.
        row: The row of `sweeps` from the other database.
        looked: The rows of `looks` from the other database.
        home: The session and project of the copy.
        contents: The bytes of its files by digest.
        details: The data of the event `sweep.copied`.

    Raises:
        ConflictError: If the copy was discarded meanwhile.
    """
    with target.write() as connection:
        session_of_submission(connection, home.session)
        add_files(connection, home.session, contents.items())
        place = {"session_id": home.session, "project": home.project}
        insert_missing(connection, looks, [{**look, **place} for look in looked])
        add_event(connection, subject(home.session, row["id"]), "sweep.copied", details)
        # SQLite has no queue of workers.
        queued = bool(row["queued"]) and not target.is_sqlite
        _change(connection, row["id"], status=row["status"], created_at=row["created_at"], queued=queued)


@contextmanager
def one_state(database: Database) -> Iterator[tuple[sa.Connection, Write]]:
    """Begin a transaction that reads one state of a database, for a copy within it.

    Yields:
        Its connection, and a function that begins a transaction for the copy. A database in memory has one for both.
    """
    if database.is_sqlite and database.path is None:
        with database.write(long=True) as connection:
            yield connection, lambda: nullcontext(connection)
    else:
        with database.read(long=True) as connection:
            yield connection, database.write


def begin_renamed(database: Database, row: Row) -> None:
    """Insert the row of a copy beside its sweep, still invisible."""
    with database.write() as connection:
        session_of_submission(connection, row["session_id"])
        insert_rows(connection, sweeps, [{**row, "status": "submitting", "notify": None}])
        _renew(connection, row["id"])


def publish_renamed(connection: sa.Connection, row: Row, old_id: str, details: Mapping[str, Json]) -> None:
    """Make a copy beside its sweep visible whose rows are all written. It is a further look only once it is extended.

    Args:
        connection: In a transaction that writes.
        row: The row of `sweeps` of the copy.
        old_id: The id of the sweep.
        details: The data of the event `sweep.copied`.

    Raises:
        ConflictError: If the copy was discarded meanwhile.
    """
    session_of_submission(connection, row["session_id"])
    past = fetch_row(connection, sa.select(looks).where(looks.c.sweep_id == old_id))
    if past is not None:
        connection.execute(looks.insert().values({**past, "sweep_id": row["id"]}))
    add_event(connection, subject(row["session_id"], row["id"]), "sweep.copied", details)
    _change(connection, row["id"], **{name: row[name] for name in ("status", "created_at", "notify")})


def looks_of(connection: sa.Connection, sweep_id: str) -> list[Row]:
    """Return the looks of a sweep: the present one, and those before its extensions."""
    mine = sa.or_(looks.c.sweep_id == sweep_id, looks.c.extended_id == sweep_id)
    return fetch_rows(connection, sa.select(looks).where(mine).order_by(looks.c.at))


def graph_of(connection: sa.Connection, workflow_id: str) -> Row:
    """Return the row of a workflow."""
    row = fetch_row(connection, sa.select(workflows).where(workflows.c.id == workflow_id))
    assert row is not None, "a foreign key"
    return row


def snapshots_of(connection: sa.Connection, sweep_id: str) -> list[str]:
    """Return the digests of the snapshots of files that the rows of a sweep name."""
    named = [
        sa.select(table.c.workspace).where(table.c.sweep_id == sweep_id, table.c.workspace.is_not(None))
        for table in (cases, checkpoints, node_runs)
    ]
    return sorted(connection.scalars(sa.union(*named)))


def sizes_of(connection: sa.Connection, session_id: str, digests: Sequence[str]) -> dict[str, int]:
    """Return the bytes of the files that a session has noted, by digest."""
    sizes: dict[str, int] = {}
    noted = sa.select(files.c.digest, files.c.size).where(files.c.session_id == session_id)
    for part in parts(sorted(digests)):
        sizes |= {row.digest: row.size for row in connection.execute(noted.where(files.c.digest.in_(part)))}
    return sizes


def _rows(
    connection: sa.Connection, table: sa.Table, key: sa.Column[Any] | None, sweep_id: str
) -> Iterator[Sequence[Row]]:
    """Read the rows of a table that belong to a sweep, in batches that fit into memory."""
    columns = [column for column in table.columns if column.name not in _LEFT_OUT]
    query = sa.select(*columns)
    if key is None:
        query = query.where(table.c.sweep_id == sweep_id)
    else:
        owner = _OWNERS[table]
        query = query.join(owner, owner.c.id == key).where(owner.c.sweep_id == sweep_id)
    names = [str(column.name) for column in columns]
    streamed = connection.execution_options(yield_per=_EVENTS).execute(query)
    for batch in in_batches(streamed):
        yield [dict(zip(names, row, strict=True)) for row in batch]


def _types(table: sa.Table) -> dict[str, TypeEngine[Any]]:
    return {str(column.name): column.type for column in table.columns}


def _moved(row: Row, home: Home) -> Row:
    return {**row, "session_id": home.session} if "session_id" in row else row


def _event(row: NewRow, home: Home) -> Any:
    return {**{name: row[name] for name in _EVENT}, "session_id": home.session}


def _renew(connection: sa.Connection, sweep_id: str) -> None:
    _change(connection, sweep_id, created_at=now())


def _change(connection: sa.Connection, sweep_id: str, **changed: Any) -> None:
    query = sweeps.update().where(sweeps.c.id == sweep_id, sweeps.c.status == "submitting").values(changed)
    if not connection.execute(query).rowcount:
        raise ConflictError(f"the copy of sweep {sweep_id} seemed interrupted and was discarded; copy it again")
