"""One flush: everything that a runner buffered, in one transaction that begins by asking for its leases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.core.status import CELL, OPEN_EXECUTIONS, sources
from wtb.store.bulk import insert_missing, insert_rows, insert_values, parts, together, update_rows
from wtb.store.control.approvals import ask
from wtb.store.control.edits import grant
from wtb.store.control.executions import stopped_in
from wtb.store.database import Database
from wtb.store.database_errors import was_deadlock
from wtb.store.limits.reservations import forget, settle
from wtb.store.log import take_positions
from wtb.store.runs.batch import Batch
from wtb.store.tables.checkpoints import NewCheckpoint
from wtb.store.tables.executions import AskedRow, NewExecution
from wtb.store.tables.node_runs import Logged, NewNodeRun
from wtb.store.tables.results import HeldCell, NewScore, Outcome
from wtb.store.tables.schema import (
    attempts,
    calls,
    cells,
    checkpoints,
    decisions,
    events,
    executions,
    files,
    invocations,
    metrics,
    node_runs,
    now,
    scores,
)

RowT = TypeVar("RowT")
LoggedT = TypeVar("LoggedT", bound=Logged)


Change = tuple[str, NewExecution | NewNodeRun]  # an id, and the columns of its row that change


@frozen
class _Places:
    """Where the events of a batch stand in the log: the number of the transaction, and their ids by number."""

    transaction: int
    ids: Sequence[int]

    def execution(self, row: NewExecution) -> NewExecution:
        """The row, or what changes of it, with the position of the last event that it says."""
        if (number := row.get("ended_event")) is None:
            return row
        return {**row, "ended_transaction": self.transaction, "ended_event": self.ids[number]}

    def checkpoint(self, row: NewCheckpoint) -> NewCheckpoint:
        """The row with the position of what it says."""
        if (number := row.get("created_event")) is None:
            return row
        return {**row, "created_transaction": self.transaction, "created_event": self.ids[number]}

    def call(self, row: LoggedT) -> LoggedT:
        """The row of a call with its position."""
        placed = row.copy()
        placed["logged_transaction"], placed["logged_event"] = self.transaction, self.ids[row["logged_event"] or 0]
        return placed

    def node_run(self, row: NewNodeRun) -> NewNodeRun:
        """The row, or what changes of it, with the positions of what it says."""
        placed = row.copy()
        if (number := row.get("started_event")) is not None:
            placed["started_transaction"], placed["started_event"] = self.transaction, self.ids[number]
        elif row.get("started_transaction") is not None:
            placed["started_transaction"] = self.transaction
        if (number := row.get("ended_event")) is not None:
            placed["ended_transaction"], placed["ended_event"] = self.transaction, self.ids[number]
        return placed


def flush(database: Database, batch: Batch, lease_s: float, sent: Callable[[], None] = lambda: None) -> set[str]:
    """Write a batch in one transaction.

    Args:
        database: The database.
        batch: What a runner has done since its last flush.
        lease_s: Seconds for which the leases of its executions are renewed.
        sent: Called when the database has all rows and only its answer is waited for.

    Returns:
        The executions that lost their lease; nothing of theirs was written.

    Raises:
        ConflictError: If the lease of an execution is gone because this runner itself ended it; nothing was written.
        StoreError: If the database is out of reach or full; nothing was written.
    """
    try:
        return _flush(database, batch, lease_s, sent)
    except StoreError as error:
        if not was_deadlock(error):
            raise
    # Leases are locked as the table has them, which may not be the order of others: who gave way goes again.
    return _flush(database, batch, lease_s, sent)


def _flush(database: Database, batch: Batch, lease_s: float, sent: Callable[[], None]) -> set[str]:
    with database.write() as connection:
        asked, until = _renew(connection, batch.leases, lease_s)
        gone = batch.lost(asked)
        if gone:
            _reject_rows_after_the_end(connection, {id: batch.leases[id] for id in batch.leases.keys() & gone})
        is_stopped = _stopped(connection, _held(batch.outcomes, gone))
        granted = _grants(batch, {id: wanted for id, wanted in asked.items() if wanted is not None})
        places = _Places(*take_positions(connection, batch.events)) if batch.events else _Places(0, ())
        with together(connection):
            insert_values(connection, sorted(batch.values.items()))
            insert_missing(connection, metrics, batch.metrics)
            # In one order for all, so that two transactions never wait for each other.
            kept = sorted((row for id, row in batch.files if id not in gone), key=lambda row: str(row["digest"]))
            insert_missing(connection, files, kept)
            insert_rows(
                connection, checkpoints, [places.checkpoint(row) for id, row in batch.checkpoints if id not in gone]
            )
            begun = [places.node_run(row) for id, row in batch.node_runs.values() if id not in gone]
            insert_rows(connection, node_runs, begun)
            changes = [
                (key, places.node_run(row)) for key, (id, row) in batch.node_run_changes.items() if id not in gone
            ]
            _update(connection, node_runs, changes)
            # After their checkpoints and node runs: a trigger compares those that are born completed with them.
            born = [places.execution(_leased(row, until)) for id, row in batch.born.items() if id not in gone]
            insert_rows(connection, executions, born)
            tried = [(key, row) for key, (id, row) in batch.attempts.items() if id not in gone]
            insert_rows(connection, attempts, [row for key, row in tried if key not in batch.again])
            again = [row for key, row in tried if key in batch.again]
            update_rows(connection, attempts, again, ("node_run_id", "number"))
            happened = [{**row, "id": places.ids[number]} for id, number, row in batch.happened if id not in gone]
            insert_rows(connection, events, happened)
            insert_rows(connection, calls, [places.call(row) for row in _held(batch.calls, gone)])
            insert_rows(connection, invocations, [places.call(row) for row in _held(batch.invocations, gone)])
            insert_rows(connection, decisions, _held(batch.decisions, gone))
            insert_rows(connection, scores, [row for row in _held(batch.scores, gone) if not is_stopped(row)])
            _finish_cells(connection, [row for row in _held(batch.outcomes, gone) if not is_stopped(row)])
            _hold_cells(connection, _held(batch.held, gone))
            changed = [(id, places.execution(row)) for id, row in batch.changed.items() if id not in gone]
            _update(connection, executions, changed)
            sent()
        if questions := [(id, row) for id, row in batch.questions if id not in gone]:
            ask(connection, questions)
        grant(connection, granted)
        if settled := [row for id, row in batch.settled if id not in gone]:
            settle(connection, settled)
        batch.released.update(row["id"] for id, row in batch.settled if id in gone and row["left"] is None)
        if batch.released:
            forget(connection, sorted(batch.released))
        point("journal.writing")
    point("journal.committed")
    return gone


def _stopped(connection: sa.Connection, outcomes: Sequence[Outcome]) -> Callable[[Outcome | NewScore], bool]:
    """Return whether a row is of a combination that somebody stopped, of which the runner may not know yet."""
    if not outcomes:
        return lambda row: False
    stopped = stopped_in(connection, {row["sweep_id"] for row in outcomes})
    return lambda row: row["combination"] in stopped.get(row["sweep_id"], ())


def _held(rows: Iterable[tuple[str, RowT]], gone: Collection[str]) -> list[RowT]:
    """The rows of executions that still hold their lease."""
    return [row for id, row in rows if id not in gone]


def _renew(
    connection: sa.Connection, leases: dict[str, int], lease_s: float
) -> tuple[dict[str, AskedRow | None], float]:
    """Renew leases, and lock their executions.

    Returns those that are still ours, with what a person asks of each, and until when the leases are, by the clock of
    the database; 0 if none is ours.
    """
    answered: dict[str, AskedRow | None] = {}
    until = 0.0
    on_sqlite = connection.dialect.name == "sqlite"
    for part in parts(sorted(leases.items())):  # one order for all, so that two flushes never wait for each other
        for row in connection.execute(_renewal(on_sqlite), {"lease_s": lease_s, **_pairs(part, on_sqlite)}):
            answered[row.id], until = row.asked, row.lease_until
    return answered, until


@cache  # making it takes longer than executing it
def _renewal(on_sqlite: bool) -> sa.Executable:
    # The fence: where somebody took an execution away, its token is another one, and nothing of ours is written. The
    # rows stay locked until the commit, so nobody takes one away between this check and what is written after it.
    # The empty text keeps PostgreSQL from the index of those that run. It takes these to be few, but the index has an
    # entry for each time that any lease was renewed since it was last cleaned.
    runs = executions.c.status.concat("") == "running"
    return (
        sa.update(executions)
        .where(_are_held(on_sqlite), runs)
        .values(lease_until=now() + sa.bindparam("lease_s", type_=sa.Double()))
        .returning(executions.c.id, executions.c.asked, executions.c.lease_until)
    )


def _reject_rows_after_the_end(connection: sa.Connection, lost_leases: Mapping[str, int]) -> None:
    """Raise ConflictError if an execution lost its lease without anyone taking it: this runner ended it too early.

    Whoever takes an execution changes its token. One that has ended under an unchanged token was ended by this runner,
    from another journal, and dropping what this journal still has of it would lose results silently.
    """
    on_sqlite = connection.dialect.name == "sqlite"
    query = sa.select(executions.c.id, executions.c.status).where(_are_held(on_sqlite))
    for part in parts(sorted(lost_leases.items())):
        found = connection.execute(query, _pairs(part, on_sqlite))
        if ended := [(id, status) for id, status in found if status not in OPEN_EXECUTIONS]:
            id, status = min(ended)
            raise ConflictError(
                f"execution {id} is {status}, but its runner has rows of it that are not committed yet. "
                "This is a fault of WTB: report it, and run `wtb doctor` to find affected cells."
            )


def _are_held(on_sqlite: bool) -> sa.ColumnElement[bool]:
    """Whether the id and the token of an execution are a pair of those that `_pairs` gives."""
    if on_sqlite:
        # The ids by themselves too: it reads the whole table for pairs alone.
        pairs = sa.tuple_(executions.c.id, executions.c.token).in_(sa.bindparam("pairs", expanding=True))
        return sa.and_(executions.c.id.in_(sa.bindparam("ids", expanding=True)), pairs)
    # Two arrays, however many they are: as parameters one by one they took the client six times as long.
    ids = sa.bindparam("ids", type_=sa.ARRAY(sa.String))
    given = ids, sa.bindparam("tokens", type_=sa.ARRAY(sa.BigInteger))
    held = sa.func.unnest(*given).table_valued("id", "token", name="held").render_derived()
    return sa.and_(executions.c.id == held.c.id, executions.c.token == held.c.token)


def _pairs(leases: Sequence[tuple[str, int]], on_sqlite: bool) -> dict[str, Any]:
    """The parameters of `_are_held`."""
    ids = [id for id, _ in leases]
    return {"ids": ids, "pairs": leases} if on_sqlite else {"ids": ids, "tokens": [token for _, token in leases]}


def _grants(batch: Batch, asked: dict[str, AskedRow]) -> list[str]:
    """Pass requests of people on to the executions that one forked into meanwhile.

    Returns the executions that this batch releases: their requests can be granted.
    """
    for child, row in batch.born.items():  # in order of birth
        if (wanted := asked.get(batch.parents[child])) is not None:
            asked[child] = wanted
            if row["status"] in ("running", "pending", "waiting"):
                row["asked"] = wanted
    granted = []
    for id, wanted in asked.items():
        change = batch.born.get(id) or batch.changed.get(id, {})
        if change.get("status") in ("pending", "waiting"):
            change["asked"] = wanted
            granted.append(id)
    return granted


def _leased(row: NewExecution, until: float) -> NewExecution:
    """The row of an execution that was born: one that is still claimed gets the lease of those that were renewed.

    That it has one from its first version on spares a second version, and that what it refers to is checked again.
    """
    return {**row, "lease_until": until} if row["status"] == "running" else row


def _update(connection: sa.Connection, table: sa.Table, changes: Iterable[Change]) -> None:
    by_columns: dict[tuple[str, ...], list[Change]] = {}
    for key, row in changes:
        by_columns.setdefault(tuple(row), []).append((key, row))
    for some in by_columns.values():
        rows = [{**row, "id": key} for key, row in some]
        # The fencing tokens decided whose executions these are; the table of transitions decides what may change.
        update_rows(connection, table, rows, ("id",), only={"status": OPEN_EXECUTIONS} if table is executions else None)


def _finish_cells(connection: sa.Connection, rows: list[Outcome]) -> None:
    key = ("sweep_id", "case_number", "repeat", "combination")
    by_status: dict[str, list[Outcome]] = {}
    for row in rows:
        by_status.setdefault(row["status"], []).append(row)
    for status, members in by_status.items():
        update_rows(connection, cells, members, key, only={"status": sources(CELL, status)}, stamp="finished_at")


def _hold_cells(connection: sa.Connection, rows: list[HeldCell]) -> None:
    for status in ("waiting", "pending"):
        members = [row for row in rows if row["status"] == status]
        if members:
            key = ("sweep_id", "case_number", "repeat", "combination")
            # Cells that have ended stay so, such as those of a combination that was stopped meanwhile.
            update_rows(connection, cells, members, key, only={"status": ("pending", "running", "waiting")})
