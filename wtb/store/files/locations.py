"""The places of files: a home of each machine's own, and the directory that workers on several machines share.

Beside the files of a store are its lock, by which copying it and removing files from it never overlap, and the replies
of judges, so that all machines that share the files share the replies. These have scores and prices only, under digests
of the requests, and name no owner. Earlier releases kept the replies of all projects in one folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from wtb.config.project_settings import find_setting, table_of
from wtb.core.errors import InputError, StoreError
from wtb.core.frozen import frozen
from wtb.core.units import parse_size
from wtb.store.access.usage import stored_amounts
from wtb.store.database import Database
from wtb.store.files.cache import FileCache
from wtb.store.files.shared_store import SharedFiles
from wtb.store.files.store import FileStore, opened_by
from wtb.store.files.system import open_flags
from wtb.store.files.workspaces import Workspaces

SHARED = "WTB_FILES"
CACHE = "WTB_FILES_CACHE"
CACHE_BYTES = 10_000_000_000
_KEYS = ("shared", "cache")


@frozen
class Sharing:
    """The directory that workers share, the setting that named it, and the bytes of it that this machine may cache."""

    folder: Path
    named_by: str
    cache_bytes: int


def sharing(start: Path | None = None) -> Sharing | None:
    """Return the settings WTB_FILES and WTB_FILES_CACHE, else `[files]` of the project's; None if nothing is shared.

    Raises:
        InputError: For wrong settings.
    """
    setting = find_setting("files", start)
    table = table_of(setting, _KEYS) if setting is not None else {}
    where = f"{setting.file}: {setting.title}" if setting is not None else ""
    folder, named_by = os.environ.get(SHARED), SHARED
    if not folder and setting is not None and "shared" in table:
        folder, named_by = table["shared"], f"{where} shared"
        if not isinstance(folder, str) or not folder:
            raise InputError(f"{named_by} = {folder!r}: expected the path of a directory")
        folder = os.path.join(setting.file.parent, os.path.expanduser(folder))
    if not folder:
        return None
    size, sized_by = os.environ.get(CACHE), CACHE
    if not size:
        size, sized_by = table.get("cache", CACHE_BYTES), f"{where} cache"
    try:
        cache_bytes = parse_size(size) if isinstance(size, str | int) else parse_size(str(size))
    except ValueError as error:
        raise InputError(f"{sized_by}: {error}") from None
    return Sharing(Path(os.path.expanduser(folder)).absolute(), named_by, cache_bytes)


def home_of(database: Database, folder: Path | None = None) -> Path:
    """Return the home of this machine: `folder`, else beside an SQLite database, else `.wtb`."""
    home = folder or (database.path.parent if database.path is not None else Path(".wtb"))
    return home.absolute()


def workspaces_of(database: Database, folder: Path | None = None) -> Workspaces:
    """Return the workspaces of attempts with the file store: at home, unless workers share a directory.

    Raises:
        InputError: For wrong settings.
        StoreError: If the shared directory does not exist.
    """
    home, shared = home_of(database, folder), sharing()
    if shared is None:
        return Workspaces(FileStore(home / "files"), home / "sessions")
    _check_there(shared)
    files = SharedFiles(shared.folder / "files", FileCache(home / "cache", shared.cache_bytes))
    return Workspaces(files, home / "sessions")


def check_files(database: Database, workspaces: Workspaces) -> None:
    """Check before work starts that files can be kept in a shared directory.

    Raises:
        StoreError: If it does not exist, is not writable, is full, or is not the one that has the stored files.
    """
    files, shared = workspaces.files, sharing()
    if not isinstance(files, SharedFiles) or shared is None:
        return
    _check_there(shared)
    # A missing folder may mean that nothing is mounted there. A new store would then hide that files are missing.
    if not files.root.is_dir() and any(count for count, _ in stored_amounts(database)["files"].values()):
        raise StoreError(
            f"{shared.named_by}: {files.root} is not there, and the database knows files that were stored: mount the "
            f"directory that had them on {shared.folder}, or copy the folder that has them to {files.root}"
        )
    try:
        files.probe()
    except OSError as error:
        raise StoreError(
            f"{shared.named_by}: nothing can be written in {shared.folder} ({error.strerror or error}); make room or "
            f"make it writable for this user, or name another directory"
        ) from error


def check_outside(workspaces: Workspaces, place: Path) -> None:
    """Check that a place is not among stored files, where garbage collections would remove it.

    Args:
        workspaces: The workspaces and their store.
        place: The file or folder that is to be written.

    Raises:
        InputError: If it lies in the store, in its cache or among the directories of attempts.
    """
    files = workspaces.files
    folders = [files.top, workspaces.root, *([files.cache.root] if isinstance(files, SharedFiles) else ())]
    real = Path(os.path.realpath(place))
    for folder in folders:
        if real.is_relative_to(os.path.realpath(folder)):
            raise InputError(f"{place} is in {folder}, in which WTB stores its own files; name a path outside of it")


def _check_there(shared: Sharing) -> None:
    if not shared.folder.is_dir():
        raise StoreError(
            f"{shared.named_by}: there is no directory {shared.folder}; mount or create it, or name the one that the "
            f"workers share"
        )


with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no store opens
    import fcntl

LOCK = ".lock"
_OPEN = open_flags("O_RDWR", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW")


@contextlib.contextmanager
def copying_files(files: FileStore) -> Iterator[None]:
    """Keep others from removing files of a store inside the block; waits for a removal that is under way."""
    if not files.top.is_dir():
        yield
        return
    with opened_by(partial(os.open, files.top / LOCK, _OPEN, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def removing_files(files: FileStore) -> Iterator[bool]:
    """Yield whether files may be removed from a store inside the block, because nobody copies it."""
    if not files.top.is_dir():
        yield True
        return
    with opened_by(partial(os.open, files.top / LOCK, _OPEN, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


KEPT_S = 90 * 86_400.0  # that a reply is kept after it was last used


@frozen
class Unused:
    """Replies that were not used for long: their number, and their size in bytes."""

    count: int = 0
    bytes: int = 0


def find_unused(files: FileStore, older_than_s: float = KEPT_S) -> Unused:
    """Count replies that were not used for `older_than_s` seconds; 0 counts all."""
    sizes = [size for _, size in _unused(files, older_than_s)]
    return Unused(len(sizes), sum(sizes))


def remove_unused(files: FileStore, older_than_s: float = KEPT_S, projects: Collection[str] | None = None) -> Unused:
    """Remove replies that were not used for long.

    Args:
        files: The store.
        older_than_s: The number of seconds; 0 removes all.
        projects: Only replies of these projects, and those of earlier releases; None for all.
    """
    removed = []
    for path, size in _unused(files, older_than_s, projects):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            path.unlink()
            removed.append(size)
    return Unused(len(removed), sum(removed))


def _unused(
    files: FileStore, older_than_s: float, projects: Collection[str] | None = None
) -> Iterator[tuple[Path, int]]:
    """Yield their paths and sizes. A reply that is used meanwhile may be among them, and is then requested again."""
    parts = files.parts()
    if projects is not None:
        parts = [parts[0], *map(files.of_project, projects)]
    before = time.time() + files.clock_ahead() - older_than_s
    for path in chain.from_iterable(part.judgements.glob("*/*") for part in parts):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if path.is_file() and (not older_than_s or status.st_mtime < before):
                yield path, status.st_size
