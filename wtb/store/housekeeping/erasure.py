"""Erasure of a case: its rows, and values and files that only they named. A tombstone names the person who erased it.

Figures about the case are removed with it, so that a matrix rests on the cases that are left. The amount that was spent
stays in the row of the sweep, as when a garbage collection removes checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.store.bulk import fetch_records, parts
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import contents as filing
from wtb.store.housekeeping.retention import forget_case, locked_sweep
from wtb.store.housekeeping.stored_values import remove_values, snapshots, unreferenced_among
from wtb.store.housekeeping.superseded import collected_with, spent_from
from wtb.store.log import add_event, last_comment_number, of_sweep
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

AT_REST = ("paused", "completed", "failed", "cancelled")  # statuses of sweeps in which nothing runs

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
    """Values by digest, and snapshots of files by project and digest, that the rows of a case named."""

    values: frozenset[str] = frozenset()
    snapshots: frozenset[tuple[str, str]] = frozenset()

    def with_(self, other: Named) -> Named:
        return Named(self.values | other.values, self.snapshots | other.snapshots)


def find_cases(
    database: Database, case: str, *, sweep_id: str | None = None, project: str | None = None
) -> list[FoundCase]:
    """Find a case by its id in one or all sweeps, the newest first; erased cases are not found.

    The cases of all single executions have the same id, so they are found only in a named sweep.

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
        erasable = fetch_records(connection, FoundCase, query.where(is_case(case)))
        if erasable:
            return erasable
        rows = connection.execute(query.with_only_columns(cases.c.id).order_by(None).distinct().limit(1000))
        near = did_you_mean(case, [row.id for row in rows])
    raise NotFound(f"there is no case {case!r} that could be erased{near}", kind="case")


def check_at_rest(targets: Iterable[FoundCase]) -> None:
    """Check that nothing runs in the sweeps of cases. Raises ConflictError that names the sweeps that may run."""
    if moving := [case for case in targets if case.status not in AT_REST]:
        named = ", ".join(f"{case.sweep} ({case.sweep_id}, {case.status})" for case in moving[:5])
        raise ConflictError(f"nothing is erased of sweeps that may still run: {named}; pause or cancel them first")


def belongings(database: Database, case: FoundCase) -> dict[str, int]:
    """Return how many cells, executions, checkpoints, node runs and scores a case has in its sweep."""
    own = _own_executions(case)
    counted = {
        "cells": (cells, _of(cells, case)),
        "executions": (executions, executions.c.id.in_(own)),
        "checkpoints": (checkpoints, checkpoints.c.execution_id.in_(own)),
        "node_runs": (node_runs, node_runs.c.execution_id.in_(own)),
        "scores": (scores, _of(scores, case)),
    }
    with database.read() as connection:
        return {
            name: connection.scalar(sa.select(sa.func.count()).select_from(table).where(which)) or 0
            for name, (table, which) in counted.items()
        }


def erase_rows(database: Database, case: FoundCase, *, by: str, reason: str | None) -> Named:
    """Erase a case from its sweep, in one transaction.

    Args:
        database: The database.
        case: The case.
        by: The person who erases it.
        reason: The reason of that person, for the tombstone.

    Returns:
        The values and files that its rows named, which other rows may name, too.

    Raises:
        ConflictError: If the sweep may run, or is gone.
    """
    with database.write(long=True) as connection:
        sweep = locked_sweep(connection, case.sweep_id, sweeps.c.status.in_(AT_REST))
        if sweep is None:
            raise ConflictError(f"sweep {case.sweep_id} runs, or was deleted meanwhile; nothing of it was erased")
        own = list(connection.scalars(_own_executions(case)))
        running = sa.select(executions.c.id).where(executions.c.id.in_(own), executions.c.status == "running")
        if connection.scalar(running.limit(1)) is not None:
            raise ConflictError(f"case {case.case!r} of sweep {case.sweep_id} is running; nothing of it was erased")
        lines = list(connection.scalars(sa.select(checkpoints.c.id).where(checkpoints.c.execution_id.in_(own))))
        named = _named(connection, case, own, lines)
        spent = spent_from(connection, lines)
        # Before the rows are deleted: it reads the case, to find its digest in the looks.
        forget_case(connection, case.project, case.sweep_id, case.number)
        cell_count = connection.scalar(sa.select(sa.func.count()).select_from(cells).where(_of(cells, case))) or 0
        last_comment = last_comment_number(connection, case.sweep_id)
        _delete_rows(connection, case, own, lines)
        erased = cases.update().where(cases.c.sweep_id == case.sweep_id, cases.c.number == case.number)
        tombstone = {"erased_at": clock(connection), "erased_by": by}
        nothing: dict[str, Any] = {"input": {}, "expected": None, "tags": [], "workspace": None, "cluster": None}
        connection.execute(erased.values(nothing | tombstone))
        changes = {"cells": sweeps.c.cells - cell_count, **collected_with(spent)}
        connection.execute(sweeps.update().where(sweeps.c.id == case.sweep_id).values(changes))
        # The stored matrix has figures of the case; it is computed again from the cells that are left.
        connection.execute(matrices.update().where(matrices.c.sweep_id == case.sweep_id).values(document=None))
        details: dict[str, Json] = {"case": case.case, "by": by, "reason": reason, "cells": cell_count}
        details |= {"executions": len(own)}
        details |= {"comments": last_comment} if last_comment else {}  # the last number that is taken
        add_event(connection, of_sweep(sweep), "case.erased", details, "warning")
    return named


def _own_executions(case: FoundCase) -> sa.Select[str]:
    return sa.select(executions.c.id).where(
        executions.c.sweep_id == case.sweep_id, executions.c.case_number == case.number
    )


def _of(table: sa.Table, case: FoundCase) -> sa.ColumnElement[bool]:
    """Return the condition that rows of a table belong to a case by its number."""
    return sa.and_(table.c.sweep_id == case.sweep_id, table.c.case_number == case.number)


def _named(connection: sa.Connection, case: FoundCase, own: Sequence[str], lines: Sequence[str]) -> Named:
    """Return the values and snapshots that the rows of a case name."""
    digests: set[str] = set()
    roots: set[str | None] = set()

    def note(by_key: Any, workspace: str | None = None) -> None:
        digests.update(digest for digest in (by_key or {}).values() if isinstance(digest, str))
        roots.add(workspace)

    its = sa.and_(cases.c.sweep_id == case.sweep_id, cases.c.number == case.number)
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
        # Edits of a person in an answer are values, too, and no checkpoint names them before it is used.
        answers = sa.select(approvals.c.answer["set"]).where(approvals.c.checkpoint_id.in_(part))
        for row in connection.execute(answers):
            note(row[0])
    return Named(frozenset(digests), frozenset((case.project, root) for root in roots if root is not None))


def _delete_rows(connection: sa.Connection, case: FoundCase, own: Sequence[str], lines: Sequence[str]) -> None:
    """Delete all rows of a case except its own. Attempts and calls are deleted with their node runs."""
    about_case = sa.and_(events.c.sweep_id == case.sweep_id, events.c.data["case"].as_string() == case.case)
    _delete_events(connection, about_case)
    for part in parts(own):
        _delete_events(connection, events.c.execution_id.in_(part))
    # Questions and answers quote the state, so their events are deleted with them.
    for part in parts(lines):
        question_ids = list(connection.scalars(sa.select(approvals.c.id).where(approvals.c.checkpoint_id.in_(part))))
        answered = events.c.data["approval"].as_string().in_(question_ids)
        _delete_events(connection, sa.and_(events.c.sweep_id == case.sweep_id, answered))
        connection.execute(approvals.delete().where(approvals.c.checkpoint_id.in_(part)))
    for table in (cells, comments, labels, scores):
        connection.execute(table.delete().where(_of(table, case)))
    for part in parts(own):
        connection.execute(node_runs.delete().where(node_runs.c.execution_id.in_(part)))
        connection.execute(checkpoints.delete().where(checkpoints.c.execution_id.in_(part)))
        connection.execute(executions.delete().where(executions.c.id.in_(part)))


def _delete_events(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    # Alerts refer to events, so they are deleted first.
    connection.execute(alerts.delete().where(alerts.c.event_id.in_(sa.select(events.c.id).where(which))))
    connection.execute(events.delete().where(which))


def remove_named_values(database: Database, named: Named) -> int:
    """Remove values that nothing names any more. Returns how many."""
    if not named.values:  # else all rows would be read for nothing
        return 0
    unnamed = unreferenced_among(database, sorted(named.values))
    return sum(remove_values(database, part)[0] for part in unnamed.parts())


def remove_named_files(database: Database, files: FileStore, named: Named, since: float) -> int:
    """Remove stored files of snapshots that nothing names any more.

    Args:
        database: The database, without the rows that named them.
        files: The store.
        named: The snapshots.
        since: When the erasure began, by the clock of the store. A file that was added again since then stays.

    Returns:
        The number of files removed.
    """
    if not named.snapshots or not files.top.is_dir():
        return 0
    database = database.within(Scope())  # sessions of the default project have sweeps of all projects
    with database.read(long=True) as connection:
        still = snapshots(connection)
    needed: dict[str, set[str]] = {}  # by session
    of_project: dict[str, set[str]] = {}
    for session, project, snapshot in still:
        contents = {snapshot, *_contents(files.of_project(project), snapshot)}
        needed.setdefault(session, set()).update(contents)
        of_project.setdefault(project, set()).update(contents)
    candidates: dict[str, set[str]] = {}  # by project
    for project, snapshot in named.snapshots:
        store = files.of_project(project)
        if store.has(snapshot):
            candidates.setdefault(project, set()).update((snapshot, *_contents(store, snapshot)))
    every = set().union(*candidates.values())
    for session in database.scalars(sa.select(sessions.c.id)):
        for part in parts(sorted(every - needed.get(session, set())), filing.PART):
            with filing.forgetting_files(database, session, part):
                pass
    removed = set()
    for project, digests in candidates.items():
        store = files.of_project(project)
        unneeded = sorted(digests - of_project.get(project, set()))
        removed |= {digest for digest in unneeded if store.remove(digest, unless_added_since=since)}
    # Files in the folder of earlier releases may belong to any project.
    unneeded = sorted(every.difference(*of_project.values()))
    removed |= {digest for digest in unneeded if files.remove(digest, unless_added_since=since)}
    return len(removed)


def _contents(store: FileStore, snapshot: str) -> set[str]:
    return {file.digest for file in store.manifest(snapshot).values()}


def overwrite_free_pages(database: Database) -> str | None:
    """Remove the content of deleted rows from the file of an SQLite database. Returns an error if others use the
    file.
    """
    if not database.is_sqlite or database.path is None:
        return None
    try:
        with database.reached(), closing(database.engine.raw_connection()) as pooled:
            driver: Any = pooled.driver_connection
            # VACUUM writes a new file without free pages, which is then in the log;
            # only truncating that removes the old pages.
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                driver.execute(statement).fetchall()
    except sa.exc.DBAPIError as error:
        return str(error.orig)
    return None
