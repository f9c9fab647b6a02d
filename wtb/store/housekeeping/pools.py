"""Pools: sweeps whose repeats are the runs of others. A pool has no executions; its cells name those of its sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.frozen import frozen
from wtb.core.ids import short_id
from wtb.core.tree.looks import CaseSketch, case_digest
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Json
from wtb.store.access.projects import scope_of
from wtb.store.access.sessions import session_to_submit_to
from wtb.store.bulk import insert_rows, parts
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import discard_submission
from wtb.store.housekeeping.retention import insert_look, look_keys
from wtb.store.log import add_event, subject
from wtb.store.read import queries
from wtb.store.tables.schema import cases, cells, combinations, is_kept, metrics, now, pooled, scores, sweeps
from wtb.store.tables.sweeps import SweepRow

CASES = 200  # cases whose cells are copied in one transaction


@frozen
class Source:
    """A source sweep of a pool.

    Attributes:
        row: Its row.
        combinations: The numbers of the pool's combinations, by its own.
        cases: The numbers of the pool's cases, by its own.
    """

    row: SweepRow
    combinations: Mapping[int, int]
    cases: Mapping[int, int]


def sources_of(database: Database, sweep_id: str) -> list[str]:
    """Return the sources of a pool; nothing if the sweep is no pool."""
    query = sa.select(pooled.c.sweep_id).where(pooled.c.pool_id == sweep_id)
    return database.scalars(query.order_by(pooled.c.number))


def insert_pool(database: Database, name: str, by: str, sources: Sequence[Source]) -> str:
    """Create a completed sweep from the cells of others. It becomes visible when all of them are copied.

    Args:
        database: The database.
        name: The name of the pool.
        by: The person who creates it.
        sources: Its sources, which have the same combinations and cases. The other settings come from the first one.

    Returns:
        The id of the pool.

    Raises:
        ConflictError: If a source is deleted meanwhile, or the session is archived.
    """
    first, pool_id = sources[0].row, short_id()
    repeats = sum(int(source.row.spec["repeats"]) for source in sources)
    spec: StoredSpec = {**first.spec, "sweep": name, "repeats": repeats, "submitted_by": by}
    workflow = str(queries.workflow_graph(database, first.workflow_id)["name"])
    keys = look_keys(queries.choices(database, first.id), spec, first.fingerprints)
    has_begun = False
    try:
        with database.write(long=True) as connection:
            _begin(connection, pool_id, name, spec, sources)
        has_begun, before = True, 0
        for source in sources:
            for numbers in parts(sorted(source.cases), CASES):
                with database.write(long=True) as connection:
                    _copy(connection, pool_id, source, numbers, before)
                    # The scheduler removes a submission whose time is too old, so each part renews it.
                    connection.execute(sweeps.update().where(sweeps.c.id == pool_id).values(created_at=now()))
            before += int(source.row.spec["repeats"])
        with database.write() as connection:
            _finish(connection, pool_id, first, {"workflow": workflow}, keys)
            _announce(connection, pool_id, name, first)
    except BaseException:
        if has_begun:
            with suppress(StoreError):  # if the database is out of reach, the scheduler removes the rows later
                discard_submission(database, pool_id)
        raise
    return pool_id


def _begin(connection: sa.Connection, pool_id: str, name: str, spec: StoredSpec, sources: Sequence[Source]) -> None:
    first = sources[0].row
    session_to_submit_to(connection, first.session)
    row: dict[str, Any] = {
        "id": pool_id,
        "session_id": first.session_id,
        "workflow_id": first.workflow_id,
        "name": name,
    }
    row |= {"project": first.project, "token": scope_of(connection).token, "status": "submitting", "spec": spec}
    row |= {"fingerprints": dict(first.fingerprints), "cells": sum(source.row.cells for source in sources)}
    row |= {"queued": False, "priority": 0, "kind": "sweep", "breakpoints": None, "notify": None}
    insert_rows(connection, sweeps, [row])
    for table in (combinations, cases, metrics):
        conditions = [is_kept] if table is cases else []
        names = [column.name for column in table.c if column.name != "sweep_id"]
        of_first = sa.select(sa.literal(pool_id), *(table.c[name] for name in names))
        copied = of_first.where(table.c.sweep_id == first.id, *conditions)
        connection.execute(table.insert().from_select(["sweep_id", *names], copied))
    present = sa.select(sweeps.c.id).where(
        sweeps.c.id.in_([source.row.id for source in sources]), sweeps.c.status == "completed"
    )
    # Locked until their rows in `pooled` are written, which keep them from being deleted.
    if len(list(connection.scalars(present.with_for_update(read=True)))) < len(sources):
        raise ConflictError("a sweep of the pool was changed or deleted just now: try again")
    rows = [{"pool_id": pool_id, "sweep_id": source.row.id, "number": place} for place, source in enumerate(sources)]
    insert_rows(connection, pooled, rows)


def _copy(connection: sa.Connection, pool_id: str, source: Source, numbers: Sequence[int], before: int) -> None:
    """Copy the cells and scores of some cases, as repeats after the existing ones."""
    for table in (cells, scores):
        query = sa.select(table).where(table.c.sweep_id == source.row.id, table.c.case_number.in_(numbers))
        rows = [
            {
                **row,
                "sweep_id": pool_id,
                "repeat": before + row["repeat"],
                "case_number": source.cases[row["case_number"]],
                "combination": source.combinations[row["combination"]],
            }
            for row in map(dict, connection.execute(query).mappings())
        ]
        for part in parts(rows):
            insert_rows(connection, table, part)


def _finish(
    connection: sa.Connection, pool_id: str, first: SweepRow, owner: Mapping[str, str], keys: tuple[str, list[str]]
) -> None:
    """Record a pool as a look."""
    sketch = CaseSketch()
    content = sa.select(cases.c.input, cases.c.expected, cases.c.workspace).where(cases.c.sweep_id == pool_id)
    for case in connection.execute(content):
        sketch.add(case_digest(*case))
    owner = {**owner, "sweep_id": pool_id, "session_id": first.session_id, "project": first.project}
    insert_look(connection, owner, first.spec, keys, sketch)


def _announce(connection: sa.Connection, pool_id: str, name: str, first: SweepRow) -> None:
    """Make a pool visible whose rows are all written."""
    count = sa.select(sa.func.count()).select_from(combinations).where(combinations.c.sweep_id == pool_id)
    details: dict[str, Json] = {"name": name, "cells": 0, "combinations": connection.scalar(count)}
    add_event(connection, subject(first.session_id, pool_id), "sweep.submitted", details)
    ended = {"status": "completed", "created_at": now(), "started_at": now(), "finished_at": now()}
    query = sweeps.update().where(sweeps.c.id == pool_id, sweeps.c.status == "submitting").values(ended)
    if not connection.execute(query).rowcount:
        raise ConflictError(
            "the pool was discarded as abandoned, or its session was deleted meanwhile; nothing was created"
        )
