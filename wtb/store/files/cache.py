"""A bounded cache of file contents on this machine's own disk, which all of its processes share.

Contents lie, by project, under their SHA-256; the least recently used ones are removed first. Nothing depends on the
cache: missing contents are fetched again, and a cache that cannot be written is skipped. So its own errors never leave
this module.

Locks end with the process that held them. A writer locks its temporary file, so that others wait for it; a temporary
file without a lock belongs to a dead writer. A reader locks a content against removal. A written content gets its name
before its lock is shared with readers, because changing a lock releases it for a moment. `.bytes` has the sum of all
sizes, and is locked by a process that changes what it counts. After a kill between the two it counts too much, until
the next removal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import random

from wtb.core.ids import new_id
from wtb.store.files.store import PROJECTS, content_path, listed, stored_in
from wtb.store.files.system import open_flags

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where `check_system` refuses to open a store
    import fcntl

PATIENCE_S = 5.0  # for a writer that makes no progress, such as a stopped process
_POLL_S = 0.0005
_FILLED = 0.9  # of the bound, after a removal, so that not every new content needs another
_TEMPORARY = ".new-"
_COUNT = ".bytes"
_READ = open_flags("O_RDONLY", "O_NOFOLLOW", "O_CLOEXEC")
_WRITE = open_flags("O_RDWR", "O_NOFOLLOW", "O_CLOEXEC")


class FileCache:
    """Contents by SHA-256 below `root`, at most `max_bytes` bytes of them, including contents that are being written.

    `folder` is the folder of the contents of one project. The bound is that of all projects together.
    """

    def __init__(self, root: Path, max_bytes: int, folder: Path | None = None) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.folder = folder or root
        self._root = os.fspath(root)
        self._folder = os.fspath(self.folder)

    def within(self, folder: Path) -> FileCache:
        """Return the part of a project, in a folder of its own below the root."""
        return FileCache(self.root, self.max_bytes, self.root / folder)

    def open(self, digest: str) -> int | None:
        """Return a descriptor of a content, which counts as used now and stays while it is open; None if it is
        missing.
        """
        try:
            descriptor = os.open(self._path(digest), _READ)
        except OSError:
            return None
        try:
            # A process that publishes or removes it is done in a moment.
            _wait(lambda: _locks(descriptor, fcntl.LOCK_SH), lambda: 0)
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(OSError):  # node processes may only read it; `provide` has updated its time
            os.utime(descriptor)
        return descriptor

    def begin(self, size: int, digest: str | None = None) -> Arriving | None:
        """Make room for a content of `size` bytes that is about to be written. `digest` is its hash, if known before.

        Returns:
            The content to write; None if it does not fit, the cache is out of order, or another process has just
            written it or is about to and makes no progress.
        """
        if size > self.max_bytes:
            return None
        temporary = f"{self._root}/{_TEMPORARY}{digest or new_id()}-{size}"
        try:
            while not (digest and os.path.lexists(self._path(digest))):
                if (descriptor := self._create(temporary, size)) is None:
                    descriptor = _reclaim_unfinished(temporary)
                if descriptor is not None:
                    arriving = Arriving(self, descriptor, temporary, size)
                    if not (digest and os.path.lexists(self._path(digest))):
                        return arriving
                    arriving.discard()  # another process has written it meanwhile
        except OSError:
            pass
        return None

    def drop(self, digest: str) -> None:
        """Remove a content that is damaged or no longer needed."""
        self._forget(self._path(digest))

    def clean_up(self) -> None:
        """Remove the leftovers of dead writers, count all contents again, and enforce the bound."""
        if os.path.isdir(self._root):
            with contextlib.suppress(OSError), self._counted() as count:
                _set(count, self._make_room(0))

    def shrink(self, size: int) -> None:
        """Remove the least recently used contents, until `size` bytes are free for others."""
        with contextlib.suppress(OSError), self._counted() as count:
            total = _number(count)
            free = 0 if total is None else self.max_bytes - total
            _set(count, self._make_room(free + size))

    def stored(self) -> Iterator[tuple[str, int, float]]:
        """List its contents: (digest, size in bytes, time at which it was last used)."""
        return stored_in(self._folder)

    def _path(self, digest: str) -> str:
        return content_path(self._folder, digest)

    def _create(self, temporary: str, size: int) -> int | None:
        """Create a temporary file that is locked and counted; None if it exists. Raises OSError."""
        with self._counted() as count:
            if os.path.lexists(temporary):
                return None
            total = _number(count)
            if total is None or total + size > self.max_bytes:
                total = self._make_room(size)
            if total + size > self.max_bytes:
                raise OSError(errno.ENOSPC, "the cache is full of what is in use")
            _set(count, total + size)
            descriptor = os.open(temporary, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
            if _locks(descriptor, fcntl.LOCK_EX):
                return descriptor
            os.close(descriptor)  # a waiting process has locked it first, and reclaims it
            return None

    def _make_room(self, size: int) -> int:
        """Remove the leftovers of dead writers, and contents until `size` bytes fit. Returns the size of the rest."""
        total = 0
        # Files that cannot be removed are being written, and count with the size that their name announces.
        for name in listed(self._root):
            if name.startswith(_TEMPORARY) and not _removed(f"{self._root}/{name}"):
                size_of = name.rpartition("-")[2]
                total += int(size_of) if size_of.isdecimal() else 0
        projects = f"{self._root}/{PROJECTS}"
        entries = [
            (used, content_path(folder, digest), file_size)
            for folder in (self._root, *(f"{projects}/{name}" for name in listed(projects)))
            for digest, file_size, used in stored_in(folder)
        ]
        total += sum(file_size for _, _, file_size in entries)
        allowed = max(0, int(self.max_bytes * _FILLED) - size)
        for _, path, file_size in sorted(entries) if total + size > self.max_bytes else ():
            if total <= allowed:
                break
            if _removed(path):
                total -= file_size
        return total

    def _forget(self, path: str, size: int | None = None) -> None:
        """Remove a file and subtract its size, or `size` if it was counted with another one."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            # If the count cannot be locked, the file is removed anyway. Counting
            # too much is repaired by the next removal.
            count = None
            with contextlib.suppress(OSError):
                count = stack.enter_context(self._counted())
            counted_size = os.stat(path).st_size if size is None else size
            os.unlink(path)
            if count is not None and (total := _number(count)) is not None:
                _set(count, max(0, total - counted_size))

    @contextlib.contextmanager
    def _counted(self) -> Iterator[int]:
        """Lock the sum of all sizes, and yield its descriptor. Raises OSError if it cannot be locked."""
        os.makedirs(self._root, 0o700, exist_ok=True)
        count = os.open(f"{self._root}/{_COUNT}", _WRITE | os.O_CREAT, 0o600)
        try:
            _wait(lambda: _locks(count, fcntl.LOCK_EX), lambda: 0)
            yield count
        finally:
            os.close(count)


class Arriving:
    """A content that is being written to a cache: a temporary file until `keep`, removed at the end of the block
    otherwise.
    """

    def __init__(self, cache: FileCache, descriptor: int, temporary: str, size: int) -> None:
        self._cache = cache
        self._descriptor = descriptor
        self._temporary: str | None = temporary
        self._size = size
        self._written = 0

    def __enter__(self) -> Arriving:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    def write(self, block: bytes) -> bool:
        """Append a block. Returns whether that was possible; otherwise the content is discarded."""
        if self._temporary is None:
            return False
        self._written += len(block)
        try:
            if self._written <= self._size:
                rest = memoryview(block)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
                return True
        except OSError as error:
            self.discard()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # other users of the disk have priority
                self._cache.shrink(2 * self._size)
            return False
        self.discard()
        return False

    def keep(self, digest: str) -> int | None:
        """Publish it under its hash. Returns its descriptor, at its beginning, or None if it is not kept."""
        if self._temporary is None or self._written != self._size:
            self.discard()
            return None
        place = self._cache._path(digest)
        try:
            os.fchmod(self._descriptor, 0o444)
            if os.path.lexists(place):
                self.discard()
                return None
            try:
                os.rename(self._temporary, place)
            # The folder is created only now, because it exists for almost all contents.
            except FileNotFoundError:
                os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
                os.rename(self._temporary, place)
        except OSError:
            self.discard()
            return None
        self._temporary = None
        with contextlib.suppress(OSError):  # so that others can read it, too
            _wait(lambda: _locks(self._descriptor, fcntl.LOCK_SH), lambda: 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return self._descriptor

    def discard(self) -> None:
        """Remove it, unless it was kept or discarded before."""
        if self._temporary is not None:
            temporary, self._temporary = self._temporary, None
            self._cache._forget(temporary, self._size)
            os.close(self._descriptor)


def _reclaim_unfinished(temporary: str) -> int | None:
    """Wait for another process that writes a content.

    Returns:
        The descriptor of the file, emptied, if that process died; None if it has ended its work.

    Raises:
        TimeoutError: If that process makes no progress.
    """
    try:
        descriptor = os.open(temporary, _WRITE)
    except FileNotFoundError:
        return None
    try:
        # A shared lock, so that several can wait, and readers of the finished content are not in the way.
        _wait(lambda: _locks(descriptor, fcntl.LOCK_SH), lambda: os.fstat(descriptor).st_size)
        # The path is compared before and after the lock, because the file may have been renamed or replaced meanwhile.
        if _is_at(temporary, descriptor) and _locks(descriptor, fcntl.LOCK_EX) and _is_at(temporary, descriptor):
            os.ftruncate(descriptor, 0)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    time.sleep(_POLL_S * random())  # several waiting processes must not collide again
    return None


def _removed(path: str) -> bool:
    """Remove a file unless somebody reads or writes it. Returns whether it is gone."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        # A shared or exclusive lock of another process shows that the content is in use.
        if not _locks(descriptor, fcntl.LOCK_EX):
            return False
        os.unlink(path)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        of_path, of_descriptor = os.stat(path, follow_symlinks=False), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (of_path.st_dev, of_path.st_ino) == (of_descriptor.st_dev, of_descriptor.st_ino)


def _locks(descriptor: int, kind: int) -> bool:
    """Try to lock a file without waiting. Returns False if somebody else has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(is_true: Callable[[], bool], progress: Callable[[], int]) -> None:
    """Wait until `is_true` returns True. Raises TimeoutError if there was no progress for too long."""
    seen, ends = -1, 0.0
    while not is_true():
        if (now := progress()) != seen:
            seen, ends = now, time.monotonic() + PATIENCE_S
        elif time.monotonic() > ends:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds it and makes no progress")
        time.sleep(_POLL_S)


def _number(count: int) -> int | None:
    try:
        return int(os.pread(count, 20, 0))
    except ValueError:  # new, or torn by a crash of the machine
        return None


def _set(count: int, total: int) -> None:
    os.pwrite(count, b"%020d" % total, 0)
