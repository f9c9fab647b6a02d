"""Queries for sweeps, cells, executions, checkpoints and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from msgspec import structs

from wtb.core.arguments import checked
from wtb.core.errors import DamagedError, InputError, NotFound, did_you_mean
from wtb.core.scoring.measure import Compare, Figure, Measure, read_passes
from wtb.core.scoring.scores import LEFT_OUT, OnFailure
from wtb.core.serialization.codec import digest
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.tree.checkpoints import (
    Checkpoint,
    CheckpointId,
    Inside,
    Position,
    StoredPosition,
    Totals,
    Writer,
    in_order,
)
from wtb.core.values import Value
from wtb.store.access.projects import in_scope
from wtb.store.bulk import among, equal, fetch_among, fetch_record, fetch_records
from wtb.store.cell_status import (
    attempt_column,
    cell_columns,
    cell_status,
    cells_and_running,
    is_attempt,
    node_runs_with_attempts,
    of_node_run,
)
from wtb.store.database import Database
from wtb.store.log import START, LogPosition, log_rows
from wtb.store.read import tallies
from wtb.store.records import ListedCell, ListedSweep
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.executions import CheckpointRow, ExecutionRow
from wtb.store.tables.node_runs import AttemptRow, CallRow, NodeRunRow
from wtb.store.tables.results import MetricRow, ScoreRow
from wtb.store.tables.schema import (
    attempts,
    calls,
    cases,
    cells,
    checkpoints,
    combinations,
    executions,
    invocations,
    is_case,
    is_visible,
    metrics,
    node_run_columns,
    node_runs,
    scores,
    sessions,
    sweeps,
    values,
    workflows,
)
from wtb.store.tables.sweeps import CaseRow, EventRow, SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.workflows import WorkflowDocument

R = TypeVar("R")
_MOST_CANDIDATES = 5  # that an error names if a reference is ambiguous


def select_sweeps(*more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select visible sweeps with the columns of `SweepRow`, and more columns after those."""
    query = sa.select(sweeps, sessions.c.name.label("session"), *more)
    return query.join_from(sweeps, sessions, sessions.c.id == sweeps.c.session_id).where(is_visible)


@checked
def find_sweep(database: Database, ref: str) -> SweepRow:
    """Find a sweep.

    Args:
        database: The database.
        ref: Its id; the name of sweeps; the name of a workflow; or the beginning of an id. They are looked up in this
            order. A name means the newest sweep of that name, or the newest single execution of that workflow.

    Returns:
        Its record.

    Raises:
        InputError: If there is none, with a near match; or if there are several, with their ids: it is the beginning of
            them, or sweeps of several projects have that name.
    """
    query = select_sweeps().where(*in_scope(database, sweeps))
    query = query.order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
    named, is_single = sweeps.c.name == ref, sweeps.c.kind == "single"
    of_workflow = sweeps.c.workflow_id.in_(sa.select(workflows.c.id).where(workflows.c.name == ref))
    with database.read() as connection:
        if (row := fetch_record(connection, SweepRow, query.where(sweeps.c.id == ref).limit(1))) is not None:
            return row
        by_name = (sa.and_(named, ~is_single), sa.and_(sa.or_(named, of_workflow), is_single), of_workflow)
        for condition in by_name if ref else ():
            if (row := fetch_record(connection, SweepRow, query.where(condition).limit(1))) is None:
                continue
            # The newest sweep of a name is meant, but never silently that of another project.
            elsewhere = query.where(condition, sweeps.c.project != row.project).limit(_MOST_CANDIDATES)
            if namesakes := fetch_records(connection, SweepRow, elsewhere):
                candidates = ", ".join(f"{sweep.id} ({sweep.project})" for sweep in [row, *namesakes])
                raise InputError(f"{ref!r} is a name in several projects: {candidates}; give an id")
            return row
        # Last, so that a name is never taken for the beginning of an id.
        beginning = query.where(sweeps.c.id.startswith(ref, autoescape=True)).limit(_MOST_CANDIDATES)
        rows = fetch_records(connection, SweepRow, beginning)
        if len(rows) == 1 and ref:
            return rows[0]
        visible = [is_visible, *in_scope(connection, sweeps)]
        names = sa.union(
            sa.select(sweeps.c.name).where(*visible).distinct().limit(1000).subquery().select(),
            sa.select(workflows.c.name).join(sweeps, sweeps.c.workflow_id == workflows.c.id).where(*visible).distinct(),
        )
        known_names = list(connection.scalars(names))
    if len(rows) > 1 and ref:
        candidates = ", ".join(f"{sweep.id} ({sweep.name})" for sweep in rows)
        raise InputError(f"{ref!r} is the beginning of several sweeps' ids: {candidates}; give more of it")
    raise NotFound(f"there is no sweep {ref!r}{did_you_mean(ref, known_names)}; `wtb list` shows all", kind="sweep")


def latest_completed(database: Database, session: str, name: str) -> SweepRow | None:
    """Return the newest completed sweep of a name in a session (by its name), as `find_sweep` does, or None."""
    query = sa.select(sweeps.c.id).join(sessions, sessions.c.id == sweeps.c.session_id)
    query = query.where(sessions.c.name == session, sweeps.c.name == name, sweeps.c.status == "completed")
    query = query.where(*in_scope(database, sweeps))
    sweep_id = database.scalar(query.order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc()).limit(1))
    return None if sweep_id is None else find_sweep(database, sweep_id)


# A single execution has the status of its execution. If its sweep is held up, for example by a limit, that is pending.
_shown_status: sa.ColumnElement[str] = sa.case(
    (executions.c.status.is_(None), sweeps.c.status),
    (
        sa.and_(executions.c.status == "pending", sweeps.c.status.in_(("paused", "failed", "cancelled"))),
        sweeps.c.status,
    ),
    else_=executions.c.status,
)


def list_sweeps(
    database: Database,
    *,
    workflow: str | None = None,
    status: str | None = None,
    project: str | None = None,
    session: str | None = None,
    since: float | None = None,
    limit: int | None = None,
    kind: Literal["sweep", "single"] | None = None,
    after: SweepRow | None = None,
) -> list[ListedSweep]:
    """List sweeps, the newest first.

    Args:
        database: The database.
        workflow: The name of their workflow.
        status: Their status; of a single execution, that of the execution.
        project: Their project.
        session: The name of their session.
        since: Seconds since the epoch: those that were submitted then or later.
        limit: Maximum number.
        kind: Only sweeps, or only single executions; None for both.
        after: The last sweep of the page before.

    Returns:
        Their records.
    """
    of_execution = (executions.c[name] for name in ("id", "reason", "failure"))
    of_run = (workflows.c.graph["metadata"].label("metadata"), _shown_status, *of_execution)
    query = (
        select_sweeps(workflows.c.name.label("workflow"), workflows.c.version, *of_run)
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        # A single execution has one cell, so these joins add no rows.
        .outerjoin(cells, sa.and_(sweeps.c.kind == "single", cells.c.sweep_id == sweeps.c.id))
        .outerjoin(executions, executions.c.id == cells.c.execution_id)
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
        .limit(limit)
    )
    columns = (workflows.c.name, _shown_status, sweeps.c.project, sessions.c.name, sweeps.c.kind)
    query = query.where(*equal(dict(zip(columns, (workflow, status, project, session, kind), strict=True))))
    query = query.where(*in_scope(database, sweeps))
    if since is not None:
        query = query.where(sweeps.c.created_at >= since)
    if after is not None:
        query = query.where(sa.tuple_(sweeps.c.created_at, sweeps.c.id) < sa.tuple_(after.created_at, after.id))
    with database.read() as connection:
        rows = connection.execute(query).all()
        counts = tallies.cell_counts(connection, [row.id for row in rows])
        return [ListedSweep(*(*row, counts[row.id])) for row in rows]


def cell_counts(database: Database, sweep_id: str) -> dict[str, int]:
    """Return the numbers of cells by status."""
    with database.read() as connection:
        return tallies.cell_counts(connection, [sweep_id])[sweep_id]


def workflow_graph(database: Database, workflow_id: str) -> WorkflowDocument:
    with database.read() as connection:
        rows = connection.execute(sa.select(workflows.c.graph).where(workflows.c.id == workflow_id))
        graph: WorkflowDocument = rows.scalar_one()
    return graph


_ORDERS: WeakKeyDictionary[Database, dict[str, dict[str, int]]] = WeakKeyDictionary()
_MOST_ORDERS = 1000


def state_order(database: Database, sweep_id: str) -> Mapping[str, int]:
    """Return the place of each key of the state that the workflow of a sweep declares. It never changes, so it is
    cached.
    """
    orders = _ORDERS.setdefault(database, {})
    if (order := orders.get(sweep_id)) is None:
        query = sa.select(workflows.c.graph).join(sweeps, sweeps.c.workflow_id == workflows.c.id)
        graph = database.scalar(query.where(sweeps.c.id == sweep_id)) or {}
        order = {key: place for place, key in enumerate(graph.get("state", ()))}
        if len(orders) >= _MOST_ORDERS:
            orders.clear()
        orders[sweep_id] = order
    return order


def choices(database: Database, sweep_id: str) -> list[dict[str, str]]:
    """Return the combinations of a sweep by number."""
    query = sa.select(combinations.c.choices).where(combinations.c.sweep_id == sweep_id).order_by(combinations.c.number)
    return database.scalars(query)


def choices_of_execution(database: Database, row: ExecutionRow) -> list[dict[str, str]]:
    """Return the combinations whose cells an execution holds; for a manual fork, its own choices."""
    every = choices(database, row.sweep_id)
    if row.choices is not None:
        return [in_order(row.choices, {node: place for place, node in enumerate(every[0] if every else ())})]
    return [every[number] for number in row.combinations]


def case_rows(database: Database, sweep_id: str, numbers: Iterable[int]) -> dict[int, CaseRow]:
    query = sa.select(cases).where(cases.c.sweep_id == sweep_id, cases.c.number.in_(list(numbers)))
    order = state_order(database, sweep_id)
    rows = database.records(CaseRow, query)
    return {row.number: structs.replace(row, input=in_order(row.input, order)) for row in rows}


def stored_bytes(database: Database) -> sa.ColumnElement[Any]:
    """Return the data of a value for `as_bytes`. SQLite would refuse to read damaged data as text."""
    return sa.cast(values.c.data, sa.LargeBinary) if database.is_sqlite else values.c.data


def as_bytes(stored: str | bytes) -> bytes:
    return stored.encode() if isinstance(stored, str) else bytes(stored)


def load_values(database: Database, digests: Iterable[str]) -> dict[str, Value]:
    """Return values by digest, verified. Raises DamagedError for the first that is missing or damaged."""
    with database.read() as connection:
        return values_seen(database, connection, digests)


def values_seen(database: Database, connection: sa.Connection, digests: Iterable[str]) -> dict[str, Value]:
    """Load values as `load_values` does, within a transaction."""
    keys = sorted(set(digests))
    query = sa.select(values.c.digest, stored_bytes(database))
    stored = dict(fetch_among(connection, query, values.c.digest, keys))
    return verified(stored, keys)


def verified(stored: Mapping[str, str | bytes], keys: Iterable[str]) -> dict[str, Value]:
    """Return stored values by digest. Raises DamagedError for the first that is missing or has another hash."""
    values_by_digest: dict[str, Value] = {}
    for key in keys:
        if key not in stored:
            raise DamagedError(f"stored value {key} is missing")
        content = as_bytes(stored[key])
        if digest(content) != key:
            raise DamagedError(f"stored value {key} is damaged: its content has another hash")
        values_by_digest[key] = Value(key, content)
    return values_by_digest


def as_checkpoint(row: CheckpointRow, order: Mapping[str, int] | None = None) -> Checkpoint:
    """Return the checkpoint of a row. `order` is that of `state_order`; without it, keys are ordered by name."""
    return Checkpoint(
        CheckpointId(row.id),
        None if row.parent_id is None else CheckpointId(row.parent_id),
        Position.read(row.position),
        in_order(row.state, order or {}),
        tuple(Writer(*writer) for writer in row.writers),
        row.workspace,
        Totals(*row.totals),
        row.trigger,
        row.name,
        row.created_at,
        None if row.inside is None else Inside(**row.inside),
    )


def checkpoint(database: Database, id: str) -> Checkpoint:
    """Return a checkpoint that exists."""
    (row,) = database.records(CheckpointRow, sa.select(checkpoints).where(checkpoints.c.id == id))
    return as_checkpoint(row, state_order(database, row.sweep_id))


def line(database: Database, head_id: str) -> list[Checkpoint]:
    """Return the checkpoints from the root to a head, oldest first."""
    step = sa.select(checkpoints, sa.literal(0).label("back")).where(checkpoints.c.id == head_id)
    walk = step.cte("line", recursive=True)
    parents = sa.select(checkpoints, (walk.c.back + 1).label("back")).join(walk, checkpoints.c.id == walk.c.parent_id)
    walk = walk.union_all(parents)
    query = sa.select(*(walk.c[column.name] for column in checkpoints.c)).order_by(walk.c.back.desc())
    return [as_checkpoint(row, state_order(database, row.sweep_id)) for row in database.records(CheckpointRow, query)]


def node_runs_from(database: Database, checkpoint_id: str) -> list[NodeRunRow]:
    """Return the node runs that started from a checkpoint."""
    query = sa.select(*node_run_columns).where(node_runs.c.checkpoint_id == checkpoint_id)
    return _with_ordered_writes(database, database.records(NodeRunRow, query))


def _with_ordered_writes(database: Database, rows: Sequence[NodeRunRow]) -> list[NodeRunRow]:
    return [
        structs.replace(row, writes=row.writes and in_order(row.writes, state_order(database, row.sweep_id)))
        for row in rows
    ]


@checked
def find_execution(database: Database, ref: str) -> ExecutionRow:
    """Find an execution by its id or the beginning of its id. Raises InputError."""
    query = sa.select(executions).join(sweeps, sweeps.c.id == executions.c.sweep_id).where(is_visible)
    query = query.where(*in_scope(database, sweeps))
    rows = {row.id: row for row in rows_by_id(database, ExecutionRow, query, executions.c.id, ref)}
    return the_one(rows, ref, "execution", "`wtb show SWEEP --cells` lists those of a sweep")


def rows_by_id(
    database: Database, kind: type[R], query: sa.Select[Any], id: sa.ColumnElement[str], ref: str
) -> list[R]:
    """Read the rows, two at most, whose id is a reference or begins with it.

    The whole id is searched first, because behind walls PostgreSQL uses no index for a beginning: LIKE might leak rows
    that must stay hidden.
    """
    return database.records(kind, query.where(id == ref)) or database.records(
        kind, query.where(id.startswith(ref, autoescape=True)).limit(2)
    )


def the_one(rows: Mapping[str, R], ref: str, what: str, hint: str) -> R:
    """Choose the row with an id from those whose ids begin with it.

    Args:
        rows: All or the first two of them, by id.
        ref: The id, or the beginning of a single one.
        what: What the rows are, for the error.
        hint: Where to find the right id.

    Raises:
        InputError: If there is none, or if it is the beginning of several.
    """
    if ref in rows or len(rows) == 1:
        return rows[ref] if ref in rows else next(iter(rows.values()))
    if rows:
        raise InputError(f"{ref!r} is the beginning of several {what}s' ids; give more of it")
    raise NotFound(f"there is no {what} {ref!r}; {hint}", kind=what)


def single_execution(database: Database, sweep_id: str) -> ExecutionRow:
    """Return the execution that holds the cell of a single execution, whose sweep has no other cell."""
    query = (
        sa.select(executions).join(cells, cells.c.execution_id == executions.c.id).where(cells.c.sweep_id == sweep_id)
    )
    (row,) = database.records(ExecutionRow, query)
    return row


def heads(database: Database, sweep_id: str) -> list[tuple[str | None, StoredPosition | None]]:
    """Return the id and position of the head of each open execution, or (None, None)."""
    query = (
        sa.select(executions.c.head_id, checkpoints.c.position)
        .outerjoin(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS))
    )
    return database.tuples(query)


def usd_of_attempts(sweep_id: str) -> sa.Select[Any]:
    """Select the US dollars of all present attempts of a sweep."""
    mine = node_runs.c.sweep_id == sweep_id
    first = sa.select(node_runs.c.usd).where(mine, node_runs.c.begun_at.is_not(None))
    later = sa.select(attempts.c.usd).join(node_runs, of_node_run).where(mine, node_runs.c.begun_at.is_(None))
    each = sa.union_all(first, later).subquery()
    return sa.select(sa.func.coalesce(sa.func.sum(each.c.usd), 0.0))


def usd_spent(database: Database, sweep_id: str) -> float:
    """Return the US dollars of all attempts of a sweep, including removed ones; 0 if there is no such sweep."""
    collected = sa.select(sweeps.c.collected_usd).where(sweeps.c.id == sweep_id)
    with database.read(long=True) as connection:
        return float(connection.scalar(usd_of_attempts(sweep_id)) or 0.0) + float(connection.scalar(collected) or 0.0)


def spent(database: Database, sweep_id: str) -> tuple[int, float]:
    """Return the number of node runs and the US dollars of all attempts, including removed ones."""
    count = sa.select(sa.func.count()).where(node_runs.c.sweep_id == sweep_id)
    collected = sa.select(sweeps.c.collected_node_runs, sweeps.c.collected_usd).where(sweeps.c.id == sweep_id)
    with database.read() as connection:
        more, more_usd = connection.execute(collected).one()
        usd = connection.scalar(usd_of_attempts(sweep_id)) or 0.0
        return (connection.scalar(count) or 0) + more, float(usd) + more_usd


def cell_rows(
    database: Database,
    sweep_id: str,
    *,
    statuses: Sequence[str] = (),
    case: str | None = None,
    limit: int | None = None,
) -> Iterator[ListedCell]:
    """Yield cells in the order of case, repeat and combination, each with its case's id and its head."""
    query: sa.Select[*tuple[Any, ...]] = (
        sa.select(*cell_columns, cases.c.id.label("case"), executions.c.head_id)
        .select_from(cells_and_running)
        .join(cases, sa.and_(cases.c.sweep_id == cells.c.sweep_id, cases.c.number == cells.c.case_number))
        .outerjoin(executions, executions.c.id == cells.c.execution_id)
        .where(cells.c.sweep_id == sweep_id)
        .order_by(cells.c.case_number, cells.c.repeat, cells.c.combination)
        .limit(limit)
    )
    if statuses:
        query = query.where(cell_status.in_(list(statuses)))
    query = query if case is None else query.where(is_case(case))
    with database.read() as connection:
        # A sweep may have a million cells, so the rows are streamed.
        for row in connection.execute(query.execution_options(yield_per=2000)):
            yield ListedCell(*row)


def checkpoint_states(database: Database, ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the states of checkpoints, digests by key, by the id of the checkpoint."""
    query = sa.select(checkpoints.c.id, checkpoints.c.sweep_id, checkpoints.c.state)
    rows = database.rows_among(query, checkpoints.c.id, ids)
    return {id: in_order(state, state_order(database, sweep_id)) for id, sweep_id, state in rows}


def score_rows(database: Database, sweep_id: str, case_numbers: Iterable[int] | None = None) -> list[ScoreRow]:
    query = sa.select(scores).where(scores.c.sweep_id == sweep_id)
    if case_numbers is not None:
        query = query.where(scores.c.case_number.in_(list(case_numbers)))
    return database.records(ScoreRow, query)


def metric_rows(database: Database, sweep_id: str) -> list[MetricRow]:
    query = sa.select(metrics).where(metrics.c.sweep_id == sweep_id).order_by(metrics.c.number, metrics.c.name)
    return database.records(MetricRow, query)


def measures(database: Database, sweep_id: str) -> dict[str, Measure]:
    """Return the measures of a sweep's metrics, in their order."""
    return {row.name: _measure(row) for row in metric_rows(database, sweep_id)}


def _measure(row: MetricRow) -> Measure:
    on_failure: OnFailure | None = None
    if row.on_failure is not None:
        on_failure = LEFT_OUT if row.on_failure == LEFT_OUT else float(row.on_failure)
    by: Compare = "median" if row.by_median else "mean"
    passes = row.figure if read_passes(row.figure) else None
    figure = cast("Figure | None", None if passes else row.figure)
    return Measure(row.better, row.declared, by, row.low, row.high, on_failure, figure, passes)


def node_runs_by_id(database: Database, ids: Sequence[str]) -> list[NodeRunRow]:
    condition = among(node_runs.c.id, ids, on_sqlite=database.is_sqlite)
    query = sa.select(*node_run_columns).where(condition).order_by(node_runs.c.started_at)
    return _with_ordered_writes(database, database.records(NodeRunRow, query))


def attempt_rows(database: Database, node_run_ids: Sequence[str]) -> list[AttemptRow]:
    """Return the attempts of node runs, in the order of their numbers."""
    columns = [attempt_column(column.name) for column in attempts.c]
    condition = among(node_runs.c.id, node_run_ids, on_sqlite=database.is_sqlite)
    query = sa.select(*columns).select_from(node_runs_with_attempts).where(condition, is_attempt)
    return database.records(AttemptRow, query.order_by(node_runs.c.id, attempts.c.number))


def call_rows(database: Database, node_run_ids: Sequence[str]) -> list[CallRow]:
    return _records_with(database, CallRow, calls.c.node_run_id, node_run_ids, calls.c.at)


def invocation_rows(database: Database, node_run_ids: Sequence[str]) -> list[InvocationRow]:
    """Return calls of tools, in the order in which they were made."""
    return _records_with(
        database, InvocationRow, invocations.c.node_run_id, node_run_ids, invocations.c.at, *invocations.primary_key
    )


def _records_with(
    database: Database, kind: type[R], column: sa.Column[Any], keys: Sequence[str], *order: sa.ColumnElement[Any]
) -> list[R]:
    """Return the rows of a column's table in which it has one of these values."""
    condition = among(column, keys, on_sqlite=database.is_sqlite)
    return database.records(kind, sa.select(column.table).where(condition).order_by(*order))


def event_rows(
    database: Database,
    sweep_id: str,
    *,
    kinds: Sequence[str] = (),
    severities: Sequence[str] = (),
    execution: str | None = None,
    after: LogPosition = START,
    limit: int | None = None,
) -> list[EventRow]:
    """List events of a sweep in the order in which they became visible.

    A reader that continues from the last row misses none: on PostgreSQL only rows of transactions older than every
    running one are shown, since numbers from a sequence commit out of order.

    Args:
        database: The database.
        sweep_id: The sweep.
        kinds: The beginnings of their kinds; by default all.
        severities: Their severities; by default all.
        execution: The execution that the events are about.
        after: The (transaction, id) of the last event that was read.
        limit: Maximum number.

    Returns:
        Rows of `events`.
    """
    with database.read() as connection:
        rows = log_rows(
            connection,
            sweep_id,
            kinds=kinds,
            severities=severities,
            executions=None if execution is None else [execution],
            after=after,
            limit=limit,
            is_settled=True,
        )
        return list(rows)
