"""Making a backup: the database first, then the files, so that none is missing of those that its rows name."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import sqlalchemy as sa

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import AnyPath
from wtb.core.documents.storage.backups import BackupDocument
from wtb.core.errors import InputError, StoreError, WTBError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.operations.backup.manifest import DATABASE, FILES, HEAD, Manifest, Missing
from wtb.operations.context import Context, throttled
from wtb.store.bulk import parts
from wtb.store.files.locations import check_outside
from wtb.store.files.locks import copying_files
from wtb.store.files.store import FileStore
from wtb.store.housekeeping.references import snapshots
from wtb.store.transfer import backup as copies

_TOGETHER = 200  # files that are waited for on the disk at once


@checked
def backup(context: Context, folder: AnyPath) -> BackupDocument:
    """Copy a database with its files to a new folder, whole or not at all, also while sweeps run.

    The database is copied as it is at one moment, then the files that it names. Meanwhile no stored file is removed.

    Args:
        context: Where the database and its files are.
        folder: Where to; new or empty.

    Returns:
        What the backup holds, and what was missing already.

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
        raise InputError(f"{folder} is there already; name a new folder, or an empty one")


def _copy(context: Context, folder: Path, made_at: float) -> Manifest:
    report = throttled(context.report)
    files = context.workspaces.files
    with copying_files(files):
        rows = copies.copy_database(context.database, folder / DATABASE, report)
        with copies.reading_copy(folder / DATABASE) as copy:
            named = snapshots_by_project(copy)
            values = copies.missing_values(copy) + copies.damaged_values(copy)
        copied = copy_files(files, FileStore(folder / FILES), named, report)
    missing = Missing(values=sorted(values), files=sorted(copied.missing))
    return Manifest(
        made_at=made_at,
        source=context.place,
        rows=rows,
        files=copied.count,
        file_bytes=copied.bytes,
        missing=missing,
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
        source: Where they are.
        target: Where they are to be.
        named: The digests of the snapshots, by project.
        report: Called with messages about the progress.
    """
    copied = CopiedFiles(report)
    for project, digests in named.items():
        copied.copy_snapshots(source.of_project(project), target.of_project(project), digests)
    return copied


class CopiedFiles:
    """Files on their way from one store to another, each verified by its hash.

    Attributes:
        count: How many were copied.
        bytes: Of them together.
        missing: Digests of those that are missing or damaged.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self.count = 0
        self.bytes = 0
        self.missing: set[str] = set()

    def copy_snapshots(self, source: FileStore, target: FileStore, named: list[str]) -> None:
        """Copy the manifests of snapshots with the contents that they list."""
        contents: set[str] = set()
        for digest in named:
            with self._noting(digest):
                contents |= {entry.digest for entry in source.manifest(digest).values()}
        # Contents first: a manifest that is there has them, as in every store.
        self._copy(source, target, sorted(contents - set(named)))
        self._copy(source, target, [digest for digest in named if digest not in self.missing])

    def _copy(self, source: FileStore, target: FileStore, digests: list[str]) -> None:
        for part in parts(digests, _TOGETHER):
            with target.adding() as adding:
                for digest in part:
                    with self._noting(digest):
                        _, size = adding.add_blocks(source.read(digest), 0)
                        self.count += 1
                        self.bytes += size
                adding.publish()
            self._report(f"files: {self.count:,} copied")

    @contextlib.contextmanager
    def _noting(self, digest: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.missing.add(digest)


def _sync(folder: Path) -> None:
    """Have what was written below a folder be on the disk."""
    for path in (*folder.glob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
