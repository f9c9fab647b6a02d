"""One flush: all rows that a runner buffered, in one transaction that begins by renewing its leases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.core.frozen import frozen
from wtb.core.status import CELL, OPEN_EXECUTIONS, sources
from wtb.store.access.reservations import forget, settle
from wtb.store.bulk import insert_missing, insert_rows, insert_values, parts, together, update_rows
from wtb.store.cell_status import CELL_KEY
from wtb.store.control.approvals import ask
from wtb.store.control.edits import grant
from wtb.store.control.executions import stopped_in
from wtb.store.database import Database
from wtb.store.database_url import was_deadlock
from wtb.store.log import take_positions
from wtb.store.runs.batch import Batch
from wtb.store.tables.executions import AskedRow, NewCheckpoint, NewExecution
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
    """The positions of a batch's events in the log: the number of the transaction, and their ids by number."""

    transaction: int
    ids: Sequence[int]

    def execution(self, row: NewExecution) -> NewExecution:
        """Return the row, or its changes, with the position of the last event that it stands for."""
        if (number := row.get("ended_event")) is None:
            return row
        return {**row, "ended_transaction": self.transaction, "ended_event": self.ids[number]}

    def checkpoint(self, row: NewCheckpoint) -> NewCheckpoint:
        """Return the row with the position of its event."""
        if (number := row.get("created_event")) is None:
            return row
        return {**row, "created_transaction": self.transaction, "created_event": self.ids[number]}

    def call(self, row: LoggedT) -> LoggedT:
        """Return the row of a call with its position."""
        placed = row.copy()
        placed["logged_transaction"], placed["logged_event"] = self.transaction, self.ids[row["logged_event"] or 0]
        return placed

    def node_run(self, row: NewNodeRun) -> NewNodeRun:
        """Return the row, or its changes, with the positions of its events."""
        placed = row.copy()
        if (number := row.get("started_event")) is not None:
            placed["started_transaction"], placed["started_event"] = self.transaction, self.ids[number]
        # A start that was moved to the position of the end has a transaction, and no id of its own: see `Batch`.
        elif row.get("started_transaction") is not None:
            placed["started_transaction"] = self.transaction
        if (number := row.get("ended_event")) is not None:
            placed["ended_transaction"], placed["ended_event"] = self.transaction, self.ids[number]
        return placed


# After so many deadlocks in a row, the next one is an error. The second can come before the other transaction, which
# the first one freed, has woken up.
_DEADLOCKS = 3


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
    for _ in range(_DEADLOCKS):
        try:
            return _flush(database, batch, lease_s, sent)
        except StoreError as error:
            if not was_deadlock(error):
                raise
        # Leases are locked in the order of the table, which may differ from that of others. PostgreSQL ended this one.
    return _flush(database, batch, lease_s, sent)


def _flush(database: Database, batch: Batch, lease_s: float, sent: Callable[[], None]) -> set[str]:
    with database.write() as connection:
        # Before all else: the locks last until the commit, so a lease that is renewed here covers everything below.
        requests, until = _renew(connection, batch.leases, lease_s)
        lost = batch.lost(requests)
        if lost:
            _reject_rows_after_the_end(connection, {id: batch.leases[id] for id in batch.leases.keys() & lost})
        is_stopped = _stopped(connection, _still_leased(batch.outcomes, lost))
        granted = _grants(batch, {id: request for id, request in requests.items() if request is not None})
        places = _Places(*take_positions(connection, batch.events)) if batch.events else _Places(0, ())
        with together(connection):
            insert_values(connection, sorted(batch.values.items()))
            insert_missing(connection, metrics, batch.metrics)
            # In one order for all, so that two transactions never wait for each other.
            file_rows = sorted((row for id, row in batch.files if id not in lost), key=lambda row: str(row["digest"]))
            insert_missing(connection, files, file_rows)
            insert_rows(
                connection, checkpoints, [places.checkpoint(row) for id, row in batch.checkpoints if id not in lost]
            )
            new_node_runs = [places.node_run(row) for id, row in batch.node_runs.values() if id not in lost]
            insert_rows(connection, node_runs, new_node_runs)
            changes = [
                (key, places.node_run(row)) for key, (id, row) in batch.node_run_changes.items() if id not in lost
            ]
            _update(connection, node_runs, changes)
            # After their checkpoints and node runs: a trigger compares those that are born completed with them.
            born = [places.execution(_leased(row, until)) for id, row in batch.born.items() if id not in lost]
            insert_rows(connection, executions, born)
            attempt_rows = [(key, row) for key, (id, row) in batch.attempts.items() if id not in lost]
            insert_rows(connection, attempts, [row for key, row in attempt_rows if key not in batch.repeated_attempts])
            repeated = [row for key, row in attempt_rows if key in batch.repeated_attempts]
            update_rows(connection, attempts, repeated, ("node_run_id", "number"))
            new_events = [{**row, "id": places.ids[number]} for id, number, row in batch.new_events if id not in lost]
            insert_rows(connection, events, new_events)
            insert_rows(connection, calls, [places.call(row) for row in _still_leased(batch.calls, lost)])
            insert_rows(connection, invocations, [places.call(row) for row in _still_leased(batch.invocations, lost)])
            insert_rows(connection, decisions, _still_leased(batch.decisions, lost))
            insert_rows(connection, scores, [row for row in _still_leased(batch.scores, lost) if not is_stopped(row)])
            _finish_cells(connection, [row for row in _still_leased(batch.outcomes, lost) if not is_stopped(row)])
            _hold_cells(connection, _still_leased(batch.held, lost))
            changed = [(id, places.execution(row)) for id, row in batch.changed.items() if id not in lost]
            _update(connection, executions, changed)
            sent()
        # Outside of the pipeline: these read rows that it has written.
        if questions := [(id, row) for id, row in batch.questions if id not in lost]:
            ask(connection, questions)
        grant(connection, granted)
        if settlements := [row for id, row in batch.settled if id not in lost]:
            settle(connection, settlements)
        batch.released.update(row["id"] for id, row in batch.settled if id in lost and row["left"] is None)
        if batch.released:
            forget(connection, sorted(batch.released))
        point("journal.writing")
    point("journal.committed")
    return lost


def _stopped(connection: sa.Connection, outcomes: Sequence[Outcome]) -> Callable[[Outcome | NewScore], bool]:
    """Return a predicate for rows of combinations that were stopped, which the runner may not have noticed yet."""
    if not outcomes:
        return lambda row: False
    stopped = stopped_in(connection, {row["sweep_id"] for row in outcomes})
    return lambda row: row["combination"] in stopped.get(row["sweep_id"], ())


def _still_leased(rows: Iterable[tuple[str, RowT]], lost: Collection[str]) -> list[RowT]:
    """Return the rows of executions that still hold their lease."""
    return [row for id, row in rows if id not in lost]


def _renew(
    connection: sa.Connection, leases: dict[str, int], lease_s: float
) -> tuple[dict[str, AskedRow | None], float]:
    """Renew leases, and lock their executions.

    Returns:
        The executions whose lease was renewed, each with the request that a person made of it, and the new expiry by
        the clock of the database; 0 if none was renewed.
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
    # The fence: if somebody took an execution away, its token has changed, and none of its rows are written. The
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
    """Raise ConflictError if this runner itself ended an execution too early, so that its lease could not be renewed.

    Every claim changes the token. An execution that has ended under an unchanged token was ended by this runner, from
    another journal, and dropping the remaining rows of this journal would lose results silently.
    """
    on_sqlite = connection.dialect.name == "sqlite"
    query = sa.select(executions.c.id, executions.c.status).where(_are_held(on_sqlite))
    for part in parts(sorted(lost_leases.items())):
        rows = connection.execute(query, _pairs(part, on_sqlite))
        if ended := [(id, status) for id, status in rows if status not in OPEN_EXECUTIONS]:
            id, status = min(ended)
            raise ConflictError(
                f"execution {id} is {status}, but its runner has rows of it that are not committed yet. "
                "This is a fault of WTB: report it, and run `wtb doctor` to find affected cells."
            )


def _are_held(on_sqlite: bool) -> sa.ColumnElement[bool]:
    """Return the condition that id and token of an execution are one of the pairs of `_pairs`."""
    if on_sqlite:
        # The ids by themselves too: it reads the whole table for pairs alone.
        pairs = sa.tuple_(executions.c.id, executions.c.token).in_(sa.bindparam("pairs", expanding=True))
        return sa.and_(executions.c.id.in_(sa.bindparam("ids", expanding=True)), pairs)
    # Two arrays, however many they are: as parameters one by one they took the client six times as long.
    ids = sa.bindparam("ids", type_=sa.ARRAY(sa.String))
    arrays = ids, sa.bindparam("tokens", type_=sa.ARRAY(sa.BigInteger))
    leases = sa.func.unnest(*arrays).table_valued("id", "token", name="held").render_derived()
    return sa.and_(executions.c.id == leases.c.id, executions.c.token == leases.c.token)


def _pairs(leases: Sequence[tuple[str, int]], on_sqlite: bool) -> dict[str, Any]:
    """Return the parameters of `_are_held`."""
    ids = [id for id, _ in leases]
    return {"ids": ids, "pairs": leases} if on_sqlite else {"ids": ids, "tokens": [token for _, token in leases]}


def _grants(batch: Batch, requests: dict[str, AskedRow]) -> list[str]:
    """Pass requests of people on to the executions that one forked into meanwhile.

    Returns the executions that this batch releases: their requests can be granted.
    """
    # The request is in the parent's row, and a fork that was born meanwhile has none: it would run on.
    for child, row in batch.born.items():  # in order of birth
        if (request := requests.get(batch.parents[child])) is not None:
            requests[child] = request
            if row["status"] in ("running", "pending", "waiting"):
                row["asked"] = request
    granted = []
    for id, request in requests.items():
        change = batch.born.get(id) or batch.changed.get(id, {})
        if change.get("status") in ("pending", "waiting"):
            change["asked"] = request
            granted.append(id)
    return granted


def _leased(row: NewExecution, until: float) -> NewExecution:
    """Return the row of an execution that was born; a claimed one gets the expiry of the renewed leases.

    With a lease in its first version, the row needs no second version, and its foreign keys are checked once.
    """
    return {**row, "lease_until": until} if row["status"] == "running" else row


def _update(connection: sa.Connection, table: sa.Table, changes: Iterable[Change]) -> None:
    by_columns: dict[tuple[str, ...], list[Change]] = {}
    for key, row in changes:
        # An UPDATE of many rows sets the same columns in all of them.
        by_columns.setdefault(tuple(row), []).append((key, row))
    for some in by_columns.values():
        rows = [{**row, "id": key} for key, row in some]
        # The fencing tokens decided whose executions these are; the table of transitions decides what may change.
        update_rows(connection, table, rows, ("id",), only={"status": OPEN_EXECUTIONS} if table is executions else None)


def _finish_cells(connection: sa.Connection, rows: list[Outcome]) -> None:
    by_status: dict[str, list[Outcome]] = {}
    for row in rows:
        by_status.setdefault(row["status"], []).append(row)
    for status, members in by_status.items():
        # Cells with an outcome that cannot change, such as cancelled ones, keep it.
        update_rows(connection, cells, members, CELL_KEY, only={"status": sources(CELL, status)}, stamp="finished_at")


def _hold_cells(connection: sa.Connection, rows: list[HeldCell]) -> None:
    for status in ("waiting", "pending"):
        members = [row for row in rows if row["status"] == status]
        if members:
            # Cells that have ended stay so, such as those of a combination that was stopped meanwhile.
            update_rows(connection, cells, members, CELL_KEY, only={"status": ("pending", "running", "waiting")})
