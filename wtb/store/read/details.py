"""Queries for views: single cells, checkpoints and decisions, histories of executions, and references of people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import sqlalchemy as sa

from wtb.core.arguments import checked
from wtb.core.errors import InputError, NotFound, meant_or_known
from wtb.core.failures import Failure
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import ExecutionHistory
from wtb.core.tree.recorded_runs import Decision, RecordedRun
from wtb.store.access.projects import in_scope
from wtb.store.bulk import equal, fetch_among
from wtb.store.cell_status import cell_columns, cell_status, cells_and_running, of_place
from wtb.store.database import Database
from wtb.store.log import derived_counts, row_counts
from wtb.store.read import lineage, queries
from wtb.store.read.lineage import of_same_case
from wtb.store.read.queries import as_bytes, as_checkpoint, rows_by_id, state_order, stored_bytes, the_one
from wtb.store.records import FoundCell
from wtb.store.tables.executions import CheckpointRow, DecisionRow, ExecutionRow
from wtb.store.tables.node_runs import AttemptRow, NodeRunRow
from wtb.store.tables.results import CellRow, ScoreRow
from wtb.store.tables.schema import (
    cases,
    cells,
    checkpoints,
    decisions,
    events,
    executions,
    is_case,
    is_visible,
    scores,
    sweeps,
    values,
)
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.shared_types import Severity


def cells_like(
    database: Database,
    sweep_id: str,
    *,
    case: str | None = None,
    repeat: int | None = None,
    combinations: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[FoundCell]:
    """Return cells of a sweep, each with its case's id, its status and the execution that holds it."""
    query = (
        sa.select(cells.c.combination, cells.c.repeat, cell_status, cells.c.execution_id, cases.c.id.label("case"))
        .select_from(cells_and_running)
        .join(cases, sa.and_(cases.c.sweep_id == cells.c.sweep_id, cases.c.number == cells.c.case_number))
        .where(cells.c.sweep_id == sweep_id)
        .order_by(cells.c.case_number, cells.c.repeat, cells.c.combination)
        .limit(limit)
    )
    query = query.where(*equal({cells.c.repeat: repeat}), *([] if case is None else [is_case(case)]))
    if combinations is not None:
        query = query.where(cells.c.combination.in_(combinations))
    return database.records(FoundCell, query)


def execution_cells(database: Database, execution: ExecutionRow) -> list[CellRow]:
    """Return the cells that an execution holds, by combination, without those that a retry continues."""
    query = (
        sa.select(*cell_columns)
        .select_from(cells_and_running)
        .where(*of_place(cells, execution), cells.c.execution_id == execution.id)
        .order_by(cells.c.combination)
    )
    return database.records(CellRow, query)


def execution_scores(database: Database, execution: ExecutionRow) -> list[ScoreRow]:
    """Return the scores of the cells of an execution's case and repeat."""
    return database.records(ScoreRow, sa.select(scores).where(*of_place(scores, execution)))


def children(database: Database, execution_id: str) -> list[ExecutionRow]:
    """Return the executions that a fork or a retry made from one."""
    query = sa.select(executions).where(*of_same_case(execution_id), executions.c.parent_id == execution_id)
    return database.records(ExecutionRow, query.order_by(executions.c.id))


def find_checkpoint(database: Database, ref: str) -> tuple[Checkpoint, str]:
    """Return a checkpoint, by its id or the beginning of its id, and its sweep. Raises InputError."""
    query = sa.select(checkpoints).join(sweeps, sweeps.c.id == checkpoints.c.sweep_id).where(is_visible)
    query = query.where(*in_scope(database, sweeps))
    hint = "`wtb history EXECUTION` lists those of an execution"
    rows = rows_by_id(database, CheckpointRow, query, checkpoints.c.id, ref)
    row = the_one({row.id: row for row in rows}, ref, "checkpoint", hint)
    return as_checkpoint(row, state_order(database, row.sweep_id)), row.sweep_id


def execution_of(database: Database, checkpoint_id: str) -> str:
    """Return the id of the execution that took a checkpoint."""
    query = sa.select(checkpoints.c.execution_id).where(checkpoints.c.id == checkpoint_id)
    return str(database.scalar(query))


def decision_rows(database: Database, checkpoint_ids: Sequence[str]) -> list[DecisionRow]:
    """Return the decisions that led to checkpoints, by checkpoint."""
    query = (
        sa.select(decisions)
        .where(decisions.c.checkpoint_id.in_(list(checkpoint_ids)))
        .order_by(decisions.c.checkpoint_id, decisions.c.number)
    )
    return database.records(DecisionRow, query)


_is_of_case = sa.and_(executions.c.sweep_id == cases.c.sweep_id, executions.c.case_number == cases.c.number)


def execution_case(database: Database, execution_id: str) -> tuple[str, int]:
    """Return the id of an execution's case, and its repeat."""
    query = sa.select(cases.c.id, executions.c.repeat).join(executions, _is_of_case)
    ((case, repeat),) = database.tuples(query.where(executions.c.id == execution_id))
    return case, repeat


def cases_of(database: Database, execution_ids: Sequence[str]) -> dict[str, str]:
    """Return the ids of executions' cases, by execution."""
    query = sa.select(executions.c.id, cases.c.id).join(cases, _is_of_case)
    return dict(database.rows_among(query, executions.c.id, execution_ids))


def check_case(database: Database, sweep_id: str, case: str) -> None:
    """Check that a sweep has a case of this id. Raises InputError with near matches, or with the cases that it has."""
    query = sa.select(cases.c.id).where(cases.c.sweep_id == sweep_id)
    with database.read() as connection:
        if connection.scalar(query.where(is_case(case))) is None:
            ids = list(connection.scalars(query.order_by(cases.c.number).limit(1000)))
            raise InputError(f"the sweep has no case {case!r}{meant_or_known(case, ids)}")


def stored_values(database: Database, digests: Iterable[str]) -> dict[str, bytes]:
    """Return the values that are stored among some digests; `queries.load_values` raises an error for missing ones."""
    with database.read() as connection:
        rows = fetch_among(connection, sa.select(values.c.digest, stored_bytes(database)), values.c.digest, digests)
        return {digest: as_bytes(content) for digest, content in rows}


class CountedEvents(NamedTuple):
    """The number of events of a kind and severity."""

    kind: str
    severity: Severity
    number: int


def event_counts(database: Database, sweep_id: str, execution: str | None = None) -> list[CountedEvents]:
    """Return the numbers of events of each kind and severity."""
    query = (
        sa.select(events.c.kind, events.c.severity, sa.func.count().label("count"))
        .where(events.c.sweep_id == sweep_id)
        .group_by(events.c.kind, events.c.severity)
        .order_by(events.c.kind, events.c.severity)
    )
    query = query.where(*equal({events.c.execution_id: execution}))
    with database.read() as connection:
        counts = {(kind, severity): count for kind, severity, count in connection.execute(query)}
        for kind, count in derived_counts(connection, sweep_id, execution).items():
            counts[kind, "info"] = counts.get((kind, "info"), 0) + count
    return [CountedEvents(*key, counts[key]) for key in sorted(counts)]


def belongings(database: Database, sweep_id: str) -> dict[str, int]:
    """Return the numbers of rows of each kind that belong to a sweep."""
    with database.read() as connection:
        counts, derived = row_counts(connection, sweep_id)
        for table in (cells, scores, events):
            count = sa.select(sa.func.count()).where(table.c.sweep_id == sweep_id)
            counts[table.name] = connection.scalar(count) or 0
    counts["events"] += sum(derived.values())
    return {name: counts[name] for name in ("cells", "executions", "checkpoints", "node_runs", "scores", "events")}


def read_line(database: Database, head_id: str | None) -> ExecutionHistory:
    """Read the line that leads to a checkpoint, with the node runs that wrote it."""
    line = queries.line(database, head_id) if head_id else []
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    runs = {row.id: _run(row, None) for row in queries.node_runs_by_id(database, ids)}
    return ExecutionHistory(line, runs=runs)


def read_execution(database: Database, row: ExecutionRow) -> ExecutionHistory:
    """Read the line of an execution, and the node runs at its head that have not succeeded."""
    history = replace(read_line(database, row.head_id), execution=row.id)
    if history.latest is None or row.status in ("forked", "completed"):
        return history
    variants = _chosen_variants(database, row, history.latest.position.next)
    rows = queries.node_runs_from(database, history.latest.id)
    return replace(
        history, unfinished=_runs(database, [run for run in rows if run.variant in variants.get(run.node, ())])
    )


def read_history(database: Database, row: ExecutionRow) -> ExecutionHistory:
    """Read the whole history of an execution, including checkpoints inside its nodes and on lines that rollbacks
    left.
    """
    history = with_reasons(database, row.sweep_id, read_execution(database, row))
    left_behind, inside = _beside(database, row, history)
    return with_notes(database, row.sweep_id, replace(history, inside=inside, left=left_behind))


def with_reasons(database: Database, sweep_id: str, history: ExecutionHistory) -> ExecutionHistory:
    """Add the decisions of a history, and the events by which people made checkpoints."""
    by_hand = [checkpoint.id for checkpoint in history if checkpoint.trigger == "manual" and not checkpoint.writers]
    decisions: dict[str, list[Decision]] = {}
    for row in decision_rows(database, [checkpoint.id for checkpoint in history]):
        edges = None if row.tried is None else [(to, when, is_taken) for to, when, is_taken in row.tried]
        decisions.setdefault(row.checkpoint_id, []).append(Decision(row.node, row.to, row.key, row.why, edges))
    return replace(history, decisions=decisions, manual_events=lineage.made_by_people(database, sweep_id, by_hand))


def with_notes(database: Database, sweep_id: str, history: ExecutionHistory) -> ExecutionHistory:
    """Add the notes of checkpoints that people named."""
    named = [c.id for c in (*history, *history.inside, *history.left) if c.name is not None]
    return replace(history, notes=lineage.notes(database, sweep_id, named))


def _beside(
    database: Database, row: ExecutionRow, history: ExecutionHistory
) -> tuple[list[Checkpoint], list[Checkpoint]]:
    """Return the checkpoints of lines that rollbacks left, and those inside nodes, under the variants of the
    execution.
    """
    with database.read() as connection:
        rollbacks = lineage.rollbacks_of(connection, [row.id])
        marks = lineage.marks(connection, [rollback.from_id for rollback in rollbacks])
        on_line = {checkpoint.id for checkpoint in history}
        elsewhere = [id for id in marks if id not in on_line]
        query = sa.select(checkpoints.c.parent_id, checkpoints.c.id).where(checkpoints.c.inside.is_not(None))
        within = list(fetch_among(connection, query, checkpoints.c.parent_id, [*on_line, *elsewhere]))
    known_ids = on_line.union(elsewhere)
    inside_nodes = _checkpoints(database, [id for _, id in within if id not in known_ids])
    nodes = {checkpoint.inside.node for checkpoint in inside_nodes if checkpoint.inside is not None}
    variants = _chosen_variants(database, row, sorted(nodes))
    return _checkpoints(database, elsewhere), [
        checkpoint
        for checkpoint in inside_nodes
        if checkpoint.inside is not None and checkpoint.inside.variant in variants[checkpoint.inside.node]
    ]


def _checkpoints(database: Database, ids: Sequence[str]) -> list[Checkpoint]:
    """Read checkpoints by id, oldest first."""
    if not ids:
        return []
    rows = [CheckpointRow(*row) for row in database.rows_among(sa.select(checkpoints), checkpoints.c.id, ids)]
    rows.sort(key=lambda row: (row.created_at, row.id))
    return [queries.as_checkpoint(row, queries.state_order(database, row.sweep_id)) for row in rows]


def _chosen_variants(database: Database, row: ExecutionRow, nodes: Sequence[str]) -> Mapping[str, set[str | None]]:
    """Return the variants of nodes that an execution runs, by node."""
    if not nodes:
        return {}
    choices = queries.choices_of_execution(database, row)
    sweep = queries.find_sweep(database, row.sweep_id)
    graph = queries.workflow_graph(database, sweep.workflow_id)
    defaults = {node["name"]: node["default"] for node in graph.get("nodes", ())}
    return {node: {choice.get(node, defaults.get(node)) for choice in choices} for node in nodes}


def _runs(database: Database, rows: Sequence[NodeRunRow]) -> list[RecordedRun]:
    """Return node runs with the failures of the last attempts of those that have not succeeded."""
    open_ids = [row.id for row in rows if row.status != "succeeded"]
    last = {attempt.node_run_id: attempt for attempt in queries.attempt_rows(database, open_ids)} if open_ids else {}
    return [_run(row, last.get(row.id)) for row in rows]


def _run(row: NodeRunRow, last: AttemptRow | None) -> RecordedRun:
    """Return a node run; if it has not succeeded, its error and end are those of its last attempt."""
    status, error, ended_at = row.status, None, row.ended_at
    if row.status == "succeeded" and ended_at is None:
        ended_at = row.started_at + row.duration_s
    if last is not None and last.failure is not None:
        failure = Failure(**last.failure)
        if row.status == "running" and failure.kind == "waiting":
            status = "waiting"
        elif row.status != "running":
            error, ended_at = str(failure), last.started_at + last.duration_s
    return RecordedRun(
        row.id,
        row.task,
        row.node,
        row.variant,
        row.visit,
        status,
        row.started_at,
        row.duration_s,
        ended_at,
        row.attempts,
        row.cells,
        row.usd,
        row.tokens_in,
        row.tokens_out,
        row.writes or {},
        error,
        row.lag_s,
    )


TargetKind = Literal["sweep", "execution"]


class SweepTarget(NamedTuple):
    """A referenced sweep.

    Attributes:
        row: Its row.
    """

    row: SweepRow
    kind: Literal["sweep"] = "sweep"

    @property
    def id(self) -> str:
        """Its id."""
        return self.row.id

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"sweep {self.row.name} ({self.id})"


class ExecutionTarget(NamedTuple):
    """A referenced execution.

    Attributes:
        row: Its row.
    """

    row: ExecutionRow
    kind: Literal["execution"] = "execution"

    @property
    def id(self) -> str:
        """Its id."""
        return self.row.id

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"execution {self.id}"


Target = SweepTarget | ExecutionTarget


@checked
def find(database: Database, ref: str) -> Target:
    """Find the sweep or the execution of a reference.

    Args:
        database: The database.
        ref: An id, the beginning of one, or the name of a sweep.

    Returns:
        The sweep or the execution.

    Raises:
        InputError: If there is none, or if there are several.
    """
    try:
        return SweepTarget(queries.find_sweep(database, ref))
    except InputError as no_sweep:
        try:
            return ExecutionTarget(queries.find_execution(database, ref))
        except InputError as no_execution:
            # A reference that is ambiguous among executions is a better message than that no sweep has it.
            several = [text for text in no_execution.problems if "several" in text]
            raise (InputError(*several) if several else no_sweep) from None


@checked
def find_target(database: Database, ref: str) -> Target:
    """Find a sweep or an execution to act on, as `find` does; for a single execution it is the execution."""
    target = find(database, ref)
    # People know a single execution by the id of its sweep.
    if target.kind == "sweep" and target.row.kind == "single":
        return ExecutionTarget(queries.single_execution(database, target.id))
    return target


@checked
def find_one(database: Database, ref: str) -> ExecutionRow:
    """Find an execution by its id, the beginning of it, or a name that stands for a single one.

    For a retried single execution, and for a sweep with one cell, it is the execution that holds the cell now.

    Raises:
        InputError: If there is none, or it is a sweep of several cells.
    """
    try:
        target = find_target(database, ref)
    except InputError as error:
        if any("several" in text for text in error.problems):
            raise
        text = f"there is no execution {ref!r}; `wtb show SWEEP --cells` lists those of a sweep"
        raise NotFound(text, kind="execution") from None
    if target.kind == "sweep" and target.row.cells == 1:
        return queries.single_execution(database, target.id)
    if target.kind == "sweep":
        raise InputError(
            f"{ref!r} is the {target}, which has many executions; name one of them "
            f"(`wtb show {target.id} --cells` lists them)"
        )
    return target.row
