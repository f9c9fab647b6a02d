"""Restoring a backup: into a database that is empty, the files first, so that its rows name none that is not there."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import AnyPath
from wtb.core.documents.storage.backups import RestoredDocument
from wtb.core.errors import StoreError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.operations.auditing import noting
from wtb.operations.backup.backup import copy_files, snapshots_by_project
from wtb.operations.backup.manifest import DATABASE, FILES, Manifest, read_manifest
from wtb.operations.context import Context, throttled
from wtb.store.files.store import FileStore
from wtb.store.transfer import backup as copies


@checked
def restore(context: Context, folder: AnyPath) -> RestoredDocument:
    """Load a backup into an empty database, of either kind, with its files.

    Everything that rows name is verified before anything is written: that it is there, and by its hash. Of what ran
    when the backup was made, workers go on with what was theirs; what a process ran by itself is paused.

    Args:
        context: An empty database, and where its files are to be.
        folder: What `backup` made.

    Returns:
        What was restored.

    Raises:
        InputError: If it is no backup, or of another version of the tables.
        ConflictError: If the database is not empty.
        StoreError: If the backup is damaged: it lacks something that was in it. Nothing was restored.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    copies.check_empty(context.database)
    report = throttled(context.report)
    named = _verified(folder, manifest)
    copied = copy_files(FileStore(folder / FILES), context.workspaces.files, named, report)
    _check_lost("file", copied.missing - set(manifest.missing.files), folder)
    open_sweeps = copies.load_copy(context.database, folder / DATABASE, report, by=context.by)
    with noting(context, "backups.restore", folder=str(folder)), context.database.write():
        pass  # behind the rows that the log had
    return {
        "folder": str(folder),
        "made_at": iso(manifest.made_at),
        "database": context.place,
        "rows": dict(manifest.rows),
        "files": copied.count,
        "open_sweeps": open_sweeps,
        "missing": manifest.missing.document,
    }


def _verified(folder: Path, manifest: Manifest) -> dict[str, list[str]]:
    """Check that the copy has all rows and values. Returns the snapshots of files that its rows name, by project."""
    with copies.reading_copy(folder / DATABASE) as copy:
        _check_intact(copy, folder)
        copies.check_rows(copy, manifest.rows)
        lost = {*copies.missing_values(copy), *copies.damaged_values(copy)}
        _check_lost("value", lost - set(manifest.missing.values), folder)
        return snapshots_by_project(copy)


def _check_intact(copy: sa.Connection, folder: Path) -> None:
    report = copy.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if report != "ok":
        raise StoreError(f"{folder / DATABASE} is damaged: {report}; use another backup")


def _check_lost(what: str, lost: set[str], folder: Path) -> None:
    if lost:
        first = ", ".join(sorted(lost)[:3])
        raise StoreError(
            f"{folder} is damaged: it lacks {plural(len(lost), what)} that it had when it was made, or has another "
            f"content there ({first}); use another backup"
        )
