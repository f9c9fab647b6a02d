"""Erasing a case: its rows, and what only they named. A tombstone stays, which says who erased it.

Numbers that are about the case go with it: its cells and scores, so that a matrix rests on the cases that are there.
What was spent stays known of the sweep, as for what a garbage collection removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.store.bulk import fetch_records, parts
from wtb.store.database import Database
from wtb.store.events import add_event, last_comment_number, of_sweep
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import files as filing
from wtb.store.housekeeping.looks import forget_case
from wtb.store.housekeeping.references import snapshots
from wtb.store.housekeeping.retention import locked_sweep
from wtb.store.housekeeping.superseded import spent_from
from wtb.store.housekeeping.unreferenced import remove_values, unreferenced_among
from wtb.store.tables.schema import (
    alerts,
    approvals,
    cases,
    cells,
    checkpoints,
    comments,
    events,
    executions,
    is_case,
    is_visible,
    labels,
    matrices,
    node_runs,
    scores,
    sessions,
    sweeps,
)
from wtb.store.transactions import Scope, clock

AT_REST = ("paused", "completed", "failed", "cancelled")  # sweeps of which nothing runs

Report = Callable[[str], None]


@frozen
class FoundCase:
    """A case of a sweep that can be erased."""

    sweep_id: str
    sweep: str
    project: str
    status: str
    number: int
    case: str


@frozen
class Named:
    """What the rows of a case named: values by digest, and snapshots of files by project and digest."""

    values: frozenset[str] = frozenset()
    snapshots: frozenset[tuple[str, str]] = frozenset()

    def with_(self, other: Named) -> Named:
        return Named(self.values | other.values, self.snapshots | other.snapshots)


def find_cases(
    database: Database, case: str, *, sweep_id: str | None = None, project: str | None = None
) -> list[FoundCase]:
    """Find a case by its id in one or all sweeps, the newest first; what was erased already is not found.

    Single executions all call their case alike, so they are found only where they are named.

    Raises:
        NotFound: If no sweep has it.
    """
    columns = (sweeps.c.id, sweeps.c.name, sweeps.c.project, sweeps.c.status, cases.c.number, cases.c.id)
    query = sa.select(*columns).join(cases, cases.c.sweep_id == sweeps.c.id)
    query = query.where(cases.c.erased_at.is_(None), is_visible).order_by(sweeps.c.created_at.desc(), sweeps.c.id)
    query = query.where(sweeps.c.kind == "sweep" if sweep_id is None else sweeps.c.id == sweep_id)
    if project is not None:
        query = query.where(sweeps.c.project == project)
    with database.read() as connection:
        found = fetch_records(connection, FoundCase, query.where(is_case(case)))
        if found:
            return found
        known = connection.execute(query.with_only_columns(cases.c.id).order_by(None).distinct().limit(1000))
        near = did_you_mean(case, [row.id for row in known])
    raise NotFound(f"there is no case {case!r} that could be erased{near}", kind="case")


def check_at_rest(found: Iterable[FoundCase]) -> None:
    """Check that nothing runs of sweeps. Raises ConflictError that names those of which something does."""
    if moving := [one for one in found if one.status not in AT_REST]:
        named = ", ".join(f"{one.sweep} ({one.sweep_id}, {one.status})" for one in moving[:5])
        raise ConflictError(f"nothing is erased of sweeps that may still run: {named}; pause or cancel them first")


def belongings(database: Database, found: FoundCase) -> dict[str, int]:
    """How many cells, executions, checkpoints, node runs and scores a case has in its sweep."""
    own = _own_executions(found)
    counted = {
        "cells": (cells, _of(cells, found)),
        "executions": (executions, executions.c.id.in_(own)),
        "checkpoints": (checkpoints, checkpoints.c.execution_id.in_(own)),
        "node_runs": (node_runs, node_runs.c.execution_id.in_(own)),
        "scores": (scores, _of(scores, found)),
    }
    with database.read() as connection:
        return {
            name: connection.scalar(sa.select(sa.func.count()).select_from(table).where(which)) or 0
            for name, (table, which) in counted.items()
        }


def erase_rows(database: Database, found: FoundCase, *, by: str, reason: str | None) -> Named:
    """Erase a case from its sweep, in one transaction.

    Args:
        database: The database.
        found: The case.
        by: Who erases it.
        reason: Why, for those who look later.

    Returns:
        What its rows named, which others may name, too.

    Raises:
        ConflictError: If the sweep may run, or is gone.
    """
    with database.write(long=True) as connection:
        sweep = locked_sweep(connection, found.sweep_id, sweeps.c.status.in_(AT_REST))
        if sweep is None:
            raise ConflictError(f"sweep {found.sweep_id} runs, or was deleted meanwhile; nothing of it was erased")
        own = list(connection.scalars(_own_executions(found)))
        running = sa.select(executions.c.id).where(executions.c.id.in_(own), executions.c.status == "running")
        if connection.scalar(running.limit(1)) is not None:
            raise ConflictError(f"case {found.case!r} of sweep {found.sweep_id} is running; nothing of it was erased")
        lines = list(connection.scalars(sa.select(checkpoints.c.id).where(checkpoints.c.execution_id.in_(own))))
        named = _named(connection, found, own, lines)
        spent = spent_from(connection, lines)
        forget_case(connection, found.project, found.sweep_id, found.number)
        gone = connection.scalar(sa.select(sa.func.count()).select_from(cells).where(_of(cells, found))) or 0
        last_comment = last_comment_number(connection, found.sweep_id)
        _delete_rows(connection, found, own, lines)
        connection.execute(
            cases.update()
            .where(cases.c.sweep_id == found.sweep_id, cases.c.number == found.number)
            .values(
                input={},
                expected=None,
                tags=[],
                workspace=None,
                cluster=None,
                erased_at=clock(connection),
                erased_by=by,
            )
        )
        connection.execute(
            sweeps.update()
            .where(sweeps.c.id == found.sweep_id)
            .values(
                cells=sweeps.c.cells - gone,
                collected_usd=sweeps.c.collected_usd + spent["usd"],
                collected_node_runs=sweeps.c.collected_node_runs + spent["node_runs"],
            )
        )
        connection.execute(matrices.update().where(matrices.c.sweep_id == found.sweep_id).values(document=None))
        add_event(
            connection,
            of_sweep(sweep),
            "case.erased",
            {
                "case": found.case,
                "by": by,
                "reason": reason,
                "cells": gone,
                "executions": len(own),
                **({"comments": last_comment} if last_comment else {}),  # the last number that is taken
            },
            "warning",
        )
    return named


def _own_executions(found: FoundCase) -> sa.Select[str]:
    return sa.select(executions.c.id).where(
        executions.c.sweep_id == found.sweep_id, executions.c.case_number == found.number
    )


def _of(table: sa.Table, found: FoundCase) -> sa.ColumnElement[bool]:
    """Rows of a table that are of a case by its number."""
    return sa.and_(table.c.sweep_id == found.sweep_id, table.c.case_number == found.number)


def _named(connection: sa.Connection, found: FoundCase, own: Sequence[str], lines: Sequence[str]) -> Named:
    """What the rows of a case name."""
    digests: set[str] = set()
    roots: set[str | None] = set()

    def note(by_key: Any, workspace: str | None = None) -> None:
        digests.update(one for one in (by_key or {}).values() if isinstance(one, str))
        roots.add(workspace)

    its = sa.and_(cases.c.sweep_id == found.sweep_id, cases.c.number == found.number)
    for state, workspace in connection.execute(sa.select(cases.c.input, cases.c.workspace).where(its)):
        note(state, workspace)
    for part in parts(own):
        query = sa.select(node_runs.c.writes, node_runs.c.workspace).where(node_runs.c.execution_id.in_(part))
        for writes, workspace in connection.execute(query):
            note(writes, workspace)
    for part in parts(lines):
        query = sa.select(checkpoints.c.state, checkpoints.c.workspace, checkpoints.c.inside["saved"])
        for row in connection.execute(query.where(checkpoints.c.id.in_(part))):
            note(row[0], row[1])
            note(row[2])
        answers = sa.select(approvals.c.answer["set"]).where(approvals.c.checkpoint_id.in_(part))
        for row in connection.execute(answers):
            note(row[0])
    return Named(frozenset(digests), frozenset((found.project, one) for one in roots if one is not None))


def _delete_rows(connection: sa.Connection, found: FoundCase, own: Sequence[str], lines: Sequence[str]) -> None:
    """Delete all rows of a case but its own. Node runs take their attempts and calls with them."""
    said = sa.and_(events.c.sweep_id == found.sweep_id, events.c.data["case"].as_string() == found.case)
    _delete_events(connection, said)
    for part in parts(own):
        _delete_events(connection, events.c.execution_id.in_(part))
    for part in parts(lines):
        asked = list(connection.scalars(sa.select(approvals.c.id).where(approvals.c.checkpoint_id.in_(part))))
        answered = events.c.data["approval"].as_string().in_(asked)
        _delete_events(connection, sa.and_(events.c.sweep_id == found.sweep_id, answered))
        connection.execute(approvals.delete().where(approvals.c.checkpoint_id.in_(part)))
    for table in (cells, comments, labels, scores):
        connection.execute(table.delete().where(_of(table, found)))
    for part in parts(own):
        connection.execute(node_runs.delete().where(node_runs.c.execution_id.in_(part)))
        connection.execute(checkpoints.delete().where(checkpoints.c.execution_id.in_(part)))
        connection.execute(executions.delete().where(executions.c.id.in_(part)))


def _delete_events(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    connection.execute(alerts.delete().where(alerts.c.event_id.in_(sa.select(events.c.id).where(which))))
    connection.execute(events.delete().where(which))


def remove_named_values(database: Database, named: Named) -> int:
    """Remove values that nothing names any more; what other rows name stays. Returns how many went."""
    if not named.values:  # else all rows would be read for nothing
        return 0
    found = unreferenced_among(database, sorted(named.values))
    return sum(remove_values(database, part)[0] for part in found.parts())


def remove_named_files(database: Database, files: FileStore, named: Named, since: float) -> int:
    """Remove stored files of snapshots that nothing names any more.

    Args:
        database: The database, without the rows that named them.
        files: The store.
        named: What they named.
        since: When the erasing began, by the clock of the store: what was added again since then stays.

    Returns:
        How many files went.
    """
    if not named.snapshots or not files.top.is_dir():
        return 0
    database = database.within(Scope())  # a session of the default project has sweeps of all projects
    with database.read(long=True) as connection:
        still = snapshots(connection)
    needed: dict[str, set[str]] = {}  # by session
    of_project: dict[str, set[str]] = {}
    for session, project, snapshot in still:
        contents = {snapshot, *_contents(files.of_project(project), snapshot)}
        needed.setdefault(session, set()).update(contents)
        of_project.setdefault(project, set()).update(contents)
    gone: dict[str, set[str]] = {}  # by project
    for project, snapshot in named.snapshots:
        store = files.of_project(project)
        if store.has(snapshot):
            gone.setdefault(project, set()).update((snapshot, *_contents(store, snapshot)))
    every = set().union(*gone.values())
    for session in database.scalars(sa.select(sessions.c.id)):
        for part in parts(sorted(every - needed.get(session, set())), filing.PART):
            with filing.forgetting_files(database, session, part):
                pass
    removed = set()
    for project, digests in gone.items():
        store = files.of_project(project)
        unneeded = sorted(digests - of_project.get(project, set()))
        removed |= {digest for digest in unneeded if store.remove(digest, unless_added_since=since)}
    # What earlier releases left may be of any project.
    unneeded = sorted(every.difference(*of_project.values()))
    removed |= {digest for digest in unneeded if files.remove(digest, unless_added_since=since)}
    return len(removed)


def _contents(store: FileStore, snapshot: str) -> set[str]:
    return {entry.digest for entry in store.manifest(snapshot).values()}


def overwrite_free_pages(database: Database) -> str | None:
    """Have nothing of deleted rows be left in the file of an SQLite database. Returns why not, where others use it."""
    if not database.is_sqlite or database.path is None:
        return None
    try:
        with database.reached(), closing(database.engine.raw_connection()) as pooled:
            driver: Any = pooled.driver_connection
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                driver.execute(statement).fetchall()
    except sa.exc.DBAPIError as error:
        return str(error.orig)
    return None
