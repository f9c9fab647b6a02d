"""What attempts wrote to stdout and stderr, and removing what is old of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from wtb.store.bulk import update_rows
from wtb.store.database import Database
from wtb.store.housekeeping.references import still_there
from wtb.store.housekeeping.sizes import has_output, output_size, total
from wtb.store.tables.sweeps import attempts, node_runs, sweeps

_PART = 5_000


def old_outputs(database: Database, before: float) -> list[tuple[str, int, int]]:
    """Some attempts that ended before then and still have an output, at most 5,000: (node run, number, bytes)."""
    query = _old(sa.select(attempts.c.node_run_id, attempts.c.number, output_size), before)
    with database.read(long=True) as connection:
        return [(run, number, size) for run, number, size in connection.execute(query.limit(_PART))]


def count_outputs(connection: sa.Connection, before: float) -> tuple[int, int]:
    """(how many attempts would lose their output, its bytes), as imagined."""
    query = _old(sa.select(sa.func.count(), total(output_size)), before)
    count, size = connection.execute(query.where(sa.text(still_there("node_runs", "checkpoint_id")))).one()
    return count, size


def remove_outputs(database: Database, found: Iterable[tuple[str, int, int]]) -> None:
    with database.write() as connection:
        rows = [{"node_run_id": run, "number": number, "stdout": None, "stderr": None} for run, number, _ in found]
        update_rows(connection, attempts, rows, ("node_run_id", "number"))


def _old(query: sa.Select[*tuple[Any, ...]], before: float) -> sa.Select[*tuple[Any, ...]]:
    table = attempts.join(node_runs, node_runs.c.id == attempts.c.node_run_id).join(
        sweeps, sweeps.c.id == node_runs.c.sweep_id
    )
    ended = attempts.c.started_at + attempts.c.duration_s
    return query.select_from(table).where(has_output, ended < before, ~sweeps.c.pinned)
