"""Counts in SQL, from which a matrix is made.

Forks that people made own no cells, and their node runs do not count. Cells whose state a person edited are left out
unless they are requested.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.provider_faults import LOST_TO
from wtb.core.scoring.failure_scores import ENDS
from wtb.core.status import FINAL_CELLS
from wtb.core.tree.stored_spec import recorded_tools
from wtb.store.cell_status import CELL_KEY, attempt_column, is_attempt, node_runs_with_attempts, running_cells
from wtb.store.database import Database
from wtb.store.tables.schema import (
    attempts,
    cases,
    cells,
    events,
    executions,
    invocations,
    is_kept,
    node_runs,
    scores,
    sweeps,
    took_one_attempt,
)
from wtb.store.tables.sweeps import SweepRow

Rows = list[tuple[Any, ...]]
Columns = list["array[float]"]  # of a part of the rows, in the order of a query's columns
_ROWS_AT_ONCE = 20_000  # rows of SQLite in memory at once
_GROUPS = 16  # groups of rows that PostgreSQL sends at once


class Spent(NamedTuple):
    """The cost of attempts, including failed ones.

    `unshared_usd` is the US dollars if each cell had made the attempts alone that it shares.
    """

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    unshared_usd: float = 0.0


class NodeRunTotals(NamedTuple):
    """All node runs of a sweep, counted once.

    Attributes:
        counts: (node, variant, executed, unshared, attempts, mean lag of the event loop in seconds or None, whether of
            several versions of the code) in the order of first runs. The last two are of accepted runs.
        spent: The cost of their attempts, including the dollars of removed ones.
        forks: The cost of attempts of forks that people made, which is in no other figure.
        has_failed: Whether any attempt failed, or is running.
    """

    counts: Rows
    spent: Spent
    forks: Spent
    has_failed: bool


# Statements are made once, without the sweep, because making one takes as long as executing it.
_ACCEPTED = node_runs.c.status == "succeeded"
_OF_CELLS = node_runs.c.cells > 0
_CODE = sa.case((_ACCEPTED, node_runs.c.fingerprint))  # min and max, because counting distinct values needs a sort
_AT_ONCE = (node_runs.c.usd, node_runs.c.tokens_in, node_runs.c.tokens_out, node_runs.c.usd * node_runs.c.cells)
_TOTALS = (
    sa.select(
        _OF_CELLS,
        node_runs.c.node,
        node_runs.c.variant,
        sa.func.sum(sa.case((_ACCEPTED, 1), else_=sa.literal(0))),
        sa.func.sum(sa.case((_ACCEPTED, node_runs.c.cells), else_=sa.literal(0))),
        sa.func.sum(node_runs.c.attempts),
        sa.func.avg(node_runs.c.lag_s),
        sa.func.coalesce(sa.func.min(_CODE) != sa.func.max(_CODE), sa.false()),
        sa.func.sum(sa.case((took_one_attempt, 0), else_=sa.literal(1))),
        *(sa.func.sum(sa.case((took_one_attempt, figure), else_=sa.literal(0))) for figure in _AT_ONCE),
    )
    .group_by(_OF_CELLS, node_runs.c.node, node_runs.c.variant)
    .order_by(sa.func.min(node_runs.c.started_at))
)
_FIGURES = [attempt_column(name) for name in ("usd", "tokens_in", "tokens_out")]
_SPENT = (
    sa.select(_OF_CELLS, *map(sa.func.sum, (*_FIGURES, _FIGURES[0] * node_runs.c.cells)))
    .select_from(node_runs_with_attempts)
    .where(~took_one_attempt, is_attempt)
    .group_by(_OF_CELLS)
)


def node_run_totals(database: Database, sweep_id: str) -> NodeRunTotals:
    """Count the node runs of a sweep, and add up what their attempts cost."""
    counts, has_failed, spendings = list[tuple[Any, ...]](), False, {True: [Spent()], False: [Spent()]}
    for of_cells, *count, other_count, usd, got, gave, alone in _rows(
        database, _TOTALS.where(node_runs.c.sweep_id == sweep_id)
    ):
        if of_cells:
            counts.append(tuple(count))
        has_failed |= bool(other_count)
        spendings[bool(of_cells)].append(Spent(float(usd), int(got), int(gave), float(alone)))
    if has_failed:
        for of_cells, usd, got, gave, alone in _rows(database, _SPENT.where(node_runs.c.sweep_id == sweep_id)):
            spendings[bool(of_cells)].append(Spent(float(usd), int(got), int(gave), float(alone)))
    ((collected,),) = _rows(database, sa.select(sweeps.c.collected_usd).where(sweeps.c.id == sweep_id))
    spendings[True].append(Spent(usd=collected, unshared_usd=collected))
    own, forks = (Spent(*map(sum, zip(*spendings[whose], strict=True))) for whose in (True, False))
    return NodeRunTotals(counts, own, forks, has_failed)


def provider_attempts(database: Database, sweep_id: str) -> int:
    """Count the attempts of a sweep that providers failed."""
    failed = attempts.c.failure["kind"].as_string() == "provider"
    source = attempts.join(node_runs, node_runs.c.id == attempts.c.node_run_id)
    return database.count(node_runs.c.sweep_id == sweep_id, ~took_one_attempt, failed, source=source)


def answered_after_failure(database: Database, sweep_id: str) -> int:
    """Count the node runs that succeeded although a provider had failed one of their calls."""
    return database.count(events.c.sweep_id == sweep_id, events.c.kind == "node.answered_after_failure")


def failed_attempts_usd(database: Database, sweep_id: str) -> Rows:
    """Return (combinations as JSON text, node, variant, whether lost, US dollars) of failed attempts with a cost.

    Attempts that ended with a question to a person did not fail. Lost attempts were ended by the failure of another
    one.
    """
    group = sa.cast(executions.c.combinations, sa.Text)
    # Attempts without a failure have no kind, and NULL would make every comparison NULL.
    kind = sa.func.coalesce(attempts.c.failure["kind"].as_string(), "")
    lost = sa.case((kind == "lost", 1), else_=0)
    query = (
        sa.select(group, node_runs.c.node, node_runs.c.variant, lost, sa.func.sum(attempts.c.usd))
        .select_from(attempts)
        .join(node_runs, node_runs.c.id == attempts.c.node_run_id)
        .join(executions, executions.c.id == node_runs.c.execution_id)
        .where(
            node_runs.c.sweep_id == sweep_id,
            node_runs.c.cells > 0,
            ~took_one_attempt,
            attempts.c.status == "failed",
            attempts.c.usd > 0,
            kind != "waiting",
        )
        .group_by(group, node_runs.c.node, node_runs.c.variant, lost)
    )
    return _rows(database, query)


DROPPED = ("cancelled", "skipped")  # statuses of cells that a person or a rule gave up
# A cell that was cancelled by the answer to its own question has a failure with the reason.
_dropped = sa.and_(cells.c.status.in_(DROPPED), cells.c.failure.is_(None))


class CellGroup(NamedTuple):
    """Equal cells of a combination.

    Attributes:
        combination: The number of the combination.
        status: Their status.
        edited: Whether a person edited their state.
        dropped: Whether they were cancelled or skipped, other than by an answer to their own question.
        cells: How many there are.
        ended: How many have an outcome.
        priced: How many have a price, as if alone.
        usd: The US dollars of these together.
    """

    combination: int
    status: str
    edited: bool
    dropped: bool
    cells: int
    ended: int
    priced: int
    usd: float


def cell_groups(database: Database, sweep_id: str) -> list[CellGroup]:
    """Return all cells of a sweep in groups, each cell counted once."""
    keys = (cells.c.combination, cells.c.status, cells.c.edited, cells.c.failure.is_(None))
    usd_columns = sa.func.count(cells.c.usd), sa.func.coalesce(sa.func.sum(cells.c.usd), 0.0)
    query = sa.select(*keys, sa.func.count(), sa.func.count(cells.c.finished_at), *usd_columns)
    groups = [
        CellGroup(combination, status, bool(edited), bool(unsaid) and status in DROPPED, *figures)
        for combination, status, edited, unsaid, *figures in _rows(
            database, query.where(cells.c.sweep_id == sweep_id).group_by(*keys)
        )
    ]
    # No row of a cell is running: running cells are among the pending ones, and cost another query.
    if not any(group.status == "pending" for group in groups):
        return groups
    with database.read() as connection:
        running = running_cells(connection, [sweep_id]).get(sweep_id, {})
    return [part for group in groups for part in _split(group, running)]


def _split(group: CellGroup, running: dict[int, int]) -> Iterator[CellGroup]:
    """Yield a group with its running cells apart; their number is subtracted from `running`."""
    count = min(running.get(group.combination, 0), group.cells) if group.status == "pending" else 0
    if count:
        running[group.combination] -= count
        yield group._replace(status="running", cells=count, ended=0, priced=0, usd=0.0)
    if count < group.cells:
        yield group._replace(cells=group.cells - count)


def outcomes_by_combination(groups: Iterable[CellGroup]) -> Rows:
    """Return (combination, status, cells, mean US dollars or None) for each status that occurs."""
    by_outcome: dict[tuple[int, str], list[float]] = {}
    for group in groups:
        sums = by_outcome.setdefault((group.combination, group.status), [0, 0, 0.0])
        for place, figure in enumerate((group.cells, group.priced, group.usd)):
            sums[place] += figure
    return [(*key, int(count), usd / priced if priced else None) for key, (count, priced, usd) in by_outcome.items()]


def edited_cells(database: Database, sweep_id: str) -> int:
    """Return the number of cells with an outcome that depends on a state which a person edited."""
    return database.count(cells.c.sweep_id == sweep_id, cells.c.edited, cells.c.finished_at.is_not(None))


def open_cells(database: Database, sweep_id: str, *, cancelled: bool = True) -> Iterator[Columns]:
    """Yield (combination, case number) of each cell without an outcome of its own.

    If `cancelled` is False, cells that a person cancelled one by one count as ended, without a score.
    """
    dropped = _dropped if cancelled else sa.and_(_dropped, cells.c.status == "skipped")
    query = sa.select(cells.c.combination, cells.c.case_number).where(
        cells.c.sweep_id == sweep_id, sa.or_(cells.c.status.not_in(FINAL_CELLS), dropped)
    )
    return _columns(database, query)


def case_numbers(database: Database, sweep_id: str) -> list[int]:
    """Return the numbers of a sweep's cases."""
    query = sa.select(cases.c.number).where(cases.c.sweep_id == sweep_id, is_kept).order_by(cases.c.number)
    return [number for (number,) in _rows(database, query)]


def erased_cases(database: Database, sweep_id: str) -> Rows:
    """Return (case, person, time) of each erased case."""
    query = sa.select(cases.c.id, cases.c.erased_by, cases.c.erased_at)
    return _rows(database, query.where(cases.c.sweep_id == sweep_id, ~is_kept).order_by(cases.c.number))


def latencies(database: Database, sweep_id: str, *, edited: bool = False) -> Iterator[Columns]:
    """Yield (combination, seconds) of every succeeded cell with a measured time."""
    query = sa.select(cells.c.combination, cells.c.elapsed_s).where(
        cells.c.sweep_id == sweep_id, cells.c.status == "succeeded", cells.c.elapsed_s.is_not(None)
    )
    return _columns(database, query.where(*([] if edited else [~cells.c.edited])))


def mean_scores(
    database: Database, sweep_id: str, metric: str, *, repeated: bool = True, edited: bool = False
) -> Iterator[Columns]:
    """Yield (combination, case number, mean over repeats, number of repeats) of cells with a score.

    If `repeated` is False, there is one repeat and nothing to average.
    """
    figures = (sa.func.avg(scores.c.value), sa.func.count()) if repeated else (scores.c.value,)
    query = sa.select(scores.c.combination, scores.c.case_number, *figures).where(
        scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.value.is_not(None)
    )
    if not edited:
        query = query.where(*untouched(database, sweep_id))
    if repeated:
        yield from _columns(database, query.group_by(scores.c.combination, scores.c.case_number))
        return
    for columns in _columns(database, query):
        yield [*columns, array("d", [1.0]) * len(columns[0])]


def scores_by_repeat(database: Database, sweep_id: str, metric: str) -> Iterator[Columns]:
    """Yield (combination, case number, repeat, score) of cells with a score; edited cells are left out."""
    columns = (scores.c.combination, scores.c.case_number, scores.c.repeat, scores.c.value)
    query = sa.select(*columns).where(
        scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.value.is_not(None)
    )
    return _columns(database, query.where(*untouched(database, sweep_id)))


def observed_scores(database: Database, sweep_id: str, metric: str, *, edited: bool = False) -> Iterator[Rows]:
    """Yield (combination, case number, repeat, value, observed) of cells with observations for a figure of a row, in
    parts.
    """
    columns = (scores.c.combination, scores.c.case_number, scores.c.repeat, scores.c.value, scores.c.observed)
    query = sa.select(*columns).where(
        scores.c.sweep_id == sweep_id, scores.c.metric == metric, scores.c.observed.is_not(None)
    )
    if not edited:
        query = query.where(*untouched(database, sweep_id))
    with database.read() as connection:
        for part in connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)).partitions():
            yield list(map(tuple, part))


def ended_without_state(database: Database, sweep_id: str, *, edited: bool = False) -> Rows:
    """Return (combination, case number, repeat, status, kind, type) of the cells that ended and did not succeed."""
    failure = (cells.c.failure[key].as_string() for key in ("kind", "type"))
    query = sa.select(cells.c.combination, cells.c.case_number, cells.c.repeat, cells.c.status, *failure).where(
        cells.c.sweep_id == sweep_id, cells.c.status.in_(ENDS), *([] if edited else [~cells.c.edited])
    )
    return _rows(database, query)


def untouched(database: Database, sweep_id: str) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a score is of no edited cell; nothing if the sweep has no such cell."""
    if not edited_cells(database, sweep_id):  # so that the condition costs nothing without edits
        return []
    same = [cells.c[name] == scores.c[name] for name in CELL_KEY]
    return [~sa.exists().where(*same, cells.c.edited)]


def score_errors(database: Database, sweep_id: str, *, lost: bool = True) -> Rows:
    """Return (metric, number of failed scores, one of the errors). `lost` includes those that a provider prevented."""
    failed = scores.c.error.is_not(None) if lost else sa.not_(scores.c.error.startswith(LOST_TO))
    query = (
        sa.select(scores.c.metric, sa.func.count(), sa.func.min(scores.c.error))
        .where(scores.c.sweep_id == sweep_id, failed)
        .group_by(scores.c.metric)
    )
    return _rows(database, query)


_NOTHING_EXPECTED = sa.and_(scores.c.value.is_(None), scores.c.error.is_(None))


def count_without_expected(database: Database, sweep_id: str) -> dict[str, int]:
    """Return the numbers of cases without an expected value, by metric."""
    count = sa.func.count(sa.distinct(scores.c.case_number))
    query = sa.select(scores.c.metric, count).where(scores.c.sweep_id == sweep_id, _NOTHING_EXPECTED)
    return {str(metric): int(cases) for metric, cases in _rows(database, query.group_by(scores.c.metric))}


def cases_without_expected(database: Database, sweep_id: str, metric: str) -> list[int]:
    """Return the numbers of the cases that have no expected value for a metric."""
    query = sa.select(scores.c.case_number).distinct()
    conditions = scores.c.sweep_id == sweep_id, scores.c.metric == metric, _NOTHING_EXPECTED
    return [number for (number,) in _rows(database, query.where(*conditions))]


def called_tools(database: Database, sweep: SweepRow) -> list[tuple[str, str]]:
    """Return (tool, version) of servers' tools that nodes called, in the order of their first calls."""
    # Most sweeps use no servers, and need no query of all their calls.
    if not recorded_tools(sweep.spec):  # it uses no server
        return []
    query = (
        sa.select(invocations.c.tool, invocations.c.version)
        .join(node_runs, node_runs.c.id == invocations.c.node_run_id)
        .where(node_runs.c.sweep_id == sweep.id, invocations.c.version.is_not(None))
        .group_by(invocations.c.tool, invocations.c.version)
        .order_by(sa.func.min(invocations.c.at), invocations.c.tool)
    )
    return [(str(tool), str(version)) for tool, version in _rows(database, query)]


def drifted_tools(database: Database, sweep: SweepRow) -> list[str]:
    """Return the servers' tools that changed since the start, or since the first call if the start did not record
    them.
    """
    recorded = recorded_tools(sweep.spec)
    versions = {f"{server}.{tool}": version for server, tools in recorded.items() for tool, version in tools.items()}
    return sorted(
        {tool for tool, version in called_tools(database, sweep) if versions.setdefault(tool, version) != version}
    )


def judge_versions(database: Database, sweep_id: str) -> Rows:
    """Return (metric, version) of the judges that gave scores, if the scores record a version."""
    query = sa.select(scores.c.metric, scores.c.version).distinct()
    return _rows(database, query.where(scores.c.sweep_id == sweep_id, scores.c.version.is_not(None)))


def _rows(database: Database, query: sa.Select[Any]) -> Rows:
    with database.read() as connection:
        cursor = connection.execute(query).cursor  # its own rows: those of SQLAlchemy take twice as long to read
        return list(cursor.fetchall()) if cursor is not None else []


def _columns(database: Database, query: sa.Select[Any]) -> Iterator[Columns]:
    """Yield the rows of a query of numbers without NULL, in parts, because all may not fit into memory.

    PostgreSQL packs rows that agree in the first column: a number then takes 8 bytes and no object of its own, and the
    first column takes nothing.
    """
    with database.read() as connection:
        if database.is_sqlite:
            cursor = connection.execute(query).cursor
            while rows := cursor.fetchmany(_ROWS_AT_ONCE) if cursor is not None else ():
                yield [array("d", column) for column in zip(*rows, strict=True)]
            return
        first, *rest = query.subquery().c
        row = reduce(lambda before, column: before.op("||")(column), map(_sent, rest))
        packed = sa.func.string_agg(row, sa.literal_column("''::bytea"), type_=sa.LargeBinary())
        grouped = sa.select(first, packed).group_by(first).execution_options(yield_per=_GROUPS)
        for number, rows in connection.execute(grouped):
            figures = _unpacked(rows)
            columns = [figures[place :: len(rest)] for place in range(len(rest))]
            yield [array("d", [number]) * len(columns[0]), *columns]


def _sent(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.float8send(sa.cast(column, sa.Double), type_=sa.LargeBinary())


def _unpacked(packed: bytes) -> array[float]:
    numbers = array("d", packed)
    if sys.byteorder == "little":  # PostgreSQL sends big-endian numbers
        numbers.byteswap()
    return numbers
