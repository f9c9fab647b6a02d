"""Spent amounts, grouped by dimensions: those of attempts, of their calls, and of records that were removed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from wtb.core.scoring.unknown_costs import UnknownCost
from wtb.store.access.projects import in_scope
from wtb.store.access.usage import total
from wtb.store.bulk import equal
from wtb.store.cell_status import attempt_column, is_attempt, of_node_run
from wtb.store.database import Database
from wtb.store.tables.column_types import error_in_json
from wtb.store.tables.schema import (
    ALERTING,
    attempts,
    calls,
    events,
    executions,
    invocations,
    is_visible,
    node_runs,
    sessions,
    sweeps,
    workflows,
)

DIMENSIONS: Final = ("project", "session", "sweep", "workflow", "node", "variant", "model", "tool")
COLLECTED, DELETED = "(collected)", "(deleted)"
_OF_SWEEPS = ("project", "session", "sweep", "workflow")
# Calls of tools: declared ones, which rollbacks can reverse, and ones that were only recorded.
_TOOLS = sa.union_all(
    sa.select(
        calls.c.node_run_id,
        calls.c.attempt.label("number"),
        *(calls.c[name] for name in ("tool", "usd", "tokens_in", "tokens_out", "duration_s")),
        sa.case((error_in_json(calls.c.response).is_not(None), 1), else_=0).label("failed"),
        sa.literal(0).label("reversed"),
    ).where(calls.c.tool.is_not(None)),
    sa.select(
        invocations.c.node_run_id,
        invocations.c.attempt,
        invocations.c.tool,
        sa.literal(0.0),
        sa.literal(0),
        sa.literal(0),
        invocations.c.duration_s,
        sa.case((invocations.c.status == "failed", 1), else_=0),
        sa.case((invocations.c.status == "undone", 1), else_=0),
    ),
).subquery("tools")
_COLUMNS: Final[dict[str, sa.ColumnElement[Any]]] = {
    "project": sweeps.c.project,
    "session": sessions.c.name,
    "sweep": sweeps.c.id,
    "sweep_name": sweeps.c.name,
    "workflow": workflows.c.name,
    "node": node_runs.c.node,
    "variant": node_runs.c.variant,
    "model": calls.c.model,
    "tool": _TOOLS.c.tool,
}
_SWEEPS = sweeps.join(sessions, sessions.c.id == sweeps.c.session_id).join(
    workflows, workflows.c.id == sweeps.c.workflow_id
)
_ATTEMPTS = _SWEEPS.join(node_runs, node_runs.c.sweep_id == sweeps.c.id).outerjoin(attempts, of_node_run)
_NUMBER = attempt_column("number")
_CALLS = _ATTEMPTS.join(calls, sa.and_(calls.c.node_run_id == node_runs.c.id, calls.c.attempt == _NUMBER))
_OF_TOOLS = _ATTEMPTS.join(_TOOLS, sa.and_(_TOOLS.c.node_run_id == node_runs.c.id, _TOOLS.c.number == _NUMBER))
_IS_LOST = (
    sa.func.coalesce(attempts.c.failure["kind"].as_string(), "") == "lost"
)  # ended by the failure of another attempt
_HAS_FAILED = attempt_column("status") == "failed"
_LOST = sa.and_(_HAS_FAILED, _IS_LOST)
_FAILED = sa.and_(_HAS_FAILED, ~_IS_LOST)


@dataclass(frozen=True)
class Spent:
    """The amounts that were spent for one group.

    Attributes:
        names: The names of the group by dimension; for a sweep `sweep_name`, too.
        figures: The known amounts by kind.
    """

    names: Mapping[str, str | None]
    figures: Mapping[str, float | None]

    def key(self, by: Sequence[str]) -> tuple[str | None, ...]:
        """Return the names of the group in some dimensions."""
        return tuple(self.names[name] for name in by)

    def amount(self, figure: str) -> float:
        """Return an amount; 0 if it is unknown."""
        return self.figures.get(figure) or 0

    def but(self, **figures: float | None) -> Spent:
        """Return the same group with other amounts."""
        return Spent(self.names, {**self.figures, **figures})


def models_called(database: Database, sweep_id: str) -> list[tuple[str, str, str]]:
    """Return (node, variant, model) of the recorded calls of a sweep."""
    query = (
        sa.select(node_runs.c.node, node_runs.c.variant, calls.c.model)
        .join(calls, calls.c.node_run_id == node_runs.c.id)
        .where(node_runs.c.sweep_id == sweep_id, calls.c.model.is_not(None))
        .distinct()
    )
    return [(str(node), str(variant), str(model)) for node, variant, model in database.tuples(query)]


def unknown_costs(database: Database, sweep_id: str) -> list[UnknownCost]:
    """Return the reasons for unknown costs of a sweep, each once, in the order of their recording."""
    is_recorded = events.c.sweep_id == sweep_id, events.c.kind == "cost.unknown"
    # Such events are about the sweep itself, for which there is a partial index, so that no long log is read.
    query = sa.select(events.c.data).where(*is_recorded, sa.text(f"({ALERTING})")).order_by(events.c.id)
    reasons: dict[tuple[str, str, str, str], UnknownCost] = {}
    for (details,) in database.tuples(query):
        reason: UnknownCost = {key: details[key] for key in ("node", "variant", "cause", "what")}  # type: ignore[assignment]
        reasons.setdefault((reason["node"], reason["variant"], reason["cause"], reason["what"]), reason)
    return list(reasons.values())


def last_sweep_of(database: Database, workflow: str) -> str | None:
    """Return the id of the newest sweep of a workflow, by the workflow's name."""
    query = sa.select(sweeps.c.id).select_from(_SWEEPS).where(workflows.c.name == workflow, is_visible)
    query = query.where(*in_scope(database, sweeps)).order_by(sweeps.c.created_at.desc()).limit(1)
    return database.scalar(query)


def unknown_costs_of(database: Database, which: Which) -> list[UnknownCost]:
    """Return the reasons for unknown costs of all selected sweeps."""
    query = sa.select(sweeps.c.id).where(is_visible, *in_scope(database, sweeps))
    query = query.where(*equal({sweeps.c.id: which.sweep_id, sweeps.c.project: which.project}))
    if which.execution_id is not None:
        of = sa.select(executions.c.sweep_id).where(executions.c.id == which.execution_id)
        query = query.where(sweeps.c.id.in_(of))
    if which.since is not None:
        query = query.where(sa.func.coalesce(sweeps.c.finished_at, which.since) >= which.since)
    recorded = sa.exists().where(
        events.c.sweep_id == sweeps.c.id, events.c.kind == "cost.unknown", sa.text(f"({ALERTING})")
    )
    reasons = [reason for (id,) in database.tuples(query.where(recorded)) for reason in unknown_costs(database, id)]
    return [reason for place, reason in enumerate(reasons) if reason not in reasons[:place]]


@dataclass(frozen=True)
class Which:
    """A selection of costs; None selects all. `since` selects attempts that started then or later, in seconds."""

    sweep_id: str | None = None
    execution_id: str | None = None
    project: str | None = None
    since: float | None = None

    @property
    def is_everything(self) -> bool:
        """True if it selects everything."""
        return self == Which()

    @property
    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """The conditions of the selection."""
        selected = equal({sweeps.c.id: self.sweep_id, sweeps.c.project: self.project})
        selected += equal({node_runs.c.execution_id: self.execution_id})
        since = [] if self.since is None else [attempt_column("started_at") >= self.since]
        return [is_visible, *selected, *since]


def of_attempts(database: Database, by: Sequence[str], which: Which) -> list[Spent]:
    """Sum up attempts by dimensions other than the model.

    The amounts are usd, tokens_in, tokens_out and attempts, and separately those of failed and of lost attempts.
    """
    under_way = sa.and_(node_runs.c.status == "running", node_runs.c.attempts == _NUMBER)
    failed, usd = sa.and_(_FAILED, ~under_way), attempt_column("usd")
    figures = {
        "usd": sa.func.sum(usd),
        "tokens_in": total(attempt_column("tokens_in")),
        "tokens_out": total(attempt_column("tokens_out")),
        "attempts": sa.func.count(),
        "failed_attempts": sa.func.sum(sa.case((failed, 1), else_=0)),
        "failed_usd": sa.func.sum(sa.case((failed, usd), else_=0.0)),
        "innocent_attempts": sa.func.sum(sa.case((_LOST, 1), else_=0)),
        "innocent_usd": sa.func.sum(sa.case((_LOST, usd), else_=0.0)),
    }
    return _sums(database, _named(by), figures, _ATTEMPTS, [is_attempt, *in_scope(database, sweeps), *which.conditions])


def of_calls(database: Database, by: Sequence[str], which: Which) -> list[Spent]:
    """Sum up calls by dimensions: usd, tokens_in, tokens_out, calls, failed_usd and innocent_usd.

    The model is None if a call names none.
    """
    figures = {
        "usd": sa.func.sum(calls.c.usd),
        "tokens_in": total(calls.c.tokens_in),
        "tokens_out": total(calls.c.tokens_out),
        "calls": sa.func.count(),
        "failed_usd": sa.func.sum(sa.case((_FAILED, calls.c.usd), else_=0.0)),
        "innocent_usd": sa.func.sum(sa.case((_LOST, calls.c.usd), else_=0.0)),
    }
    return _sums(database, _named(by), figures, _CALLS, [is_attempt, *in_scope(database, sweeps), *which.conditions])


def of_tools(database: Database, by: Sequence[str], which: Which) -> list[Spent]:
    """Sum up calls of tools by dimensions other than the model.

    The amounts are usd, tokens_in, tokens_out, calls, failed_calls, duration_s and reversed_calls, which rollbacks
    undid.
    """
    figures = {
        "usd": sa.func.sum(_TOOLS.c.usd),
        "tokens_in": total(_TOOLS.c.tokens_in),
        "tokens_out": total(_TOOLS.c.tokens_out),
        "calls": sa.func.count(),
        "failed_calls": total(_TOOLS.c.failed),
        "duration_s": sa.func.sum(sa.func.coalesce(_TOOLS.c.duration_s, 0.0)),
        "reversed_calls": total(_TOOLS.c.reversed),
    }
    return _sums(database, _named(by), figures, _OF_TOOLS, [is_attempt, *in_scope(database, sweeps), *which.conditions])


def of_collected(database: Database, by: Sequence[str], which: Which) -> list[Spent]:
    """Return the usd of attempts that `wtb admin gc` removed, whose nodes and times are not known any more."""
    if which.since is not None or which.execution_id is not None:
        return []
    names = [name for name in _named(by) if name in (*_OF_SWEEPS, "sweep_name")]
    figures = {"usd": sa.func.sum(sweeps.c.collected_usd)}
    rows = _sums(
        database, names, figures, _SWEEPS, [sweeps.c.collected_usd > 0, *in_scope(database, sweeps), *which.conditions]
    )
    return [_unknown(row, by, COLLECTED) for row in rows]


def of_deleted(database: Database, by: Sequence[str], which: Which) -> list[Spent]:
    """Return the usd of deleted sweeps, of which only the session is known."""
    if not which.is_everything:
        return []
    names = [name for name in by if name == "session"]
    figures = {"usd": sa.func.sum(sessions.c.deleted_usd)}
    rows = _sums(database, names, figures, sessions, [sessions.c.deleted_usd > 0, *in_scope(database, sessions)])
    return [_unknown(row, by, DELETED) for row in rows]


class CaseTotal(NamedTuple):
    """The amounts that were spent for a case: `work_s` of all attempts, `node_runs` of accepted ones."""

    usd: float
    tokens: int
    work_s: float
    node_runs: int


def case_totals(database: Database, sweep_id: str) -> list[CaseTotal]:
    """Return the amounts that were spent for each case in which anything ran, in the order of their numbers."""
    mine = node_runs.c.sweep_id == sweep_id
    runs = node_runs.join(executions, executions.c.id == node_runs.c.execution_id)
    accepted = (
        sa.select(executions.c.case_number, sa.func.count().label("node_runs"))
        .select_from(runs)
        .where(mine, node_runs.c.status == "succeeded")
        .group_by(executions.c.case_number)
    )
    of_attempts = (
        sa.select(
            executions.c.case_number,
            sa.func.sum(attempt_column("usd")).label("usd"),
            total(attempt_column("tokens_in") + attempt_column("tokens_out")).label("tokens"),
            sa.func.sum(attempt_column("duration_s")).label("work_s"),
        )
        .select_from(runs.outerjoin(attempts, of_node_run))
        .where(mine, is_attempt)
        .group_by(executions.c.case_number)
        .order_by(executions.c.case_number)
    )
    with database.read() as connection:
        counts = {row[0]: row[1] for row in connection.execute(accepted)}
        rows = connection.execute(of_attempts).all()
    return [CaseTotal(usd, tokens, work_s, counts.get(number, 0)) for number, usd, tokens, work_s in rows]


def _unknown(spent: Spent, by: Sequence[str], word: str) -> Spent:
    """Return amounts of removed records by the requested dimensions, with a word for unknown names."""
    return Spent({name: spent.names.get(name, word) for name in _named(by)}, spent.figures)


def _named(by: Sequence[str]) -> list[str]:
    """Return the columns of dimensions; a sweep has its name, too."""
    return [*by, *(["sweep_name"] if "sweep" in by else [])]


def _sums(
    database: Database,
    names: Sequence[str],
    figures: Mapping[str, sa.ColumnElement[Any]],
    source: sa.FromClause,
    conditions: Sequence[sa.ColumnElement[bool]],
) -> list[Spent]:
    """Sum up amounts by the columns of these names; groups without any known amount are left out."""
    query = (
        sa.select(*(_COLUMNS[name].label(name) for name in names))
        .add_columns(*(figure.label(name) for name, figure in figures.items()))
        .select_from(source)
        .where(*conditions)
        .group_by(*(_COLUMNS[name] for name in names))
    )
    summed = [
        Spent(dict(zip(names, row[: len(names)], strict=True)), dict(zip(figures, row[len(names) :], strict=True)))
        for row in database.tuples(query, long=True)
    ]
    # Without a GROUP BY, a query over no rows still returns one row, of NULLs.
    return [spent for spent in summed if spent.figures["usd"] is not None]


class MeasuredRuns(NamedTuple):
    """The cost and the seconds that accepted node runs of a variant took in a sweep, in sum."""

    sweep_id: str
    node: str
    variant: str
    node_runs: int
    usd: float
    seconds: float


def recent_sweeps(database: Database, workflow: str, limit: int) -> list[str]:
    """Return the ids of the newest sweeps of a workflow, by its name, without copies of others."""
    is_copy = sweeps.c.spec["copied_from"].as_string().is_not(None)
    query = sa.select(sweeps.c.id).select_from(_SWEEPS)
    query = query.where(workflows.c.name == workflow, is_visible, ~is_copy, *in_scope(database, sweeps))
    return [id for (id,) in database.tuples(query.order_by(sweeps.c.created_at.desc()).limit(limit))]


def measured_runs(database: Database, sweep_ids: Sequence[str]) -> list[MeasuredRuns]:
    """Return the cost and the seconds of the accepted node runs of sweeps, by sweep, node and variant."""
    by = node_runs.c.sweep_id, node_runs.c.node, node_runs.c.variant
    query = (
        sa.select(*by, sa.func.count(), sa.func.sum(node_runs.c.usd), sa.func.sum(node_runs.c.duration_s))
        .where(node_runs.c.sweep_id.in_(list(sweep_ids)), node_runs.c.status == "succeeded")
        .group_by(*by)
    )
    return [
        MeasuredRuns(id, node, variant, int(count), float(usd), float(seconds))
        for id, node, variant, count, usd, seconds in database.tuples(query)
    ]


def mean_seconds(measured: Iterable[MeasuredRuns]) -> dict[tuple[str, str], float]:
    """Return the mean seconds of node runs by node and variant."""
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for row in measured:
        count, seconds = sums.get((row.node, row.variant), (0, 0.0))
        sums[row.node, row.variant] = count + row.node_runs, seconds + row.seconds
    return {key: seconds / count for key, (count, seconds) in sums.items()}


def mean_usd_by_node(database: Database, sweep_id: str, original_id: str | None = None) -> dict[str, float]:
    """Return the mean cost of the accepted node runs of a sweep, by node; nodes that did not run are left out.

    Args:
        database: The database.
        sweep_id: The sweep.
        original_id: The sweep that it is a copy of, if it is one. Copied node runs have their costs there.
    """
    own = node_runs.c.sweep_id == sweep_id
    if original_id is not None:
        own = sa.or_(node_runs.c.sweep_id == original_id, sa.and_(own, node_runs.c.usd > 0))
    query = (
        sa.select(node_runs.c.node, sa.func.avg(node_runs.c.usd))
        .where(own, node_runs.c.status == "succeeded")
        .group_by(node_runs.c.node)
    )
    return {node: float(mean) for node, mean in database.tuples(query)}
