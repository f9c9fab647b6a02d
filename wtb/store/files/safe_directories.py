"""Directories that users' code writes to: restored, walked and removed by descriptor, without following links."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from wtb.core.errors import StateError
from wtb.core.ids import new_id
from wtb.store.files.manifest import Entry, Manifest
from wtb.store.files.store import FileStore, opened_by
from wtb.store.files.system import open_flags

MOST_NESTED = 100  # levels; each one takes a descriptor while it is walked
_RESTORED_WAIT_S = 0.1
_REMOVAL_PASSES = 50
_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
_FILE = open_flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
_CREATE = open_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC")

Stamp = tuple[int, int, int, int]  # size, mtime, ctime, inode: unchanged as long as a file is not touched


def make_private(path: str) -> None:
    """Create a directory for this user alone. Raises FileExistsError if it exists."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        with contextlib.suppress(FileExistsError):  # another attempt creates it, too
            make_private(parent)
        os.mkdir(path, 0o700)


def open_folder(path: str, within: int | None = None) -> contextlib.AbstractContextManager[int]:
    return opened_by(partial(os.open, path, _FOLDER, dir_fd=within))


def stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def restore(files: FileStore, manifest: Manifest, root: int) -> dict[str, Stamp]:
    """Write files below a directory, folder by folder, without following links."""
    written: dict[str, Stamp] = {}
    trail: list[tuple[str, int]] = [("", root)]  # the open folders from the root to the current one
    try:
        # Sorted by folder, so that each folder is entered once and few descriptors are open at a time.
        for path in sorted(manifest, key=lambda path: path.split("/")[:-1]):
            folder, _, name = path.rpartition("/")
            while trail[-1][0] != folder:
                folder_path, descriptor = trail[-1]
                if folder_path and not folder.startswith(folder_path + "/"):
                    os.close(trail.pop()[1])
                    continue
                part = folder[len(folder_path) + bool(folder_path) :].partition("/")[0]
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                trail.append(
                    (f"{folder_path}/{part}" if folder_path else part, os.open(part, _FOLDER, dir_fd=descriptor))
                )
            file = manifest[path]
            # O_EXCL and O_NOFOLLOW: nothing can be placed in the way of a restored file.
            with opened_by(partial(os.open, name, _CREATE, 0o600, dir_fd=trail[-1][1])) as out:
                files.copy_into(file.digest, file.size, out)
                os.fchmod(out, file.mode & 0o777)
                written[path] = stamp(os.fstat(out))
    finally:
        for _, descriptor in trail[1:]:
            os.close(descriptor)
    return written


def walk(
    folder: int, prefix: str = "", depth: int = 0, seen: Callable[[str], None] = lambda path: None
) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Yield (path, descriptor of its folder, name, lstat) of the files below a folder.

    `seen` is called with the path of every entry, folders included, as it is found. Raises StateError for other kinds
    of entries.
    """
    listed = []
    with os.scandir(folder) as entries:
        for child in entries:
            seen(prefix + child.name)
            # Listed before any is opened, because nodes may still add and remove entries.
            listed.append(child)
    for child in sorted(listed, key=lambda child: child.name):
        name = child.name
        path = prefix + name
        if not name.isascii():
            _check_name(path)
        try:
            status = child.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # a process of the node still runs
        if stat.S_ISDIR(status.st_mode):
            if depth >= MOST_NESTED:
                raise StateError(f"workspace directory {path!r} is nested more than {MOST_NESTED} deep")
            with contextlib.ExitStack() as stack:
                inner = _open(path, partial(stack.enter_context, open_folder(name, folder)))
                yield from walk(inner, path + "/", depth + 1, seen)
        else:
            _check_file(path, status)
            yield path, folder, name, status


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StateError(f"workspace file {os.fsencode(path)!r} has a name that is not UTF-8; rename it") from None


def _check_file(path: str, status: os.stat_result) -> None:
    """Raise StateError for what is no regular file, or has several hard links."""
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise StateError(f"workspace file {path!r} is {kind}; only files and directories are kept")
    # A second name may lie outside of the workspace, where writes to the file would not be noticed.
    if status.st_nlink > 1:
        raise StateError(f"workspace file {path!r} has several hard links; make it a copy")


def _open(path: str, opening: Callable[[], int]) -> int:
    try:
        return opening()
    except OSError as error:
        raise StateError(f"workspace file {path!r} cannot be read: {error.strerror}") from error


def read_entry(path: str, folder: int, name: str, add: Callable[[str, int, int], tuple[str, int]]) -> Entry:
    """Pass a file that `walk` found to `add`, as (path, descriptor, size).

    Raises:
        StateError: If it was replaced, or written to meanwhile.
    """
    with opened_by(partial(_open, path, partial(os.open, name, _FILE, dir_fd=folder))) as descriptor:
        # Checked again on the open file: the name may lead to another one since `walk` looked.
        status = os.fstat(descriptor)
        _check_file(path, status)
        file = Entry(*add(path, descriptor, status.st_size), stat.S_IMODE(status.st_mode) & 0o777)
        if stamp(os.fstat(descriptor)) != stamp(status):
            raise StateError(
                f"workspace file {path!r} is still being written to; end what the node has started before it returns"
            )
        return file


def wait_beyond(newest: int, folder: int) -> int:
    """Wait until changes get a later ctime than `newest`, by the file system's own clock. Returns the ctime of now.

    Gives up if the clock does not get there soon, for example after it was set back.
    """
    ends = time.monotonic() + _RESTORED_WAIT_S
    while True:
        os.utime(folder)
        now = os.fstat(folder).st_ctime_ns
        if now > newest or time.monotonic() > ends:
            return now
        time.sleep(0.0005)


def tells_of_writes(folder: int) -> bool:
    """Return whether the file system changes a file's ctime when it is written to through memory; tmpfs may not."""
    name = f".wtb-{new_id()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with opened_by(partial(os.open, name, flags, 0o600, dir_fd=folder)) as descriptor:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            os.write(descriptor, b"?")
            with mmap.mmap(descriptor, 1) as mapped:
                before = os.fstat(descriptor).st_ctime_ns if mapped[0] else 0
                wait_beyond(before, folder)
                mapped[0] = 0
                return os.fstat(descriptor).st_ctime_ns != before
        return False


def remove_tree(path: str | Path) -> None:
    """Remove a directory and its contents, even from directories that were made unwritable; links are not followed.

    Things that cannot be removed stay, such as mounts or files that are still being written.
    """
    for _ in range(_REMOVAL_PASSES):
        try:
            folder = _open_to_empty(os.fspath(path), None)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)  # a link or file in its place
            return
        try:
            _empty(folder, folder, 0)
        finally:
            os.close(folder)
        try:
            os.rmdir(path)
        except OSError:
            continue  # deeply nested folders were moved up, or something still writes
        return


def _empty(folder: int, root: int, depth: int) -> None:
    """Remove all contents of a directory, as far as that is possible."""
    with os.scandir(folder) as entries:
        listed = list(entries)
    for child in listed:
        with contextlib.suppress(OSError):
            if child.is_dir(follow_symlinks=False):
                _remove_folder(child.name, folder, root, depth + 1)
            else:
                _insisting(folder, partial(os.unlink, child.name, dir_fd=folder))


def _remove_folder(name: str, folder: int, root: int, depth: int) -> None:
    """Remove a directory. One that is nested too deeply moves up to the root, for another pass."""
    with opened_by(partial(_open_to_empty, name, folder)) as inner:
        if depth > MOST_NESTED:  # to be emptied in another pass
            os.fchmod(inner, 0o700)
            _insisting(folder, partial(os.rename, name, new_id(), src_dir_fd=folder, dst_dir_fd=root))
            return
        _empty(inner, root, depth)
    _insisting(folder, partial(os.rmdir, name, dir_fd=folder))


def _insisting(folder: int, change: Callable[[], None]) -> None:
    """Change the contents of a folder, after making it writable if needed."""
    try:
        change()
    except PermissionError:
        os.fchmod(folder, 0o700)
        change()


def _open_to_empty(name: str, within: int | None) -> int:
    """Open a directory, with its permissions repaired if they forbid it."""
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except PermissionError:
        # An O_PATH descriptor needs no permission, and unlike a path it
        # cannot be exchanged for a link before the chmod.
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with opened_by(partial(os.open, name, flags, dir_fd=within)) as descriptor:
            os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
        return os.open(name, _FOLDER, dir_fd=within)
