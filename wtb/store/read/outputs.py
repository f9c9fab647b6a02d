"""Repeats of cases that match filters, and their order, which the database determines page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
import sqlalchemy as sa

from wtb.core.documents.outputs import OutputScore
from wtb.core.errors import DamagedError
from wtb.core.frozen import frozen
from wtb.core.status import FAILED_CELLS
from wtb.core.tree.checkpoints import HIDDEN
from wtb.store.bulk import among
from wtb.store.cell_status import CELL_KEY
from wtb.store.database import Database
from wtb.store.read.queries import as_bytes, stored_bytes
from wtb.store.tables.column_types import BinaryJson
from wtb.store.tables.schema import cases, cells, checkpoints, executions, is_kept, scores, values

_EQUAL = 1e-9  # scores that differ by less are equal
Place = tuple[int, int]  # number of a case, repeat


@frozen
class WorstFirst:
    """The order by the mean of the scores of the combinations, the worst first.

    Attributes:
        metric: The metric of the scores.
        lower: Whether lower scores are better.
        failure: The score of a failed cell; None to leave it out.
    """

    metric: str
    lower: bool
    failure: float | None


@frozen
class WrongIn:
    """A filter by the number of combinations that are wrong for a case: all of them, or none.

    A cell is wrong if it failed, or if its score is worse than the best one of the scale. Cells without a score do not
    count.

    Attributes:
        which: All or none of the combinations.
        metric: The metric of the scores.
        lower: Whether lower scores are better.
        best: The best score of the scale.
    """

    which: Literal["all", "none"]
    metric: str
    lower: bool
    best: float


@frozen
class OutputFilters:
    """Filters for repeats of cases. All filters must hold.

    Attributes:
        rows: The numbers of the considered combinations.
        keys: Keys of the state in which outputs are compared and searched; all if empty.
        failed: Only if a cell failed.
        differ: Only if these two combinations returned different outputs.
        tag: Only cases with this tag.
        text: Only if this text is in the case, in an output or in the message of a failure, ignoring case.
        cases: Only the cases with these ids; all if empty.
        worst: The order; None for the order of the cases.
        wrong: Only cases that this filter selects.
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
        filters: The filters.
        offset: How many matches to skip.
        limit: How many matches to return at most.

    Returns:
        The number of matches in all, and the matches of the page in order.
    """
    matching = _places(database, sweep_id, filters)
    places = matching.subquery("places")
    count = sa.select(sa.func.count()).select_from(places)
    if filters.worst is None:  # in the order of the index, so that rows after the page are not read
        page = matching.order_by(cells.c.case_number, cells.c.repeat)
    else:
        page = _worst_first(places, _means(sweep_id, filters.rows, filters.worst), filters.worst)
    with database.read(long=True) as connection:
        total = connection.scalar(count) or 0
        rows = connection.execute(page.offset(offset).limit(limit)).all()
    return total, [(number, repeat) for number, repeat in rows]


def _worst_first(places: sa.Subquery, means: sa.Select[Any], worst: WorstFirst) -> sa.Select[Any]:
    """Select repeats of cases by their mean scores; those without a score come last."""
    mean = means.subquery("means")
    same = sa.and_(mean.c.case_number == places.c.case_number, mean.c.repeat == places.c.repeat)
    score = mean.c.score.desc() if worst.lower else mean.c.score.asc()
    page = sa.select(places.c.case_number, places.c.repeat).outerjoin(mean, same)
    return page.order_by(mean.c.score.is_(None), score, places.c.case_number, places.c.repeat)


def _places(database: Database, sweep_id: str, filters: OutputFilters) -> sa.Select[Any]:
    conditions = _cell_conditions(sweep_id, filters.rows)
    query = sa.select(cells.c.case_number, cells.c.repeat).where(*conditions).distinct()
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
        # The search compares stored JSON, in which the text has its escapes.
        pattern = _json_text(filters.text)
        outputs = _with_text(database, sweep_id, filters, pattern)
        failures = sa.select(cells.c.case_number, cells.c.repeat).where(
            *conditions, sa.cast(cells.c.failure, sa.Text).icontains(pattern, autoescape=True)
        )
        in_case = cells.c.case_number.in_(_cases_with_text(database, sweep_id, filters.text, pattern))
        query = query.where(sa.or_(in_case, pair.in_(outputs), pair.in_(failures)))
    return query


def _cell_conditions(sweep_id: str, rows: Sequence[int]) -> list[sa.ColumnElement[bool]]:
    erased = sa.select(cases.c.number).where(cases.c.sweep_id == sweep_id, ~is_kept)
    return [cells.c.sweep_id == sweep_id, cells.c.combination.in_(list(rows)), cells.c.case_number.not_in(erased)]


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
    return sa.and_(scores.c.metric == metric, *(scores.c[name] == cells.c[name] for name in CELL_KEY))


def _differing(sweep_id: str, rows: tuple[int, int], keys: Sequence[str]) -> sa.Select[Any]:
    """Select the repeats of cases in which two combinations ended in different ways or states."""
    first, other = cells.alias("one"), cells.alias("other")
    heads = [_head_of(cell, name) for cell, name in ((first, "one"), (other, "other"))]
    (_, _, state), (_, _, other_state) = heads
    unlike = [state[key].as_string().is_distinct_from(other_state[key].as_string()) for key in keys]
    if not keys:
        unlike = [sa.cast(state, sa.Text).is_distinct_from(sa.cast(other_state, sa.Text))]
    same = sa.and_(*(first.c[name] == other.c[name] for name in CELL_KEY[:3]))
    query = sa.select(first.c.case_number, first.c.repeat).join(other, same)
    for execution, on, _ in heads:
        query = query.outerjoin(execution[0], on[0]).outerjoin(execution[1], on[1])
    return query.where(
        first.c.sweep_id == sweep_id,
        first.c.combination == rows[0],
        other.c.combination == rows[1],
        sa.or_(first.c.status != other.c.status, *unlike),
    )


def _head_of(cell: sa.FromClause, name: str) -> tuple[Any, Any, sa.Column[Any]]:
    """Return the tables that lead from a cell to its final state, their conditions, and the state."""
    execution, head = executions.alias(f"execution_{name}"), checkpoints.alias(f"head_{name}")
    on = (execution.c.id == cell.c.execution_id, head.c.id == execution.c.head_id)
    return (execution, head), on, head.c.state


def _with_text(database: Database, sweep_id: str, filters: OutputFilters, pattern: str) -> sa.Select[Any]:
    """Select the repeats of cases with a text in an output."""
    state_entry = _entries(database, checkpoints.c.state)
    query = (
        sa.select(cells.c.case_number, cells.c.repeat)
        .join(executions, executions.c.id == cells.c.execution_id)
        .join(checkpoints, checkpoints.c.id == executions.c.head_id)
        .join(state_entry, sa.true())
        .join(values, values.c.digest == state_entry.c.value)
        .where(*_cell_conditions(sweep_id, filters.rows), values.c.data.icontains(pattern, autoescape=True))
    )
    if filters.keys:
        return query.where(state_entry.c.key.in_(list(filters.keys)))
    return query.where(state_entry.c.key.not_like(f"{HIDDEN}%"))


def _cases_with_text(database: Database, sweep_id: str, text: str, pattern: str) -> sa.Select[Any]:
    """Select the cases with a text in the id, the expected value or the input."""
    input_entry = _entries(database, cases.c.input)
    in_input = (
        sa.select(sa.literal(1))
        .select_from(input_entry)
        .join(values, values.c.digest == input_entry.c.value)
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
    """Return the entries of a JSON object, key and text, as a table."""
    on_postgresql = sa.func.jsonb_each_text if isinstance(column.type, BinaryJson) else sa.func.json_each_text
    each = sa.func.json_each if database.is_sqlite else on_postgresql
    return each(column).table_valued("key", "value", name="entry", joins_implicitly=True)


def _json_text(text: str) -> str:
    """Return a text as it is written within stored JSON."""
    return orjson.dumps(text).decode()[1:-1]


def _means(sweep_id: str, rows: Sequence[int], worst: WorstFirst) -> sa.Select[Any]:
    """Select the mean of the scores of each repeat of a case; a failed cell counts as the sweep declares."""
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


CellPlace = tuple[int, int, int]  # number of a case, repeat, combination
WHOLE_BYTES = 16_384  # larger values are read up to there only


class OutputCell(NamedTuple):
    """A cell with the digests of its outputs."""

    case_number: int
    repeat: int
    combination: int
    status: str
    execution_id: str | None
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    failure: Any
    digests: tuple[str | None, ...]


class Beginning(NamedTuple):
    """The beginning of a stored value, or all of it.

    Attributes:
        data: At most `WHOLE_BYTES`.
        size: The bytes of the whole value.
    """

    data: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        """True if the beginning is the whole value."""
        return len(self.data) == self.size


def output_cells(
    database: Database, sweep_id: str, places: Iterable[Place], rows: Sequence[int], keys: Sequence[str]
) -> list[OutputCell]:
    """Read the cells of some repeats of cases under some combinations, with the digests of keys of their states."""
    state = [checkpoints.c.state[key].as_string().label(f"key_{number}") for number, key in enumerate(keys)]
    own = [getattr(cells.c, name) for name in OutputCell._fields[:-1]]
    query = (
        sa.select(*own, *state)
        .outerjoin(executions, executions.c.id == cells.c.execution_id)
        .outerjoin(checkpoints, checkpoints.c.id == executions.c.head_id)
        .where(*_of(cells, sweep_id, places, rows))
    )
    size = len(own)
    return [OutputCell._make((*row[:size], row[size:])) for row in map(tuple, database.tuples(query))]


def output_scores(
    database: Database, sweep_id: str, places: Iterable[Place], rows: Sequence[int], metrics: Iterable[str]
) -> dict[CellPlace, dict[str, OutputScore]]:
    """Read the scores of some repeats of cases under some combinations, by metric."""
    query = sa.select(
        *(scores.c.case_number, scores.c.repeat, scores.c.combination),
        *(scores.c.metric, scores.c.value, sa.func.coalesce(scores.c.error, scores.c.reason), scores.c.version),
    ).where(*_of(scores, sweep_id, places, rows), scores.c.metric.in_(list(metrics)))  # the index has it first
    by_place: dict[CellPlace, dict[str, OutputScore]] = defaultdict(dict)
    for number, repeat, row, metric, score, reason, version in database.tuples(query):
        by_place[number, repeat, row][metric] = {"value": score, "reason": reason, "version": version}
    return by_place


def _of(table: sa.Table, sweep_id: str, places: Iterable[Place], rows: Sequence[int]) -> list[sa.ColumnElement[bool]]:
    return [
        table.c.sweep_id == sweep_id,
        table.c.case_number.in_(sorted({number for number, _ in places})),
        table.c.combination.in_(list(rows)),
    ]


def state_keys(database: Database, sweep_id: str) -> set[str]:
    """Return the keys of the final states of the first cells of a sweep that have one."""
    query = (
        sa.select(checkpoints.c.state)
        .join(executions, executions.c.head_id == checkpoints.c.id)
        .join(cells, cells.c.execution_id == executions.c.id)
        .where(cells.c.sweep_id == sweep_id, cells.c.status == "succeeded")
        .limit(16)
    )
    return {key for state in database.scalars(query) for key in state}


def beginnings(database: Database, digests: Iterable[str]) -> dict[str, Beginning]:
    """Read the beginnings of values by digest. Raises DamagedError if one is missing."""
    digest_set = set(digests)
    content = stored_bytes(database)
    size: Any = sa.func.length(content) if database.is_sqlite else sa.func.octet_length(content)
    if database.is_sqlite:
        beginning: Any = sa.func.substr(content, 1, WHOLE_BYTES)
    else:  # characters, not bytes
        # As many characters hold at least as many bytes, of which only the first are kept.
        beginning = sa.func.left(content, WHOLE_BYTES)
    query = sa.select(values.c.digest, beginning, size).where(
        among(values.c.digest, digest_set, on_sqlite=database.is_sqlite)
    )
    rows = database.tuples(query)
    by_digest = {digest: Beginning(as_bytes(stored)[:WHOLE_BYTES], size) for digest, stored, size in rows}
    if missing := digest_set - by_digest.keys():
        raise DamagedError(f"stored value {min(missing)} is missing")
    return by_digest


def case_tags(database: Database, sweep_id: str) -> list[str]:
    """Return the tags of the cases of a sweep, each once."""
    query = sa.select(cases.c.tags).where(cases.c.sweep_id == sweep_id).distinct()
    return sorted({tag for tags in database.scalars(query) for tag in tags})


def first_case_input(database: Database, sweep_id: str) -> Mapping[str, str]:
    """Return the input of the first case of a sweep: digests by key."""
    query = sa.select(cases.c.input).where(cases.c.sweep_id == sweep_id).order_by(cases.c.number).limit(1)
    case_input: Mapping[str, str] = database.scalar(query) or {}
    return case_input


def repeats_of(database: Database, sweep_id: str) -> int:
    """Return how many repeats of its first case a sweep has."""
    first = sa.select(sa.func.min(cells.c.case_number)).where(cells.c.sweep_id == sweep_id).scalar_subquery()
    query = sa.select(sa.func.max(cells.c.repeat)).where(cells.c.sweep_id == sweep_id, cells.c.case_number == first)
    return (database.scalar(query) or 0) + 1
