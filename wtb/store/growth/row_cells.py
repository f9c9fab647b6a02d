"""The cells of new combinations, and the executions that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from wtb.core.ids import new_ids
from wtb.store.bulk import NewRow, insert_rows, update_rows
from wtb.store.growth.fork_points import Pair, Start
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.results import NewCell
from wtb.store.tables.schema import cells, executions
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import clock

QueueFor = Callable[[Sequence[str] | None], str | None]

_ENDED = {
    "failed": "failed",
    "set_aside": "failed",
    "cancelled": "cancelled",
    "skipped": "cancelled",
}  # cell: execution
_CELL = ("sweep_id", "case_number", "repeat", "combination")


@dataclass
class Begun:
    """The cells that were added.

    Attributes:
        pending: Ids of the executions that run.
        cells: How many cells there are.
        failed: How many of them have the failure of another row's, which never came to what differs.
        deferred: How many of them begin once running executions have come to what differs.
        node_runs: How many node runs the cells took from there on that new ones were made from.
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
        queue_for: The queue that a step with some nodes asks for.
        begun: Counts what is added.
        share: Whether cells share executions.
        queues: Node -> its queue, of nodes that name one.
        are_present: Whether the cells are there already, and have been deferred.
    """

    def __init__(
        self,
        connection: sa.Connection,
        sweep: SweepRow,
        queue_for: QueueFor,
        begun: Begun,
        *,
        share: bool,
        queues: Mapping[str, str],
        are_present: bool = False,
    ) -> None:
        self._connection, self._sweep, self._queue_for, self._begun = connection, sweep, queue_for, begun
        self._share, self._queues, self._are_present = share, queues, are_present
        self._at = clock(connection)
        self._made: list[tuple[NewExecution, NewCell]] = []  # without ids; cells have what they all have in common
        self._joined: dict[str, list[int]] = {}
        self._cells: list[NewCell] = []

    def add(self, pair: Pair, numbers: Sequence[int], starts: Sequence[Start]) -> None:
        """Add the cells of a case and a repeat."""
        groups: dict[str | None, tuple[NewExecution, NewCell]] = {}
        deferred: tuple[NewExecution, NewCell] | None = None
        for number, start in zip(numbers, starts, strict=True):
            self._begun.node_runs += start.node_runs
            if start.joins is not None:
                self._join(pair, number, start)
                continue
            if start.failed is not None:
                self._made.append(self._failed_alike(pair, number, start))
                self._begun.failed += 1
                continue
            if start.is_deferred:
                self._begun.deferred += 1
                if deferred is None:
                    deferred = self._pending(pair, number, start)
                    deferred[0]["deferred"] = self._queues
                    self._made.append(deferred)
                else:
                    deferred[0]["combinations"].append(number)
                continue
            head = None if start.head is None else start.head.id
            if self._share and head in groups:
                groups[head][0]["combinations"].append(number)
                continue
            groups[head] = self._pending(pair, number, start)
            self._made.append(groups[head])

    def write(self) -> None:
        """Insert what was added."""
        ids = new_ids(len(self._made))
        for place, (execution, cell) in enumerate(self._made):
            execution["id"] = ids[place]
            if execution["status"] == "pending" and "deferred" not in execution:
                self._begun.pending.append(ids[place])
            for combination in execution["combinations"]:
                self._cells.append({**cell, "combination": combination, "execution_id": ids[place]})
        insert_rows(self._connection, executions, _alike([execution for execution, _ in self._made]))
        if self._are_present:
            update_rows(self._connection, cells, _alike(self._cells), _CELL, only={"status": ("pending",)})
        else:
            insert_rows(self._connection, cells, _alike(self._cells))
        for id, numbers in self._joined.items():
            before = self._connection.scalar(sa.select(executions.c.combinations).where(executions.c.id == id))
            joined = executions.update().where(executions.c.id == id).values(combinations=[*(before or ()), *numbers])
            self._connection.execute(joined)
        self._begun.cells += 0 if self._are_present else len(self._cells)

    def _join(self, pair: Pair, number: int, start: Start) -> None:
        """Have an execution stand for another cell."""
        execution = start.joins
        assert execution is not None
        self._joined.setdefault(execution.id, []).append(number)
        if execution.id not in self._begun.pending and execution.status == "pending":
            self._begun.pending.append(execution.id)
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
        """An execution and a cell that go on from the end of a line, or begin with the case."""
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
        """An execution and a cell that ended as those of the base did, before they came to what differs."""
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


def _alike(rows: Sequence[NewExecution] | Sequence[NewCell]) -> list[NewRow]:
    """Give rows the same columns, as one statement inserts them."""
    names = dict.fromkeys(name for row in rows for name in row)
    defaults = {"edited": False}
    return [{name: row.get(name, defaults.get(name)) for name in names} for row in rows]
