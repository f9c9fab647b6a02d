"""Files by content in a directory that workers on several machines share, and the handover of files by node processes.

A machine has a cache on its own disk. A node process leaves new contents in a folder, and its runner takes them into
the store, since node processes never write to one. The folder is untrusted: it is read by descriptor, without following
links, and every content is hashed again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from wtb.core.errors import OutOfReach, StateError, StoreError, WTBError
from wtb.core.failures import is_disk_fault
from wtb.core.fault_points import point
from wtb.store.files.cache import FileCache
from wtb.store.files.store import BLOCK, Adding, CachePlace, FileStore, Place, digest_of, opened_by, write_all
from wtb.store.files.system import open_flags
from wtb.store.files.workspaces import Workspaces

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SharedFiles(FileStore):
    """A store in a shared directory. Contents that are fetched from it or published in it are also cached.

    Args:
        root: A folder of the shared directory, created when it is first needed.
        cache: The cache.
        was_there: Whether the root has existed, so that its absence means that the shared directory is not mounted.

    Raises:
        OutOfReach: If the shared directory is not mounted any more.
        OSError: If it is full.
    """

    def __init__(self, root: Path, cache: FileCache, *, was_there: bool | None = None) -> None:
        super().__init__(root)
        self.cache = cache
        self._was_there = root.is_dir() if was_there is None else was_there

    def _in(self, root: Path) -> Self:
        store = super()._in(root)
        store.cache = self.cache.within(root.relative_to(self.top))
        return store

    def adding(self) -> Adding:
        return _CachedAdding(self)

    def provide(self, snapshot: str) -> None:
        """Copy a snapshot to the cache, which node processes only read. Raises StoreError."""
        super().provide(snapshot)
        for digest in (snapshot, *{file.digest for file in self.manifest(snapshot).values()}):
            opened = self.cache.open(digest)
            if opened is None:
                opened = self._fetch(digest)
            if opened is not None:
                os.close(opened)

    def copy_into(self, digest: str, size: int | None, out: int) -> None:
        for find in (self.cache.open, self._fetch):
            if (opened := find(digest)) is None:
                continue
            try:
                self._put(opened, digest, size, out)
                return
            except StoreError:  # only the cached copy is damaged
                self.cache.drop(digest)
                # A part may be written already; the next source begins at the start.
                os.lseek(out, 0, os.SEEK_SET)
                os.ftruncate(out, 0)
            finally:
                os.close(opened)
        with opened_by(partial(self._open, digest)) as source:
            self._write(digest, partial(self._read, source), out)

    def renew(self, digest: str, size: int) -> bool:
        with reaching(self.root):
            return super().renew(digest, size)

    def remove(self, digest: str, unless_added_since: float | None = None) -> bool:
        removed = super().remove(digest, unless_added_since)
        if removed:
            self.cache.drop(digest)
        return removed

    def remove_leftovers(self, older_than_s: float) -> int:
        self.cache.clean_up()
        return super().remove_leftovers(older_than_s)

    def place(self) -> Place:
        cache: CachePlace = {
            "root": str(self.cache.root),
            "most": self.cache.max_bytes,
            "folder": str(self.cache.folder),
        }
        return {**super().place(), "cache": cache, "was_there": self.top.is_dir()}

    def make(self) -> None:
        """Create the folder of the store in the shared directory. Raises OutOfReach if that is not mounted."""
        if not self.top.is_dir():
            if self._was_there or not self.top.parent.is_dir():
                raise self._absent()
            with reaching(self.top):
                self.top.mkdir(exist_ok=True)
        self._was_there = True
        if self.root != self.top:
            with reaching(self.top):
                self.root.mkdir(parents=True, exist_ok=True)

    def probe(self) -> None:
        """Write a file and remove it. Raises OSError if that fails, or OutOfReach."""
        self.make()
        temporary = self.temporary()
        with opened_by(partial(os.open, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)) as out:
            try:
                # Some file systems accept an empty file on a full disk, and report it only when the data is forced out.
                write_all(out, bytes(4096))
                os.fsync(out)
            finally:
                os.unlink(temporary)

    def _source(self, digest: str) -> int:
        """Open a content: from the cache if it is intact there, else from the shared directory."""
        if (cached := self.cache.open(digest)) is not None:
            # Hashed before it is used, because its reader streams it and could not start again from another source.
            if digest_of(partial(os.read, cached, BLOCK))[0] == digest:
                os.lseek(cached, 0, os.SEEK_SET)
                return cached
            os.close(cached)
            self.cache.drop(digest)
        fetched = self._fetch(digest)
        return self._open(digest) if fetched is None else fetched

    def _fetch(self, digest: str) -> int | None:
        """Copy a content into the cache. Returns its descriptor there, or None if the cache cannot take it.

        Raises:
            StoreError: If it is missing or damaged.
        """
        with opened_by(partial(self._open, digest)) as source:
            arriving = self.cache.begin(os.fstat(source).st_size, digest)
            if arriving is None:  # another process may have just done so
                return self.cache.open(digest)
            with arriving:
                self._stream(digest, partial(self._read, source), arriving.write)
                return arriving.keep(digest)

    def _open(self, digest: str) -> int:
        """Open a content in the shared directory; looks twice, since NFS caches that a file was missing."""
        with reaching(self.root):
            try:
                return super()._open(digest)
            except StoreError:
                if not self.top.is_dir():
                    raise self._absent() from None
                # NFS may remember for a while that something was not there, until its folder is opened again.
                for folder in (self.root, os.path.dirname(self.path(digest))):
                    with contextlib.suppress(FileNotFoundError), opened_by(partial(os.open, folder, os.O_RDONLY)):
                        pass
                return super()._open(digest)

    def _absent(self) -> OutOfReach:
        return OutOfReach(f"the shared directory of files {self.top} is not there; mount it")

    def _read(self, source: int) -> bytes:
        with reaching(self.root):
            return os.read(source, BLOCK)


class _CachedAdding(Adding):
    """Contents that are being written to a shared store. They enter the cache at once, where only the hash counts."""

    def __init__(self, store: SharedFiles) -> None:
        super().__init__(store)
        self._files = store

    def add(self, source: int, read: Callable[[], bytes] | None = None) -> tuple[str, int]:
        return self._stage_cached(read or partial(os.read, source, BLOCK), _unread_bytes(source))

    def publish(self) -> None:
        with reaching(self._files.root):
            super().publish()

    def add_blocks(self, blocks: Iterable[bytes], size: int) -> tuple[str, int]:
        return self._stage_cached(partial(next, iter(blocks), b""), size)

    def _stage_cached(self, read: Callable[[], bytes], size: int | None) -> tuple[str, int]:
        """Stage a content, and keep a copy of it in the cache on the way."""
        arriving = None if size is None else self._files.cache.begin(size)
        if arriving is None:
            return self._stage(read)

        def teed() -> bytes:
            block = read()
            arriving.write(block)
            return block

        with arriving:
            digest, staged_size = self._stage(teed)
            if (cached := arriving.keep(digest)) is not None:
                os.close(cached)
        return digest, staged_size

    def _stage(self, read: Callable[[], bytes]) -> tuple[str, int]:
        with reaching(self._files.root):
            return super()._stage(read)


def store_at(place: Place, owner: str = "") -> FileStore:
    """Return the store that `FileStore.place` of another process of this machine describes."""
    root = Path(place["root"])
    if "cache" not in place:
        return FileStore(root, owner)
    cache = FileCache(Path(place["cache"]["root"]), place["cache"]["most"], Path(place["cache"]["folder"]))
    return SharedFiles(root, cache, was_there=place["was_there"]).owned(owner)


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """Raise errors of the shared directory with its name: a full disk as OSError, others as OutOfReach."""
    try:
        yield
    except WTBError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(error.errno, os.strerror(error.errno), os.fspath(root)) from error
        raise OutOfReach(f"the shared directory of files {root} is out of order: {error}") from error


def _unread_bytes(source: int) -> int | None:
    """Return the bytes that can be read from a descriptor, if known."""
    status = os.fstat(source)
    return status.st_size - os.lseek(source, 0, os.SEEK_CUR) if stat.S_ISREG(status.st_mode) else None


OUTBOX = ".outbox"  # of a node process, beside its workspaces
_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
_FILE = open_flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")


class Outbox(FileStore):
    """A store as a node process sees it: the process reads the store, and leaves new contents in a folder for its
    runner.
    """

    def __init__(self, store: FileStore, folder: Path) -> None:
        super().__init__(folder)
        self._store = store

    @property
    def judgements(self) -> Path:
        return self._store.judgements

    def adding(self) -> Adding:
        return _Leaving(self)

    def path(self, digest: str) -> str:
        return f"{self._root}/{digest}"

    def copy_into(self, digest: str, size: int | None, out: int) -> None:
        self._store.copy_into(digest, size, out)

    def _source(self, digest: str) -> int:
        return self._store._source(digest)

    def _open(self, digest: str) -> int:
        return self._store._open(digest)


class _Leaving(Adding):
    """Contents that are being written to an outbox. The runner makes them durable."""

    def publish(self) -> None:
        for digest, (temporary, _) in self._staged.items():
            point("files.publishing")
            os.rename(temporary, self._store.path(digest))


class Handover:
    """The runner's side of one attempt: it takes over the snapshots that the attempt leaves.

    A snapshot may refer to contents that the attempt has left and to those it began with, and to nothing else in the
    store.
    """

    def __init__(self, workspaces: Workspaces, folder: Path, begun_with: str | None) -> None:
        self._store = workspaces.files
        self._max_bytes = workspaces.bounds.size
        self._folder = folder
        self._snapshots = {begun_with}

    def take(self, snapshot: str | None, contents: Sequence[tuple[str, int]]) -> None:
        """Take a snapshot into the store.

        Args:
            snapshot: The digest of its list of files; None for no files.
            contents: Digest and size in bytes of the contents that the attempt has left for it.

        Raises:
            StateError: If a content is missing, or has another hash than its name.
            OSError: If the disk is full, or the shared directory out of reach.
        """
        if snapshot is None or snapshot in self._snapshots:
            return
        sizes = dict(contents)
        if snapshot not in sizes:
            raise StateError(f"an attempt left the snapshot {snapshot} without its list of files")
        if self._max_bytes is not None and sum(sizes.values()) - sizes[snapshot] > self._max_bytes:
            raise StateError(f"an attempt left more than {self._max_bytes:,} bytes, which run.workspace.size forbids")
        with _reading(), opened_by(partial(os.open, self._folder, _FOLDER)) as folder:
            self._add(folder, sizes)
        self._check(snapshot, sizes.keys())
        self._snapshots.add(snapshot)

    def _add(self, folder: int, sizes: Mapping[str, int]) -> None:
        """Store the contents that were left, unless another attempt of the process has left the same before."""
        # Existing contents become young, so that no garbage collection removes them before the snapshot is committed.
        absent = {digest: size for digest, size in sizes.items() if not self._store.renew(digest, size)}
        with self._store.adding() as adding:
            for digest, size in absent.items():
                with opened_by(partial(os.open, digest, _FILE, dir_fd=folder)) as source:
                    # O_NONBLOCK opened it even if it is a FIFO, which would block the runner for good.
                    if not stat.S_ISREG(os.fstat(source).st_mode):
                        raise StateError(f"an attempt left {digest}, which is not a file")
                    if adding.add(source, _bounded(source, size)) != (digest, size):
                        raise StateError(f"an attempt left a file {digest} whose content has another hash")
            adding.publish()
        for digest in sizes:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(digest, dir_fd=folder)

    def _check(self, snapshot: str, added: Collection[str]) -> None:
        """Raise StateError if a list of files names contents that the attempt did not have."""
        foreign = self._named(snapshot) - set(added)
        # Without this a node could read contents of other sessions: it would only have to name their hashes.
        for before in self._snapshots if foreign else ():
            foreign -= self._named(before)
        if foreign:
            raise StateError(f"an attempt left a list of files with {min(foreign)}, which it did not have")

    def _named(self, snapshot: str | None) -> set[str]:
        try:
            return {file.digest for file in self._store.manifest(snapshot).values()}
        except OutOfReach:
            raise
        except StoreError as error:
            raise StateError(str(error)) from None


# One byte more than announced is enough to see that the hash differs, and bounds what is read.
def _bounded(source: int, size: int) -> Callable[[], bytes]:
    """Return a function that reads a file block by block, and not far beyond its size."""
    remaining = size + 1

    def read() -> bytes:
        nonlocal remaining
        block = os.read(source, min(BLOCK, remaining))
        remaining -= len(block)
        return block

    return read


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Raise errors of the folder, which user code may have changed, as StateError; those of a full disk as they are."""
    try:
        yield
    except OSError as error:
        if is_disk_fault(error):
            raise
        raise StateError(f"the files that an attempt left cannot be read: {error}") from None
