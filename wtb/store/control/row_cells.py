"""The cells of new combinations, the executions that stand for them, and those that wait for running executions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import StoreError
from wtb.core.ids import new_ids
from wtb.core.tree.stored_spec import extensions
from wtb.store.bulk import fetch_record, fetch_records, insert_rows, update_rows
from wtb.store.cell_status import CELL_KEY
from wtb.store.control.fork_points import ForkPoints, NewRow, Pair, Start, nearest_origins
from wtb.store.database import Database
from wtb.store.database_url import gave_way
from wtb.store.read.queries import select_sweeps
from wtb.store.runs.queue import is_open
from wtb.store.tables.executions import ExecutionRow, NewExecution
from wtb.store.tables.results import NewCell
from wtb.store.tables.schema import cells, combinations, executions, sweeps
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import clock

QueueFor = Callable[[Sequence[str] | None], str | None]

_ENDED = {
    "failed": "failed",
    "set_aside": "failed",
    "cancelled": "cancelled",
    "skipped": "cancelled",
}  # cell: execution


@dataclass
class Begun:
    """The cells that were added.

    Attributes:
        pending: Ids of the executions that run.
        cells: The number of cells.
        failed: How many of them failed like the cell of another row, which never reached a node that differs.
        deferred: How many of them begin once running executions have reached a node that differs.
        node_runs: How many node runs the base cells took from there on.
    """

    pending: list[str] = field(default_factory=list)
    cells: int = 0
    failed: int = 0
    deferred: int = 0
    node_runs: int = 0


class RowCells:
    """Makes the executions and cells of new combinations; cells that begin at one checkpoint share an execution.

    Args:
        connection: In the transaction that adds them.
        sweep: The row of the sweep.
        queue_for: Returns the queue of a step with some nodes.
        counts: Counts the added cells.
        share: Whether cells share executions.
        queues: The queues of nodes that name one, by node.
        are_present: Whether the cells exist already, and have been deferred.
    """

    def __init__(
        self,
        connection: sa.Connection,
        sweep: SweepRow,
        queue_for: QueueFor,
        counts: Begun,
        *,
        share: bool,
        queues: Mapping[str, str],
        are_present: bool = False,
    ) -> None:
        self._connection, self._sweep, self._queue_for, self._counts = connection, sweep, queue_for, counts
        self._share, self._queues, self._are_present = share, queues, are_present
        self._at = clock(connection)
        self._drafts: list[tuple[NewExecution, NewCell]] = []  # no ids yet; a cell has what all share
        self._joined: dict[str, list[int]] = {}
        self._cells: list[NewCell] = []

    def add(self, pair: Pair, numbers: Sequence[int], starts: Sequence[Start]) -> None:
        """Add the cells of a case and a repeat."""
        groups: dict[str | None, tuple[NewExecution, NewCell]] = {}
        deferred: tuple[NewExecution, NewCell] | None = None
        for number, start in zip(numbers, starts, strict=True):
            self._counts.node_runs += start.node_runs
            if start.joins is not None:
                self._join(pair, number, start)
                continue
            if start.failed is not None:
                self._drafts.append(self._failed_alike(pair, number, start))
                self._counts.failed += 1
                continue
            if start.is_deferred:
                self._counts.deferred += 1
                if deferred is None:
                    deferred = self._pending(pair, number, start)
                    # The queues travel with the row, because the process that begins it later has no workflow at hand.
                    deferred[0]["deferred"] = self._queues
                    self._drafts.append(deferred)
                else:
                    deferred[0]["combinations"].append(number)
                continue
            head = None if start.head is None else start.head.id
            if self._share and head in groups:
                groups[head][0]["combinations"].append(number)
                continue
            groups[head] = self._pending(pair, number, start)
            self._drafts.append(groups[head])

    def write(self) -> None:
        """Insert the added executions and cells."""
        # Ids are given now, in one go, so that they sort in the order in which the cells were added.
        ids = new_ids(len(self._drafts))
        for place, (execution, cell) in enumerate(self._drafts):
            execution["id"] = ids[place]
            if execution["status"] == "pending" and "deferred" not in execution:
                self._counts.pending.append(ids[place])
            for combination in execution["combinations"]:
                self._cells.append({**cell, "combination": combination, "execution_id": ids[place]})
        insert_rows(self._connection, executions, _alike([execution for execution, _ in self._drafts]))
        if self._are_present:
            update_rows(self._connection, cells, _alike(self._cells), CELL_KEY, only={"status": ("pending",)})
        else:
            insert_rows(self._connection, cells, _alike(self._cells))
        for id, numbers in self._joined.items():
            before = self._connection.scalar(sa.select(executions.c.combinations).where(executions.c.id == id))
            joined = executions.update().where(executions.c.id == id).values(combinations=[*(before or ()), *numbers])
            self._connection.execute(joined)
        self._counts.cells += 0 if self._are_present else len(self._cells)

    def _join(self, pair: Pair, number: int, start: Start) -> None:
        """Let an execution stand for another cell."""
        execution = start.joins
        assert execution is not None
        self._joined.setdefault(execution.id, []).append(number)
        if execution.id not in self._counts.pending and execution.status == "pending":
            self._counts.pending.append(execution.id)
        # The cell has the status of the others of its execution; running ones are pending in their rows.
        status = "waiting" if execution.status == "waiting" else "pending"
        cell = self._cell(pair, status, edited=execution.edited)
        self._cells.append({**cell, "combination": number, "execution_id": execution.id})

    def _cell(self, pair: Pair, status: str, *, edited: bool) -> NewCell:
        return {  # type: ignore[typeddict-item]  # what is missing is known when it is written
            "sweep_id": self._sweep.id,
            "case_number": pair[0],
            "repeat": pair[1],
            "status": status,
            "edited": edited,
        }

    def _execution(self, pair: Pair, number: int, origin: str) -> NewExecution:
        return {
            "session_id": self._sweep.session_id,
            "sweep_id": self._sweep.id,
            "origin": origin,
            "case_number": pair[0],
            "repeat": pair[1],
            "combinations": [number],
            "created_at": self._at,
        }

    def _pending(self, pair: Pair, number: int, start: Start) -> tuple[NewExecution, NewCell]:
        """Return an execution and a cell that continue from the end of a line, or begin with the case."""
        head = start.head
        execution = self._execution(pair, number, "root" if head is None else "fork")
        queue = self._queue_for(None if head is None else head.position["next"])
        execution |= {
            "status": "pending",
            "head_id": None if head is None else head.id,
            "queue": queue,
            "edited": start.edited,
        }
        return execution, self._cell(pair, "pending", edited=start.edited)

    def _failed_alike(self, pair: Pair, number: int, start: Start) -> tuple[NewExecution, NewCell]:
        """Return an execution and a cell that ended like those of the base, before they reached a node that differs."""
        base = start.failed
        assert base is not None
        edited = bool(base.edited)
        execution = self._execution(pair, number, "fork")
        execution |= {"status": _ENDED[base.status], "head_id": base.head_id, "edited": edited}
        execution |= {"failure": base.failure, "finished_at": self._at}
        cell = self._cell(pair, base.status, edited=edited)
        cell |= {"elapsed_s": base.elapsed_s, "usd": base.usd, "node_runs": base.node_runs, "failure": base.failure}
        cell |= {"tokens_in": base.tokens_in, "tokens_out": base.tokens_out, "finished_at": self._at}
        return execution, cell


def _alike(rows: Sequence[NewExecution] | Sequence[NewCell]) -> list[dict[str, Any]]:
    """Return rows with the same columns, as one statement requires."""
    names = dict.fromkeys(name for row in rows for name in row)
    defaults = {"edited": False}
    return [{name: row.get(name, defaults.get(name)) for name in names} for row in rows]


AT_START = ""  # stands for the first nodes, among the queues of nodes
_is_deferred = sa.and_(executions.c.deferred.is_not(None), executions.c.status == "pending")


def open_with_deferred(database: Database) -> list[str]:
    """Return the sweeps that workers run and that have deferred cells."""
    query = sa.select(executions.c.sweep_id).join(sweeps, sweeps.c.id == executions.c.sweep_id)
    return database.scalars(query.where(_is_deferred, is_open()).distinct().order_by(executions.c.sweep_id))


def begin_deferred(database: Database, sweep_id: str) -> int:
    """Begin the deferred cells of a sweep whose executions have reached the first node that differs, or have ended.

    Several processes may call it at once. If it gets in the way of others, it does nothing, and is called again.

    Args:
        database: The database of the sweep.
        sweep_id: The sweep.

    Returns:
        The number of cells that began, including those that failed like their base.
    """
    # Most sweeps have no deferred cells, and reading that takes no locks.
    some = sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id, _is_deferred).limit(1)
    if database.scalar(some) is None:
        return 0
    try:
        with database.write(long=True) as connection:
            return _begin(connection, sweep_id)
    except StoreError as error:
        if not gave_way(error):
            raise
        # The locks of running executions are taken here, so a deadlock with a
        # flush is possible. The scheduler calls again.
        return 0


def _begin(connection: sa.Connection, sweep_id: str) -> int:
    query = sa.select(executions).where(executions.c.sweep_id == sweep_id, _is_deferred).order_by(executions.c.id)
    # Executions that another process is about to begin are locked.
    deferred = fetch_records(connection, ExecutionRow, query.with_for_update(skip_locked=True))
    sweep = fetch_record(connection, SweepRow, select_sweeps().where(sweeps.c.id == sweep_id))
    if not deferred or sweep is None:
        return 0
    rows = _rows(connection, sweep, {number for execution in deferred for number in execution.combinations})
    points = ForkPoints(connection, sweep, list(rows.values()), strict=False)
    pairs = [(execution.case_number, execution.repeat) for execution in deferred]
    places = {number: place for place, number in enumerate(rows)}
    count = 0
    for execution, starts in zip(deferred, points.starts(pairs), strict=True):
        numbers = [number for number in execution.combinations if not starts[places[number]].is_deferred]
        if numbers:
            _settle(connection, sweep, execution, {number: starts[places[number]] for number in numbers})
            count += len(numbers)
    return count


def _settle(connection: sa.Connection, sweep: SweepRow, execution: ExecutionRow, starts: Mapping[int, Start]) -> None:
    """Move the cells of a deferred execution to executions that begin, and remove it once it stands for no cell."""
    queues = execution.deferred or {}
    builder = RowCells(connection, sweep, _queue_for(queues), Begun(), share=True, queues=queues, are_present=True)
    builder.add((execution.case_number, execution.repeat), list(starts), list(starts.values()))
    builder.write()
    remaining = [number for number in execution.combinations if number not in starts]
    this = executions.c.id == execution.id
    if remaining:
        connection.execute(executions.update().where(this).values(combinations=remaining))
    else:
        connection.execute(executions.delete().where(this))


def _queue_for(queues: Mapping[str, str]) -> QueueFor:
    def queue_for(nodes: Sequence[str] | None) -> str | None:
        names = [AT_START] if nodes is None else nodes
        return next((queues[name] for name in names if name in queues), None)

    return queue_for


def _rows(connection: sa.Connection, sweep: SweepRow, numbers: Collection[int]) -> dict[int, NewRow]:
    """Return deferred combinations by number, each with the earlier combinations that it may be made from."""
    query = sa.select(combinations.c.number, combinations.c.choices, combinations.c.stopped)
    every = connection.execute(query.where(combinations.c.sweep_id == sweep.id).order_by(combinations.c.number)).all()
    choices = {row.number: row.choices for row in every}
    firsts = {
        number: min(extension["combinations"])
        for extension in extensions(sweep.spec)
        for number in extension["combinations"]
    }
    new_rows = {}
    for number in sorted(numbers):
        # A row that was added together with it has no checkpoints of its own to begin at.
        earlier = {row.number: row.choices for row in every if row.number < firsts[number] and row.stopped is None}
        new_rows[number] = NewRow(choices[number], nearest_origins(choices[number], earlier))
    return new_rows
