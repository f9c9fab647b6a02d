"""The points at which cells of new combinations begin: checkpoints at which an earlier cell reached a node that
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.failures import StoredFailure
from wtb.core.frozen import frozen
from wtb.core.status import FAILED_CELLS, FINAL_CELLS, OPEN_EXECUTIONS
from wtb.store.bulk import fetch_records
from wtb.store.read.lineage import edits, line, marks
from wtb.store.records import Mark
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, executions
from wtb.store.tables.sweeps import SweepRow

Pair = tuple[int, int]  # the number of a case, and a repeat

MOST_ORIGINS: Final = 8  # of a combination; its cells begin by the first one that helps


class Origin(NamedTuple):
    """A combination that a new one may be made from.

    Attributes:
        base: Its number.
        changed: The nodes in which the new one differs.
    """

    base: int
    changed: frozenset[str]


@frozen
class NewRow:
    """A combination to add.

    Attributes:
        choices: Its variants, of every varied node.
        origins: The combinations that it may be made from, the best first.
    """

    choices: Mapping[str, str]
    origins: Sequence[Origin]


def nearest_origins(choices: Mapping[str, str], candidates: Mapping[int, Mapping[str, str]]) -> list[Origin]:
    """Return the combinations that share most with a combination, the best first.

    Args:
        choices: The variants of the combination.
        candidates: The variants of others, by number.
    """
    origins = [
        Origin(number, frozenset(node for node, variant in choices.items() if other.get(node) != variant))
        for number, other in candidates.items()
    ]
    return sorted(origins, key=lambda origin: len(origin.changed))[:MOST_ORIGINS]


@frozen(slots=True)
class BaseCell:
    """A cell of a combination that a new one is made from, with the head of the execution of its outcome."""

    case_number: int
    repeat: int
    combination: int
    status: str
    failure: StoredFailure | None
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    head_id: str | None
    edited: bool | None


@frozen
class Start:
    """The point at which a new cell begins: a checkpoint, a running execution, or an end like that of a failed cell.

    Attributes:
        head: The checkpoint; None to begin with the input of the case.
        edited: Whether a person changed the state before it.
        joins: The execution that stands for the cell from now on, and that has not reached a node that differs.
        failed: The cell that failed before it reached a node that differs.
        is_deferred: Whether the point depends on a running execution that has yet to reach a node that differs, or to
            end.
        node_runs: How many node runs the base took from there on.
    """

    head: Mark | None = None
    edited: bool = False
    joins: ExecutionRow | None = None
    failed: BaseCell | None = None
    is_deferred: bool = False
    node_runs: int = 0


class ForkPoints:
    """Finds the points at which cells of new combinations begin.

    Args:
        connection: In the transaction that adds them.
        sweep: The row of the sweep.
        rows: The combinations.
        strict: Require an outcome of the base, and end the new cell where the base ended. Otherwise a cell continues
            where the base was cancelled or skipped, and begins with its case if there is nothing to continue from.
    """

    def __init__(self, connection: sa.Connection, sweep: SweepRow, rows: Sequence[NewRow], *, strict: bool) -> None:
        self._connection, self._sweep, self._strict = connection, sweep, strict
        self._rows = rows
        self._bases = sorted({origin.base for row in rows for origin in row.origins})

    def pairs(self) -> list[Pair]:
        """Return the cases and repeats that the bases have. Raises ConflictError if cells are open that must have
        ended.
        """
        of_bases = (cells.c.sweep_id == self._sweep.id, cells.c.combination.in_(self._bases))
        if self._strict:
            still = sa.select(sa.func.count()).where(*of_bases, cells.c.status.not_in(FINAL_CELLS))
            if count := self._connection.scalar(still) or 0:
                raise self._still_open(count)
        query = sa.select(cells.c.case_number, cells.c.repeat).where(*of_bases).distinct()
        return [(number, repeat) for number, repeat in self._connection.execute(query)]

    def starts(self, pairs: Sequence[Pair]) -> list[list[Start]]:
        """Return for each case and repeat where the cell of each combination begins.

        Raises:
            ConflictError: If an execution is in the way that a worker still has, or checkpoints are gone.
        """
        open_rows = self._open_executions(pairs)
        bases = self._base_cells(pairs)  # after the locks, so that an execution that ends before them has its outcome
        heads = [cell.head_id for cell in bases.values()]
        heads += [row.head_id for rows in open_rows.values() for row in rows]
        lines = marks(self._connection, heads)
        seen = _Seen(self._sweep, lines, edits(self._connection, lines.values()))
        starts = []
        for pair in pairs:
            of_pair = {base: bases.get((*pair, base)) for base in self._bases}
            starts.append([self._start(seen, row, of_pair, open_rows.get(pair, ())) for row in self._rows])
        return starts

    def _start(
        self, seen: _Seen, row: NewRow, bases: Mapping[int, BaseCell | None], open_rows: Sequence[ExecutionRow]
    ) -> Start:
        # A cell of the nearest combination that has ended helps only if it
        # reached what differs. Otherwise the next is tried.
        fallback: Start | None = None
        is_deferred = False
        for origin in row.origins:
            cell = bases[origin.base]
            if cell is None:
                continue
            if cell.status not in FINAL_CELLS:
                execution = next((candidate for candidate in open_rows if origin.base in candidate.combinations), None)
                if execution is not None and execution.deferred is None:
                    return seen.of_open(execution, origin.changed)
                is_deferred = is_deferred or execution is not None
                continue
            start, passed = seen.of_ended(cell, origin.changed, strict=self._strict)
            if passed or self._strict:
                return start
            fallback = fallback or start
        return Start(is_deferred=True) if is_deferred else fallback or Start()

    def _base_cells(self, pairs: Sequence[Pair]) -> dict[tuple[int, int, int], BaseCell]:
        query = (
            sa.select(
                *(cells.c[name] for name in ("case_number", "repeat", "combination", "status", "failure")),
                *(cells.c[name] for name in ("elapsed_s", "usd", "tokens_in", "tokens_out", "node_runs")),
                executions.c.head_id,
                executions.c.edited,
            )
            .outerjoin(executions, executions.c.id == cells.c.execution_id)
            .where(
                cells.c.sweep_id == self._sweep.id,
                cells.c.case_number.in_(_numbers(pairs)),
                cells.c.combination.in_(self._bases),
            )
        )
        base_cells = fetch_records(self._connection, BaseCell, query)
        return {(cell.case_number, cell.repeat, cell.combination): cell for cell in base_cells}

    def _open_executions(self, pairs: Sequence[Pair]) -> dict[Pair, list[ExecutionRow]]:
        """Return the open executions that stand for cells, locked until the end of the transaction."""
        query = sa.select(executions).where(
            executions.c.sweep_id == self._sweep.id,
            executions.c.status.in_(OPEN_EXECUTIONS),
            executions.c.choices.is_(None),
            executions.c.case_number.in_(_numbers(pairs)),
        )
        query = query.order_by(executions.c.id).with_for_update()
        rows, ids = fetch_records(self._connection, ExecutionRow, query), None
        while ids != (ids := [row.id for row in rows]):  # forks that were born before the locks are locked next
            rows = fetch_records(self._connection, ExecutionRow, query)
        by_pair: dict[Pair, list[ExecutionRow]] = {}
        for row in rows:
            by_pair.setdefault((row.case_number, row.repeat), []).append(row)
        return by_pair

    def _still_open(self, count: int) -> ConflictError:
        many = "1 cell" if count == 1 else f"{count:,} cells"
        return ConflictError(
            f"{many} of the combination that the row is made from {'has' if count == 1 else 'have'} no outcome yet, "
            f"so the start of the row is unknown; wait for the end of sweep {self._sweep.id}, or resume it with `wtb "
            f"resume`"
        )


class _Seen:
    """The lines of checkpoints that lead to the heads of executions."""

    def __init__(self, sweep: SweepRow, lines: Mapping[str, Mark], by_people: set[str]) -> None:
        self._sweep, self._lines, self._by_people = sweep, lines, by_people

    def of_ended(self, cell: BaseCell, changed: frozenset[str], *, strict: bool) -> tuple[Start, bool]:
        """Return where a cell begins by a base that has ended, and whether the base had reached a node that differs."""
        way = line(self._lines, cell.head_id)
        self._check_whole(way, cell.head_id)
        place = _place(way, changed)
        if place is not None:
            return self._at(way, place, changed), True
        if cell.status == "succeeded":
            # Its way led elsewhere, so nothing of the new combination would run. The cell ends at the same checkpoint.
            return self._at(way, len(way) - 1, changed), True
        if strict or cell.status in FAILED_CELLS:
            return Start(failed=cell), True
        return (self._at(way, len(way) - 1, changed) if way else Start()), False

    def of_open(self, execution: ExecutionRow, changed: frozenset[str]) -> Start:
        """Return where a cell begins by an execution that has not ended.

        A running execution is not joined, because its runner has read the combinations that it stands for. Once it has
        reached a step in which all nodes differ, nothing of that step is shared. Otherwise its end is waited for.
        """
        way = line(self._lines, execution.head_id)
        self._check_whole(way, execution.head_id)
        place = _place(way, changed)
        if place is not None and place < len(way) - 1:
            return self._at(way, place, changed)
        if execution.status != "running":
            return Start(joins=execution)
        if place is not None and changed.issuperset(way[place].position["next"]):
            return self._at(way, place, changed)
        return Start(is_deferred=True)

    def _at(self, way: Sequence[Mark], place: int, changed: frozenset[str]) -> Start:
        before, after = way[: place + 1], way[place + 1 :]
        is_edited = any(mark.id in self._by_people for mark in before)
        return Start(head=before[-1], edited=is_edited, node_runs=_count_node_runs(after, changed))

    def _check_whole(self, way: Sequence[Mark], head_id: str | None) -> None:
        """Raise ConflictError for a line whose beginning was removed, because the point where it reached a node is
        unknown.
        """
        if head_id is not None and (not way or way[0].parent_id is not None):
            raise ConflictError(
                f"checkpoints at which the row would begin were removed from sweep {self._sweep.id}; run it again"
            )


def _place(way: Sequence[Mark], changed: frozenset[str]) -> int | None:
    """Return the place at which a line reaches a node that differs."""
    return next((index for index, mark in enumerate(way) if changed.intersection(mark.position["next"])), None)


def _count_node_runs(way: Sequence[Mark], changed: frozenset[str]) -> int:
    """Return the number of node runs on a line, without the shared ones of its first step."""
    steps = [mark.writers for mark in way if mark.writers]
    first = [writer for writer in steps[0] if writer[0] in changed] if steps else []
    return len(first) + sum(map(len, steps[1:]))


def _numbers(pairs: Iterable[Pair]) -> list[int]:
    return sorted({number for number, _ in pairs})
