"""The cells of a page of outputs, and the beginnings of their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.documents.results.outputs import OutputScore
from wtb.core.errors import DamagedError
from wtb.store.bulk import among
from wtb.store.database import Database
from wtb.store.read.outputs.output_filters import Place
from wtb.store.read.queries import as_bytes, stored_bytes
from wtb.store.tables.schema import cases, cells, checkpoints, executions, scores, values

CellPlace = tuple[int, int, int]  # number of a case, repeat, combination
WHOLE_BYTES = 16_384  # values of more are read up to there only


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
        size: Bytes of the whole.
    """

    data: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut off."""
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
    with database.read() as connection:
        size = len(own)
        rows_read = map(tuple, connection.execute(query).all())
        return [OutputCell._make((*row[:size], row[size:])) for row in rows_read]


def output_scores(
    database: Database, sweep_id: str, places: Iterable[Place], rows: Sequence[int], metrics: Iterable[str]
) -> dict[CellPlace, dict[str, OutputScore]]:
    """Read the scores of some repeats of cases under some combinations, by metric."""
    query = sa.select(
        *(scores.c.case_number, scores.c.repeat, scores.c.combination),
        *(scores.c.metric, scores.c.value, sa.func.coalesce(scores.c.error, scores.c.reason), scores.c.version),
    ).where(*_of(scores, sweep_id, places, rows), scores.c.metric.in_(list(metrics)))  # the index has it first
    found: dict[CellPlace, dict[str, OutputScore]] = defaultdict(dict)
    with database.read() as connection:
        for number, repeat, row, metric, value, reason, version in connection.execute(query).all():
            found[number, repeat, row][metric] = {"value": value, "reason": reason, "version": version}
    return found


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
    wanted = set(digests)
    data = stored_bytes(database)
    size: Any = sa.func.length(data) if database.is_sqlite else sa.func.octet_length(data)
    if database.is_sqlite:
        beginning: Any = sa.func.substr(data, 1, WHOLE_BYTES)
    else:  # characters, not bytes
        beginning = sa.func.left(data, WHOLE_BYTES)
    query = sa.select(values.c.digest, beginning, size).where(
        among(values.c.digest, wanted, on_sqlite=database.is_sqlite)
    )
    found: dict[str, Beginning] = {}
    with database.read() as connection:
        for digest, stored, bytes_ in connection.execute(query).all():
            found[digest] = Beginning(as_bytes(stored)[:WHOLE_BYTES], bytes_)
    if missing := wanted - found.keys():
        raise DamagedError(f"stored value {min(missing)} is missing")
    return found


def case_tags(database: Database, sweep_id: str) -> list[str]:
    """Return the tags of the cases of a sweep, each once."""
    query = sa.select(cases.c.tags).where(cases.c.sweep_id == sweep_id).distinct()
    return sorted({tag for tags in database.scalars(query) for tag in tags})


def first_case_input(database: Database, sweep_id: str) -> Mapping[str, str]:
    """Return the input of the first case of a sweep: key -> digest."""
    query = sa.select(cases.c.input).where(cases.c.sweep_id == sweep_id).order_by(cases.c.number).limit(1)
    found: Mapping[str, str] = database.scalar(query) or {}
    return found


def repeats_of(database: Database, sweep_id: str) -> int:
    """Return how many repeats of its first case a sweep has."""
    first = sa.select(sa.func.min(cells.c.case_number)).where(cells.c.sweep_id == sweep_id).scalar_subquery()
    query = sa.select(sa.func.max(cells.c.repeat)).where(cells.c.sweep_id == sweep_id, cells.c.case_number == first)
    return (database.scalar(query) or 0) + 1
