"""Copies of a sweep with its files, history and scores to another database."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from wtb.analysis.matrix.build import freeze
from wtb.core.arguments import Title, checked
from wtb.core.documents.administration import CopiedSweepDocument
from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.status import HIDDEN_SWEEPS
from wtb.core.texts import plural
from wtb.core.values import Json
from wtb.operations.auditing import noting
from wtb.operations.context import Context, throttled
from wtb.operations.results.pools import check_no_pool
from wtb.operations.running.copying import CopiedFiles, check_copied, discarded_unless_whole, renamed_copy
from wtb.store.access.projects import project_to_submit_to
from wtb.store.access.sessions import session_to_submit_to
from wtb.store.bulk import Row
from wtb.store.database import open_database
from wtb.store.files.locations import copying_files
from wtb.store.housekeeping import sweep_copy
from wtb.store.housekeeping.contents import check_room
from wtb.store.housekeeping.sweep_copy import Home
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow


@checked
def copy_sweep(
    context: Context, ref: str, to: str | None = None, *, session: str | None = None, new_name: Title | None = None
) -> CopiedSweepDocument:
    """Copy a sweep with its files, history and scores to another database, whole or not at all.

    Ids stay. Nobody works on a copy: leases, access tokens, budgets and notifications stay behind. A second copy does
    nothing if both are equal. With a new name the copy is beside the sweep, with ids of its own; what the sweep has
    spent is not counted again.

    Args:
        context: Where the sweep is.
        ref: Its id, the beginning of it, or its name.
        to: The URL of the other database, which is made if there is none.
        session: The session that it belongs to there; by default the one that submits there.
        new_name: The name of a copy in the same database, instead of one in another.

    Returns:
        What was copied.

    Raises:
        InputError: If there is no such sweep or session, or if both are the same database.
        ConflictError: If the sweep runs, is a pool, differs from the sweep of this id that is there, or is being
            copied, or if the session has no room for its files.
        StoreError: If a value or file is missing or damaged, or one of the databases is out of reach.
    """
    sweep = queries.find_sweep(context.database, ref)
    if new_name is not None:
        if to is not None or session is not None:
            raise InputError(
                "a copy under another name is in the same database and session; expected either a database or a name",
                argument="new_name",
            )
        return _copied_beside(context, sweep, new_name)
    if to is None:
        raise InputError("expected the URL of another database, or a name for a copy in this one", argument="to")
    target = _opened(context, to)
    try:
        return _copied(context, target, sweep, session)
    finally:
        target.database.close()


def _copied_beside(context: Context, sweep: SweepRow, name: str) -> CopiedSweepDocument:
    check_no_pool(context.database, sweep, "copied")
    check_copied(sweep, name)
    with (
        renamed_copy(context, sweep, name) as copy,
        noting(context, "sweeps.copy", sweep=sweep.id, name=name),
        context.database.write() as connection,
    ):
        copy.publish(connection)
    freeze(context.database, copy.sweep.id)
    return {
        "version": 1,
        "id": copy.sweep.id,
        "name": name,
        "status": sweep.status,
        "to": context.place,
        "is_new": True,
        "rows": copy.rows,
        "files": 0,
        "bytes": 0,
    }


def _opened(context: Context, to: str) -> Context:
    database = open_database(to)
    if database.shown_url == context.database.shown_url:
        raise InputError(f"{database.shown_url} is the database that the sweep is in; name another one", argument="to")
    try:
        database.prepare()
    except BaseException:
        database.close()
        raise
    return Context(database, by=context.by, origin=context.origin, report=context.report, warn=context.warn)


def _copied(context: Context, target: Context, sweep: SweepRow, session: str | None) -> CopiedSweepDocument:
    report = throttled(context.report)
    with copying_files(context.workspaces.files), context.database.read(long=True) as connection:
        # The row is read inside the long read, so status and history belong to one state.
        row = _checked_row(connection, sweep.id)
        document: CopiedSweepDocument = {
            "version": 1,
            "id": sweep.id,
            "name": sweep.name,
            "status": row["status"],
            "to": target.place,
            "is_new": False,
            "rows": {},
            "files": 0,
            "bytes": 0,
        }
        if _is_there(connection, row, target):
            return document
        home = _home(target, session, sweep.project)
        snapshots = sweep_copy.snapshots_of(connection, sweep.id)
        contents = sweep_copy.sizes_of(connection, sweep.session_id, _contents(context, sweep, snapshots))
        # Space is checked before any file is copied.
        check_room(target.database, home.session, contents)
        files = _copy_files(context, target, sweep.project, home, snapshots)
        graph, looked = sweep_copy.graph_of(connection, row["workflow_id"]), sweep_copy.looks_of(connection, sweep.id)
        sweep_copy.begin_copy(target.database, row, graph, home)
        with discarded_unless_whole(target.database, sweep.id):
            rows = sweep_copy.copy_rows(context.database, connection, target.database.write, sweep.id, home, report)
            with noting(target, "sweeps.copy", sweep=sweep.id, source=context.place):
                details: dict[str, Json] = {"from": context.place, "by": context.by}
                sweep_copy.publish_copy(target.database, row, looked, home, contents, details)
    freeze(target.database, sweep.id)
    return {**document, "is_new": True, "rows": rows, "files": files.count, "bytes": files.bytes}


def _copy_files(context: Context, target: Context, project: str, home: Home, snapshots: list[str]) -> CopiedFiles:
    """Copy snapshots with their contents. Raises StoreError if any is missing or damaged."""
    files = CopiedFiles(throttled(context.report))
    if snapshots:
        target_files = target.workspaces.files.of_project(home.project)
        target_files.make()
        files.copy_snapshots(context.workspaces.files.of_project(project), target_files, snapshots)
    if files.missing:
        missing = plural(len(files.missing), "file")
        raise StoreError(f"{missing} of the sweep missing or damaged, such as {min(files.missing)}")
    return files


def _checked_row(connection: sa.Connection, sweep_id: str) -> Row:
    """Return the row of a sweep that can be copied. Raises ConflictError for others."""
    row = sweep_copy.find_row(connection, sweep_id)
    if row is None:
        raise ConflictError(f"sweep {sweep_id} was deleted meanwhile")
    if row["status"] not in sweep_copy.ENDED:
        raise ConflictError(
            f"sweep {sweep_id} is {row['status']}; pause it with `wtb pause {sweep_id}`, or copy it when it has ended"
        )
    if sweep_copy.is_pool(connection, sweep_id):
        raise ConflictError(f"sweep {sweep_id} is a pool of others; copy those, and pool them there")
    return row


def _is_there(connection: sa.Connection, row: Row, target: Context) -> bool:
    """Return whether an equal sweep of this id is in the other database. Raises ConflictError if it differs."""
    with target.database.read(long=True) as other:
        other_row = sweep_copy.find_row(other, row["id"])
        # A hidden sweep is a submission or copy that is not published yet.
        if other_row is None or other_row["status"] in HIDDEN_SWEEPS:
            return False
        theirs = sweep_copy.digests_of_tables(other, row["id"])
    _check_same(row, other_row, sweep_copy.digests_of_tables(connection, row["id"]), theirs, target)
    return True


def _check_same(row: Row, other_row: Row, ours: Mapping[str, str], theirs: Mapping[str, str], target: Context) -> None:
    """Raise ConflictError that names what differs between a sweep and the one of its id in the other database."""
    differing = [name for name in ("status", "name", "cells", "spec", "fingerprints") if row[name] != other_row[name]]
    differing += [name for name, digest in ours.items() if theirs[name] != digest]
    if differing:
        raise ConflictError(
            f"sweep {row['id']} is in {target.place} already, and differs in {', '.join(differing)}: delete it there "
            "to copy it anew"
        )


def _home(target: Context, session: str | None, project: str) -> Home:
    name = target.session_name(session)
    with target.database.write() as connection:
        owner = session_to_submit_to(connection, name, None)
        named = project if owner.project == DEFAULT_PROJECT else None
        return Home(owner.id, project_to_submit_to(connection, named, owner.project))


def _contents(context: Context, sweep: SweepRow, snapshots: list[str]) -> list[str]:
    """Return the digests of snapshots and of the files that they list."""
    files = context.workspaces.files.of_project(sweep.project)
    listed = {file.digest for digest in snapshots for file in files.manifest(digest).values()}
    return sorted({*snapshots, *listed})
