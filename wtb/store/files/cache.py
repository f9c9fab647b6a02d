"""A bounded cache of file contents on this machine's own disk, which all of its processes share.

Contents lie, by project, under their SHA-256; those that were not used for longest go first. Nothing rests on it: what
is not there is fetched again, and a cache that cannot be written is none. So no error of its own leaves this room.

Locks end with the process that held them. Who writes a content holds its temporary file, so that the others wait for
it, and one that nobody holds is a dead writer's. Who reads one holds it against being removed. What was written gets
its name before it is unlocked for readers: whoever changes a lock has none for a moment. `.bytes` has the sum of all
sizes; who changes what it counts holds it. Killed between the two it counts too much, until the next removal.
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

PATIENCE_S = 5.0  # for a writer that gets no further, such as a process that was stopped
_POLL_S = 0.0005
_FILLED = 0.9  # of the bound, after a removal: so that not every content needs one
_TEMPORARY = ".new-"
_COUNT = ".bytes"
_READ = open_flags("O_RDONLY", "O_NOFOLLOW", "O_CLOEXEC")
_WRITE = open_flags("O_RDWR", "O_NOFOLLOW", "O_CLOEXEC")


class FileCache:
    """Contents by SHA-256 below `root`, at most `most` bytes of them, those on their way in included.

    folder: where contents lie, if they are those of one project. The bound is that of all projects together.
    """

    def __init__(self, root: Path, most: int, folder: Path | None = None) -> None:
        self.root = root
        self.most = most
        self.folder = folder or root
        self._root = os.fspath(root)
        self._folder = os.fspath(self.folder)

    def within(self, folder: Path) -> FileCache:
        """Return the part of a project, in a folder of its own below the root."""
        return FileCache(self.root, self.most, self.root / folder)

    def open(self, digest: str) -> int | None:
        """A descriptor of a content, which stays while it is open; None where it is not there. It is used now."""
        try:
            descriptor = os.open(self._path(digest), _READ)
        except OSError:
            return None
        try:
            # Whoever writes or removes it is done in a moment.
            _wait(lambda: _locks(descriptor, fcntl.LOCK_SH), lambda: 0)
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(OSError):  # node processes only read it: who provided it has noted that it is used
            os.utime(descriptor)
        return descriptor

    def begin(self, size: int, digest: str | None = None) -> Arriving | None:
        """Make room for a content of so many bytes, to be written and kept. `digest`: where it is known before.

        None where it is not to be written: it does not fit, the cache is out of order, or another process has just
        done so or is about to and gets no further.
        """
        if size > self.most:
            return None
        temporary = f"{self._root}/{_TEMPORARY}{digest or new_id()}-{size}"
        try:
            while not (digest and os.path.lexists(self._path(digest))):
                if (descriptor := self._create(temporary, size)) is None:
                    descriptor = _taken_over(temporary)
                if descriptor is not None:
                    arriving = Arriving(self, descriptor, temporary, size)
                    if not (digest and os.path.lexists(self._path(digest))):
                        return arriving
                    arriving.discard()  # another process has written it since we looked
        except OSError:
            pass
        return None

    def drop(self, digest: str) -> None:
        """Remove a content that is damaged, or that nobody will want."""
        self._forget(self._path(digest))

    def clean_up(self) -> None:
        """Remove what dead writers left, count anew what there is, and keep to the bound."""
        if os.path.isdir(self._root):
            with contextlib.suppress(OSError), self._counted() as count:
                _set(count, self._make_room(0))

    def shrink(self, size: int) -> None:
        """Remove what was not used for longest, until so many bytes are free for others."""
        with contextlib.suppress(OSError), self._counted() as count:
            total = _number(count)
            free = 0 if total is None else self.most - total
            _set(count, self._make_room(free + size))

    def stored(self) -> Iterator[tuple[str, int, float]]:
        """List its contents: (digest, size in bytes, time at which it was last used)."""
        return stored_in(self._folder)

    def _path(self, digest: str) -> str:
        return content_path(self._folder, digest)

    def _create(self, temporary: str, size: int) -> int | None:
        """A new temporary file that is ours, and counted; None where there is one. Raises OSError."""
        with self._counted() as count:
            if os.path.lexists(temporary):
                return None
            total = _number(count)
            if total is None or total + size > self.most:
                total = self._make_room(size)
            if total + size > self.most:
                raise OSError(errno.ENOSPC, "the cache is full of what is in use")
            _set(count, total + size)
            descriptor = os.open(temporary, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
            if _locks(descriptor, fcntl.LOCK_EX):
                return descriptor
            os.close(descriptor)  # one who waits was quicker, and takes it over
            return None

    def _make_room(self, size: int) -> int:
        """Remove the leftovers of dead writers, and contents until there is room for `size`. Returns what is left."""
        total = 0
        for name in listed(self._root):
            if name.startswith(_TEMPORARY) and not _removed(f"{self._root}/{name}"):
                size_of = name.rpartition("-")[2]
                total += int(size_of) if size_of.isdecimal() else 0
        projects = f"{self._root}/{PROJECTS}"
        entries = [
            (used, content_path(folder, digest), found)
            for folder in (self._root, *(f"{projects}/{name}" for name in listed(projects)))
            for digest, found, used in stored_in(folder)
        ]
        total += sum(found for _, _, found in entries)
        allowed = max(0, int(self.most * _FILLED) - size)
        for _, path, found in sorted(entries) if total + size > self.most else ():
            if total <= allowed:
                break
            if _removed(path):
                total -= found
        return total

    def _forget(self, path: str, size: int | None = None) -> None:
        """Remove a file, and count it no more. `size`: where it counts for another size than it has."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            count = None
            with contextlib.suppress(OSError):
                count = stack.enter_context(self._counted())
            found = os.stat(path).st_size if size is None else size
            os.unlink(path)
            if count is not None and (total := _number(count)) is not None:
                _set(count, max(0, total - found))

    @contextlib.contextmanager
    def _counted(self) -> Iterator[int]:
        """The sum of all sizes, for this process alone: a descriptor. Raises OSError where it is not to be had."""
        os.makedirs(self._root, 0o700, exist_ok=True)
        count = os.open(f"{self._root}/{_COUNT}", _WRITE | os.O_CREAT, 0o600)
        try:
            _wait(lambda: _locks(count, fcntl.LOCK_EX), lambda: 0)
            yield count
        finally:
            os.close(count)


class Arriving:
    """A content on its way into a cache: a temporary file until `keep`, removed at the end of the block otherwise."""

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
        """Add to it; whether that was possible. What was not is discarded."""
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
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # whoever needs the disk now goes before
                self._cache.shrink(2 * self._size)
            return False
        self.discard()
        return False

    def keep(self, digest: str) -> int | None:
        """Make it visible under its hash. Returns its descriptor, at its beginning, or None where it is not kept."""
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
            except FileNotFoundError:
                os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
                os.rename(self._temporary, place)
        except OSError:
            self.discard()
            return None
        self._temporary = None
        with contextlib.suppress(OSError):  # others may read it, too
            _wait(lambda: _locks(self._descriptor, fcntl.LOCK_SH), lambda: 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return self._descriptor

    def discard(self) -> None:
        """Remove it, unless it was kept or discarded before."""
        if self._temporary is not None:
            temporary, self._temporary = self._temporary, None
            self._cache._forget(temporary, self._size)
            os.close(self._descriptor)


def _taken_over(temporary: str) -> int | None:
    """Wait for another's writing. A descriptor of the empty file where it died at that; None where it has ended.

    Raises TimeoutError where it gets no further.
    """
    try:
        descriptor = os.open(temporary, _WRITE)
    except FileNotFoundError:
        return None
    try:
        # Together with others who wait, and with those who read it by then.
        _wait(lambda: _locks(descriptor, fcntl.LOCK_SH), lambda: os.fstat(descriptor).st_size)
        if _is_at(temporary, descriptor) and _locks(descriptor, fcntl.LOCK_EX) and _is_at(temporary, descriptor):
            os.ftruncate(descriptor, 0)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    time.sleep(_POLL_S * random())  # several who wait must not get in each other's way again
    return None


def _removed(path: str) -> bool:
    """Remove a file that nobody reads or writes; whether it is gone."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
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
        found, held = os.stat(path, follow_symlinks=False), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def _locks(descriptor: int, kind: int) -> bool:
    """Try to lock a file without waiting. Returns False if somebody else has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(is_true: Callable[[], bool], progress: Callable[[], int]) -> None:
    """Wait until it is true. Raises TimeoutError where there was no progress for too long."""
    seen, ends = -1, 0.0
    while not is_true():
        if (now := progress()) != seen:
            seen, ends = now, time.monotonic() + PATIENCE_S
        elif time.monotonic() > ends:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds it and gets no further")
        time.sleep(_POLL_S)


def _number(count: int) -> int | None:
    try:
        return int(os.pread(count, 20, 0))
    except ValueError:  # new, or torn by a crash of the machine
        return None


def _set(count: int, total: int) -> None:
    os.pwrite(count, b"%020d" % total, 0)
