"""Values that no row names any more, old outputs of attempts, and removing them while others write.

Values are stored once for all projects: what names them is asked of all rows, whatever a caller is limited to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StoreError
from wtb.store.attempt_columns import attempt_column, node_runs_with_attempts
from wtb.store.bulk import MOST_ROWS, parts, update_rows
from wtb.store.database import Database
from wtb.store.database_errors import LOCK_NOT_AVAILABLE, sqlstate
from wtb.store.housekeeping.references import still_there, values_named
from wtb.store.housekeeping.sizes import has_output, octets, output_size, total
from wtb.store.tables.schema import attempts, node_runs, sweeps, values
from wtb.store.transactions import Scope

PART = 500  # values that are removed at a time: everybody who writes waits for as long
_PART_SQLITE = 20_000  # finding some costs as much as finding all there
_LOCK_WAIT_MS = 50  # while we wait, so does everybody who comes after us
_LOCK_TRIES = 60


class Busy(StoreError):
    """The table of values was written to without a pause; try again later."""


@frozen
class Unreferenced:
    """Values that no row named. `horizon`: on PostgreSQL, the oldest transaction whose rows were not all seen."""

    digests: Sequence[str]
    horizon: int | None

    def parts(self) -> Iterator[Unreferenced]:
        """Those that `remove_values` removes at a time."""
        size = _PART_SQLITE if self.horizon is None else PART
        return (Unreferenced(part, self.horizon) for part in parts(self.digests, size))


def unreferenced(database: Database, limit: int) -> Unreferenced:
    """Up to `limit` values that no state, input or write names. `remove_values` sees to rows written since."""
    return _unreferenced(database, f'SELECT digest FROM "values" EXCEPT {{named}} LIMIT {int(limit)}')


def unreferenced_among(database: Database, digests: Sequence[str]) -> Unreferenced:
    """The same, of these values."""
    return _unreferenced(database, f"{_given(database.is_sqlite)} EXCEPT {{named}}", digests=_dumped(digests))


def _unreferenced(database: Database, query: str, **parameters: str) -> Unreferenced:
    with database.within(Scope()).read(long=True) as connection:
        named = f"SELECT value FROM ({values_named(connection)}) AS r"
        digests = list(connection.scalars(sa.text(query.format(named=named)), parameters))
        if database.is_sqlite:
            return Unreferenced(digests, None)
        # Of the same snapshot: whatever ended before this transaction began has been seen.
        horizon = connection.scalar(sa.text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"))
        return Unreferenced(digests, int(horizon))


def _given(on_sqlite: bool) -> str:
    """A query for the digests of a parameter."""
    each = "json_each(:digests)" if on_sqlite else "jsonb_array_elements_text(CAST(:digests AS jsonb))"
    return f"SELECT value FROM {each}"


def _dumped(digests: Sequence[str]) -> str:
    return orjson.dumps(list(digests)).decode()


def count_unreferenced(connection: sa.Connection) -> tuple[int, int]:
    """(how many values would be unreferenced, their bytes), as imagined."""
    named = values_named(connection, imagined=True)
    digests = _listed(f'SELECT digest FROM "values" EXCEPT SELECT value FROM ({named}) AS r')
    query = sa.select(sa.func.count(), total(octets(values.c.data))).where(values.c.digest.in_(digests))
    count, size = connection.execute(query).one()
    return count, size


def remove_values(database: Database, garbage: Unreferenced, tries: int = _LOCK_TRIES) -> tuple[int, int]:
    """Remove values that still nobody names. Returns (how many, bytes).

    Who writes a reference inserts the value first, in the same transaction, where it is not there yet. On PostgreSQL
    the lock waits for all who did so, and the rows of transactions that `unreferenced` did not see are asked once
    more, by their indexes; who comes later finds the values gone and inserts them again. Raises Busy where the lock is
    not to be had.
    """
    for attempt in range(1, tries + 1):
        try:
            with database.within(Scope()).write() as connection:
                return _remove(connection, garbage)
        except StoreError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            time.sleep(min(0.05 * attempt, 1.0))
    raise Busy("values: others wrote without a pause; run `wtb gc` again when less is running")


def _remove(connection: sa.Connection, garbage: Unreferenced) -> tuple[int, int]:
    """Delete values that nothing names. Returns how many, and their bytes."""
    if garbage.horizon is not None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}")
        connection.exec_driver_sql('LOCK TABLE "values" IN EXCLUSIVE MODE')
    named = values_named(connection, garbage.horizon)
    query = _listed(f"{_given(garbage.horizon is None)} EXCEPT SELECT value FROM ({named}) AS r")
    gone = values.delete().where(values.c.digest.in_(query)).returning(octets(values.c.data))
    sizes = list(connection.scalars(gone, {"digests": _dumped(garbage.digests)}))
    return len(sizes), sum(sizes)


def _listed(query: str) -> sa.TextualSelect:
    return sa.text(query).columns(sa.column("digest", sa.String))


def old_outputs(database: Database, before: float) -> list[tuple[str, int, int]]:
    """Some attempts that ended before then and still have an output, at most 5,000: (node run, number, bytes)."""
    query = _old(sa.select(attempt_column("node_run_id"), attempt_column("number"), output_size), before)
    return database.tuples(query.limit(MOST_ROWS), long=True)


def count_outputs(connection: sa.Connection, before: float) -> tuple[int, int]:
    """(how many attempts would lose their output, its bytes), as imagined."""
    query = _old(sa.select(sa.func.count(), total(output_size)), before)
    count, size = connection.execute(query.where(sa.text(still_there("node_runs", "checkpoint_id")))).one()
    return count, size


def remove_outputs(database: Database, found: Iterable[tuple[str, int, int]]) -> None:
    nothing = {"stdout": None, "stderr": None}
    keys = [(run, number) for run, number, _ in found]
    with database.write() as connection:
        update_rows(connection, node_runs, [{"id": run, **nothing} for run, number in keys if number == 1], ("id",))
        rows = [{"node_run_id": run, "number": number, **nothing} for run, number in keys]
        update_rows(connection, attempts, rows, ("node_run_id", "number"))


def _old(query: sa.Select[*tuple[Any, ...]], before: float) -> sa.Select[*tuple[Any, ...]]:
    """Restrict a query to attempts that ended before a time, in sweeps that are not pinned.

    The clock of the machine that ran them may have been behind, but no attempt is older than its sweep.
    """
    table = node_runs_with_attempts.join(sweeps, sweeps.c.id == node_runs.c.sweep_id)
    ended = attempt_column("started_at") + attempt_column("duration_s")
    return query.select_from(table).where(has_output, ended < before, sweeps.c.created_at < before, ~sweeps.c.pinned)
