"""Backups: the database first, then the files, so that no file is missing that its rows name."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, ValidationError

from wtb.core.arguments import AnyPath, checked
from wtb.core.documents.administration import BackupDocument, MissingDocument, RestoredDocument
from wtb.core.errors import InputError, StoreError, WTBError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.core.version import __version__
from wtb.features.backup import queries as copies
from wtb.operations.auditing import noting
from wtb.operations.context import Context, throttled
from wtb.operations.running.copying import CopiedFiles
from wtb.store.files.locations import check_outside, copying_files
from wtb.store.files.store import FileStore
from wtb.store.housekeeping.stored_values import snapshots
from wtb.store.tables.schema import REVISION

FORMAT: Final = "wtb backup"
VERSION: Final = 1
HEAD: Final = "backup.json"
DATABASE: Final = "wtb.db"
FILES: Final = "files"
_MOST_BYTES = 64 << 20

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Missing(_Part):
    """Digests that rows name, and that were missing or damaged when the backup was made."""

    values: list[Digest] = []
    files: list[Digest] = []

    @property
    def document(self) -> MissingDocument:
        """The missing digests as a document for scripts."""
        return {"values": list(self.values), "files": list(self.files)}


class Manifest(_Part):
    """The contents of a backup.

    Attributes:
        source: The URL of its database, without passwords.
        rows: The number of rows of each table.
        file_bytes: The total size of all stored files.
    """

    format: Literal["wtb backup"] = FORMAT
    version: Literal[1] = VERSION
    wtb: str = __version__
    revision: str = REVISION
    made_at: Annotated[float, Field(gt=0)]
    source: str
    rows: dict[str, NonNegativeInt]
    files: NonNegativeInt
    file_bytes: NonNegativeInt
    missing: Missing


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a backup.

    Args:
        folder: The folder of the backup.

    Returns:
        Its contents.

    Raises:
        InputError: It is no backup, a damaged one, or one of another version of the tables.
    """
    place = folder / HEAD
    try:
        # The limit comes before the read: a manifest is small, and the folder may be anybody's.
        if place.stat().st_size > _MOST_BYTES:
            raise InputError(f"{place} is too large to be that of a backup")
        manifest = Manifest.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder} is no backup: it has no {HEAD}") from None
    except OSError as error:
        raise InputError(f"{place}: cannot be read ({error.strerror or error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise InputError(f"{place} is damaged, or of a newer WTB: {where}: {first['msg']}") from None
    if manifest.revision != REVISION:
        raise InputError(
            f"{folder} is of version {manifest.revision}, by WTB {manifest.wtb}; this WTB expects {REVISION}: "
            f"restore it with the WTB that made it, then run `wtb admin db upgrade` with this one"
        )
    return manifest


@checked
def backup(context: Context, folder: AnyPath) -> BackupDocument:
    """Copy a database with its files to a new folder, whole or not at all, also while sweeps run.

    The database is copied as it is at one moment, then the files that it names. Meanwhile no stored file is removed.

    Args:
        context: Where the database and its files are.
        folder: Where to; new or empty.

    Returns:
        The contents of the backup, and the files that were missing already.

    Raises:
        InputError: If the folder is not empty, its parent not there, or part of what is backed up.
        StoreError: If the database is out of reach, or the backup cannot be written.
    """
    folder = Path(folder)
    check_outside(context.workspaces, folder)
    _check_new(folder)
    made_at = time.time()
    # Its name lets whoever finds one see what it was; killed ones are no backups: they have no manifest.
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        temporary.mkdir(mode=0o700)
        try:
            manifest = _copy(context, temporary, made_at)
            (temporary / HEAD).write_text(manifest.model_dump_json(indent=2) + "\n", "utf-8")
            # Contents are on the disk before the rename that makes the folder a backup.
            _sync(temporary)
            os.rename(temporary, folder)
            _sync(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise WTBError(f"{folder}: the backup cannot be written ({error.strerror or error})") from error
    for what, missing in (("value", manifest.missing.values), ("file", manifest.missing.files)):
        if missing:
            context.warn(
                f"{plural(len(missing), what)} that the database names: missing or damaged, and so in the backup"
            )
    return {
        "folder": str(folder),
        "made_at": iso(made_at),
        "database": context.place,
        "revision": manifest.revision,
        "rows": dict(manifest.rows),
        "files": manifest.files,
        "bytes": (folder / DATABASE).stat().st_size + manifest.file_bytes,
        "missing": manifest.missing.document,
    }


def _check_new(folder: Path) -> None:
    if not folder.absolute().parent.is_dir():
        raise InputError(f"{folder}: there is no folder {folder.absolute().parent}; make it first, or name another")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already; name a new or empty folder")


def _copy(context: Context, folder: Path, made_at: float) -> Manifest:
    report = throttled(context.report)
    files = context.workspaces.files
    # Collections wait meanwhile, so a file that the copied rows name cannot be removed before it is copied.
    with copying_files(files):
        rows = copies.copy_database(context.database, folder / DATABASE, report)
        # The snapshot names are read from the copy and not from the database, which may have changed since.
        with copies.reading_copy(folder / DATABASE) as copy:
            named = snapshots_by_project(copy)
            values = copies.missing_values(copy) + copies.damaged_values(copy)
        copied = copy_files(files, FileStore(folder / FILES), named, report)
    missing = Missing(values=sorted(values), files=sorted(copied.missing))
    return Manifest(
        made_at=made_at, source=context.place, rows=rows, files=copied.count, file_bytes=copied.bytes, missing=missing
    )


def snapshots_by_project(connection: sa.Connection) -> dict[str, list[str]]:
    """Return the digests of the snapshots that rows name, by project."""
    named: dict[str, set[str]] = {}
    for _, project, digest in snapshots(connection):
        named.setdefault(project, set()).add(digest)
    return {project: sorted(digests) for project, digests in sorted(named.items())}


def copy_files(
    source: FileStore, target: FileStore, named: Mapping[str, list[str]], report: Callable[[str], None]
) -> CopiedFiles:
    """Copy snapshots with their contents from one store to another, each into the folder of its project.

    Args:
        source: The store that has them.
        target: The store that gets them.
        named: The digests of the snapshots, by project.
        report: Called with messages about the progress.
    """
    copied = CopiedFiles(report)
    for project, digests in named.items():
        copied.copy_snapshots(source.of_project(project), target.of_project(project), digests)
    return copied


def _sync(folder: Path) -> None:
    """Flush everything below a folder to the disk."""
    for path in (*folder.glob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@checked
def restore(context: Context, folder: AnyPath) -> RestoredDocument:
    """Load a backup into an empty database, of either kind, with its files.

    Everything that rows name is verified before anything is written: that it is there, and by its hash. Of what ran
    when the backup was made, workers go on with what was theirs; what a process ran by itself is paused.

    Args:
        context: An empty database, and where its files are to be.
        folder: What `backup` made.

    Returns:
        The restored rows and files.

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
    # Files first: if loading the rows fails, unreferenced files are collected later, while rows without files would be
    # damage.
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
    """Check that the copy has all rows and values. Return the snapshots that its rows name, by project."""
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
