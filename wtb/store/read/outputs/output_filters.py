"""Which repeats of cases match filters, and in which order: decided by the database, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import orjson
import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.status import FAILED_CELLS
from wtb.core.tree.checkpoints import HIDDEN
from wtb.store.database import Database
from wtb.store.tables.column_types import BinaryJson
from wtb.store.tables.schema import cases, cells, checkpoints, executions, is_kept, scores, values

_EQUAL = 1e-9  # scores that are as near are equal
Place = tuple[int, int]  # number of a case, repeat


@frozen
class WorstFirst:
    """The order by the mean of the scores of the combinations, the worst first.

    Attributes:
        metric: Whose scores.
        lower: Whether lower scores are better.
        failure: The score of a failed cell; None to leave it out.
    """

    metric: str
    lower: bool
    failure: float | None


@frozen
class WrongIn:
    """How many combinations of the sweep are wrong for a case: all of them, or none.

    A cell is wrong if it failed, or if its score is worse than the best one of the scale. Cells without a score do not
    count.

    Attributes:
        which: Of the combinations.
        metric: Whose scores.
        lower: Whether lower scores are better.
        best: The best score of the scale.
    """

    which: Literal["all", "none"]
    metric: str
    lower: bool
    best: float


@frozen
class OutputFilters:
    """Which repeats of cases are looked for. All filters must hold.

    Attributes:
        rows: The numbers of the combinations that are looked at.
        keys: Keys of the state in which outputs are compared and searched; all if empty.
        failed: Only if a cell failed.
        differ: Only if these two combinations returned different outputs.
        tag: Only of cases with this tag.
        text: Only if this text is in the case, in an output or in the message of a failure, in any case of letters.
        cases: Only of the cases with these ids; all if empty.
        worst: The order; None for the order of the cases.
        wrong: Only of these.
    """

    rows: Sequence[int]
    keys: Sequence[str] = ()
    failed: bool = False
    differ: tuple[int, int] | None = None
    tag: str | None = None
    text: str | None = None
    cases: Sequence[str] = ()
    worst: WorstFirst | None = None
    wrong: WrongIn | None = None


def matching_places(
    database: Database, sweep_id: str, filters: OutputFilters, *, offset: int, limit: int
) -> tuple[int, list[Place]]:
    """Find repeats of cases that match.

    Args:
        database: The database.
        sweep_id: The sweep.
        filters: Which.
        offset: How many of them to skip.
        limit: How many of them to return at most.

    Returns:
        How many match in all, and those of the page in order.
    """
    matching = _places(database, sweep_id, filters)
    places = matching.subquery("places")
    count = sa.select(sa.func.count()).select_from(places)
    if filters.worst is None:  # in the order of the index, so that only what comes before the end of the page is read
        page = matching.order_by(cells.c.case_number, cells.c.repeat)
    else:
        page = _worst_first(places, _means(sweep_id, filters.rows, filters.worst), filters.worst)
    with database.read(long=True) as connection:
        total = connection.scalar(count) or 0
        found = connection.execute(page.offset(offset).limit(limit)).all()
    return total, [(number, repeat) for number, repeat in found]


def _worst_first(places: sa.Subquery, means: sa.Select[Any], worst: WorstFirst) -> sa.Select[Any]:
    """Select repeats of cases by their mean scores; those without a score come last."""
    mean = means.subquery("means")
    same = sa.and_(mean.c.case_number == places.c.case_number, mean.c.repeat == places.c.repeat)
    score = mean.c.score.desc() if worst.lower else mean.c.score.asc()
    page = sa.select(places.c.case_number, places.c.repeat).outerjoin(mean, same)
    return page.order_by(mean.c.score.is_(None), score, places.c.case_number, places.c.repeat)


def _places(database: Database, sweep_id: str, filters: OutputFilters) -> sa.Select[Any]:
    chosen = _chosen(sweep_id, filters.rows)
    query = sa.select(cells.c.case_number, cells.c.repeat).where(*chosen).distinct()
    if filters.failed:
        query = query.where(cells.c.status.in_(FAILED_CELLS))
    if filters.cases or filters.tag is not None:
        query = query.where(cells.c.case_number.in_(_cases(database, sweep_id, filters)))
    pair = sa.tuple_(cells.c.case_number, cells.c.repeat)
    if filters.wrong is not None:
        query = query.where(pair.in_(_wrong_in(sweep_id, filters.wrong)))
    if filters.differ is not None:
        query = query.where(pair.in_(_differing(sweep_id, filters.differ, filters.keys)))
    if filters.text is not None:
        pattern = _json_text(filters.text)
        outputs = _with_text(database, sweep_id, filters, pattern)
        failures = sa.select(cells.c.case_number, cells.c.repeat).where(
            *chosen, sa.cast(cells.c.failure, sa.Text).icontains(pattern, autoescape=True)
        )
        in_case = cells.c.case_number.in_(_cases_with_text(database, sweep_id, filters.text, pattern))
        query = query.where(sa.or_(in_case, pair.in_(outputs), pair.in_(failures)))
    return query


def _chosen(sweep_id: str, rows: Sequence[int]) -> list[sa.ColumnElement[bool]]:
    kept = sa.select(cases.c.number).where(cases.c.sweep_id == sweep_id, ~is_kept)
    return [cells.c.sweep_id == sweep_id, cells.c.combination.in_(list(rows)), cells.c.case_number.not_in(kept)]


def _cases(database: Database, sweep_id: str, filters: OutputFilters) -> sa.Select[Any]:
    query = sa.select(cases.c.number).where(cases.c.sweep_id == sweep_id)
    if filters.cases:
        query = query.where(cases.c.id.in_(list(filters.cases)))
    if filters.tag is not None:
        each = sa.func.json_each if database.is_sqlite else sa.func.jsonb_array_elements_text
        tag: Any = each(cases.c.tags).table_valued("value", name="tag", joins_implicitly=True)
        query = query.where(sa.exists(sa.select(sa.literal(1)).select_from(tag).where(tag.c.value == filters.tag)))
    return query


def _wrong_in(sweep_id: str, wrong: WrongIn) -> sa.Select[Any]:
    """Select the repeats of cases for which all combinations are wrong, or none is."""
    score = scores.c.value
    is_worse = score > wrong.best + _EQUAL if wrong.lower else score < wrong.best - _EQUAL
    is_wrong = sa.case((cells.c.status.in_(FAILED_CELLS), 1), (is_worse, 1), (score.is_not(None), 0))
    enough = sa.func.min(is_wrong) == 1 if wrong.which == "all" else sa.func.max(is_wrong) == 0
    return (
        sa.select(cells.c.case_number, cells.c.repeat)
        .select_from(cells)
        .outerjoin(scores, _scored_by(wrong.metric))
        .where(cells.c.sweep_id == sweep_id)
        .group_by(cells.c.case_number, cells.c.repeat)
        .having(enough)
    )


def _scored_by(metric: str) -> sa.ColumnElement[bool]:
    """Join the scores of a metric to their cells."""
    return sa.and_(
        scores.c.sweep_id == cells.c.sweep_id,
        scores.c.metric == metric,
        scores.c.case_number == cells.c.case_number,
        scores.c.repeat == cells.c.repeat,
        scores.c.combination == cells.c.combination,
    )


def _differing(sweep_id: str, rows: tuple[int, int], keys: Sequence[str]) -> sa.Select[Any]:
    """Select the repeats of cases in which two combinations ended in different ways or states."""
    one, other = cells.alias("one"), cells.alias("other")
    heads = [_head_of(cell, name) for cell, name in ((one, "one"), (other, "other"))]
    (_, _, state), (_, _, other_state) = heads
    unlike = [state[key].as_string().is_distinct_from(other_state[key].as_string()) for key in keys]
    if not keys:
        unlike = [sa.cast(state, sa.Text).is_distinct_from(sa.cast(other_state, sa.Text))]
    same = sa.and_(
        one.c.sweep_id == other.c.sweep_id, one.c.case_number == other.c.case_number, one.c.repeat == other.c.repeat
    )
    query = sa.select(one.c.case_number, one.c.repeat).join(other, same)
    for execution, on, _ in heads:
        query = query.outerjoin(execution[0], on[0]).outerjoin(execution[1], on[1])
    return query.where(
        one.c.sweep_id == sweep_id,
        one.c.combination == rows[0],
        other.c.combination == rows[1],
        sa.or_(one.c.status != other.c.status, *unlike),
    )


def _head_of(cell: sa.FromClause, name: str) -> tuple[Any, Any, sa.Column[Any]]:
    """Return the tables that lead from a cell to its final state, their conditions, and the state."""
    execution, head = executions.alias(f"execution_{name}"), checkpoints.alias(f"head_{name}")
    on = (execution.c.id == cell.c.execution_id, head.c.id == execution.c.head_id)
    return (execution, head), on, head.c.state


def _with_text(database: Database, sweep_id: str, filters: OutputFilters, pattern: str) -> sa.Select[Any]:
    """Select the repeats of cases of which an output has a text."""
    entry = _entries(database, checkpoints.c.state)
    query = (
        sa.select(cells.c.case_number, cells.c.repeat)
        .join(executions, executions.c.id == cells.c.execution_id)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .join(entry, sa.true())
        .join(values, values.c.digest == entry.c.value)
        .where(*_chosen(sweep_id, filters.rows), values.c.data.icontains(pattern, autoescape=True))
    )
    if filters.keys:
        return query.where(entry.c.key.in_(list(filters.keys)))
    return query.where(entry.c.key.not_like(f"{HIDDEN}%"))


def _cases_with_text(database: Database, sweep_id: str, text: str, pattern: str) -> sa.Select[Any]:
    """Select the cases of which the id, the expected value or the input has a text."""
    entry = _entries(database, cases.c.input)
    in_input = (
        sa.select(sa.literal(1))
        .select_from(entry)
        .join(values, values.c.digest == entry.c.value)
        .where(values.c.data.icontains(pattern, autoescape=True))
    )
    return sa.select(cases.c.number).where(
        cases.c.sweep_id == sweep_id,
        sa.or_(
            cases.c.id.icontains(text, autoescape=True),
            cases.c.expected.icontains(pattern, autoescape=True),
            sa.exists(in_input.correlate(cases)),
        ),
    )


def _entries(database: Database, column: sa.Column[Any]) -> Any:
    """Return the entries of a JSON object, key -> text, as a table."""
    on_postgresql = sa.func.jsonb_each_text if isinstance(column.type, BinaryJson) else sa.func.json_each_text
    each = sa.func.json_each if database.is_sqlite else on_postgresql
    return each(column).table_valued("key", "value", name="entry", joins_implicitly=True)


def _json_text(text: str) -> str:
    """A text as it stands within stored JSON."""
    return orjson.dumps(text).decode()[1:-1]


def _means(sweep_id: str, rows: Sequence[int], worst: WorstFirst) -> sa.Select[Any]:
    """Select the mean of the scores of each repeat of a case; a failed cell counts as the sweep says."""
    score: Any = scores.c.value
    if worst.failure is not None:
        score = sa.case((cells.c.status.in_(FAILED_CELLS), sa.literal(worst.failure, sa.Double)), else_=score)
    return (
        sa.select(cells.c.case_number, cells.c.repeat, sa.func.avg(score).label("score"))
        .select_from(cells)
        .outerjoin(scores, _scored_by(worst.metric))
        .where(cells.c.sweep_id == sweep_id, cells.c.combination.in_(list(rows)))
        .group_by(cells.c.case_number, cells.c.repeat)
    )
