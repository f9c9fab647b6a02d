"""Where files are: a home of each machine's own, and the directory that workers on several machines share."""

from __future__ import annotations

import os
from pathlib import Path

from wtb.config.project_settings import find_setting, table_of
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StoreError
from wtb.core.units import parse_size
from wtb.store.database import Database
from wtb.store.files.cache import FileCache
from wtb.store.files.shared_store import SharedFiles
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces
from wtb.store.housekeeping.sizes import stored_amounts

SHARED = "WTB_FILES"
CACHE = "WTB_FILES_CACHE"
CACHE_BYTES = 10_000_000_000
_KEYS = ("shared", "cache")


@frozen
class Sharing:
    """The directory that workers share, what named it, and how many bytes of it this machine may keep."""

    folder: Path
    named_by: str
    cache_bytes: int


def sharing(start: Path | None = None) -> Sharing | None:
    """What WTB_FILES and WTB_FILES_CACHE say, else `[files]` of the project's settings; None where nothing is shared.

    Raises InputError.
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
        most = parse_size(size) if isinstance(size, str | int) else parse_size(str(size))
    except ValueError as error:
        raise InputError(f"{sized_by}: {error}") from None
    return Sharing(Path(os.path.expanduser(folder)).absolute(), named_by, most)


def home_of(database: Database, folder: Path | None = None) -> Path:
    """What is this machine's own: `folder`, else beside an SQLite database, else `.wtb`."""
    home = folder or (database.path.parent if database.path is not None else Path(".wtb"))
    return home.absolute()


def workspaces_of(database: Database, folder: Path | None = None) -> Workspaces:
    """Where attempts work, and where files are kept: at home, unless workers share a directory.

    Raises InputError for wrong settings, StoreError where the shared directory is not there.
    """
    home, shared = home_of(database, folder), sharing()
    if shared is None:
        return Workspaces(FileStore(home / "files"), home / "sessions")
    _check_there(shared)
    files = SharedFiles(shared.folder / "files", FileCache(home / "cache", shared.cache_bytes))
    return Workspaces(files, home / "sessions")


def check_files(database: Database, workspaces: Workspaces) -> None:
    """Whether files can be kept, before work starts. Says nothing of what is this machine's own.

    Raises StoreError where the shared directory is not there, not writable, full, or not the one that it was.
    """
    files, shared = workspaces.files, sharing()
    if not isinstance(files, SharedFiles) or shared is None:
        return
    _check_there(shared)
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
    """Check that something is not to be written among stored files, where garbage collections would find it.

    Args:
        workspaces: Where files are kept.
        place: The file or folder that is to be written.

    Raises:
        InputError: If it lies in the store, in its cache or among the directories of attempts.
    """
    files = workspaces.files
    folders = [files.top, workspaces.root, *([files.cache.root] if isinstance(files, SharedFiles) else ())]
    real = Path(os.path.realpath(place))
    for folder in folders:
        if real.is_relative_to(os.path.realpath(folder)):
            raise InputError(f"{place} is in {folder}, where WTB keeps files itself; name a place outside of it")


def _check_there(shared: Sharing) -> None:
    if not shared.folder.is_dir():
        raise StoreError(
            f"{shared.named_by}: there is no directory {shared.folder}; mount or make it, or name the one that the "
            f"workers share"
        )
