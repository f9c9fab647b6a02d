"""Files by content in a directory that workers on several machines share, with a cache on this machine's own disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

from wtb.core.errors import OutOfReach, StoreError, WTBError
from wtb.store.files.cache import FileCache
from wtb.store.files.store import BLOCK, Adding, CachePlace, FileStore, Place, digest_of, opened_by, write_all

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SharedFiles(FileStore):
    """A store in a shared directory. What is fetched from it, and what is published in it, goes into the cache, too.

    root: a folder of the shared directory, made when it is first needed. was_there: it is, so that its absence means
    that the shared directory is not mounted any more. Raises OutOfReach then, OSError where it is full.
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
        for digest in (snapshot, *{entry.digest for entry in self.manifest(snapshot).values()}):
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
            except StoreError:  # only the copy here is damaged
                self.cache.drop(digest)
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
        cache: CachePlace = {"root": str(self.cache.root), "most": self.cache.most, "folder": str(self.cache.folder)}
        return {**super().place(), "cache": cache, "was_there": self.top.is_dir()}

    def make(self) -> None:
        """Make the folder of the store in the shared directory. Raises OutOfReach where that is not mounted."""
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
        """Write a file and remove it. Raises OSError where that cannot be done, OutOfReach."""
        self.make()
        temporary = self.temporary()
        with opened_by(partial(os.open, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)) as out:
            try:
                write_all(out, bytes(4096))
                os.fsync(out)
            finally:
                os.unlink(temporary)

    def _source(self, digest: str) -> int:
        """Open a content: from the cache if it is intact there, else from the shared directory."""
        if (cached := self.cache.open(digest)) is not None:
            if digest_of(partial(os.read, cached, BLOCK))[0] == digest:
                os.lseek(cached, 0, os.SEEK_SET)
                return cached
            os.close(cached)
            self.cache.drop(digest)
        fetched = self._fetch(digest)
        return self._open(digest) if fetched is None else fetched

    def _fetch(self, digest: str) -> int | None:
        """Copy a content into the cache: its descriptor there; None where the cache cannot take it.

        Raises StoreError where it is missing or damaged.
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
    """Contents on their way into a shared store. They go into the cache at once: there a hash is all that counts."""

    def __init__(self, store: SharedFiles) -> None:
        super().__init__(store)
        self._files = store

    def add(self, source: int, read: Callable[[], bytes] | None = None) -> tuple[str, int]:
        return self._kept(read or partial(os.read, source, BLOCK), _left(source))

    def publish(self) -> None:
        with reaching(self._files.root):
            super().publish()

    def add_blocks(self, blocks: Iterable[bytes], size: int) -> tuple[str, int]:
        return self._kept(partial(next, iter(blocks), b""), size)

    def _kept(self, read: Callable[[], bytes], size: int | None) -> tuple[str, int]:
        """Stage a content, and keep a copy of it in the cache on the way."""
        arriving = None if size is None else self._files.cache.begin(size)
        if arriving is None:
            return self._stage(read)

        def teed() -> bytes:
            block = read()
            arriving.write(block)
            return block

        with arriving:
            digest, found = self._stage(teed)
            if (kept := arriving.keep(digest)) is not None:
                os.close(kept)
        return digest, found

    def _stage(self, read: Callable[[], bytes]) -> tuple[str, int]:
        with reaching(self._files.root):
            return super()._stage(read)


def store_at(place: Place, owner: str = "") -> FileStore:
    """The store that `FileStore.place` describes, of another process of this machine."""
    root = Path(place["root"])
    if "cache" not in place:
        return FileStore(root, owner)
    cache = FileCache(Path(place["cache"]["root"]), place["cache"]["most"], Path(place["cache"]["folder"]))
    return SharedFiles(root, cache, was_there=place["was_there"]).owned(owner)


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """Errors of the shared directory name it: a full one as what it is, others as OutOfReach."""
    try:
        yield
    except WTBError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(error.errno, os.strerror(error.errno), os.fspath(root)) from error
        raise OutOfReach(f"the shared directory of files {root} is out of order: {error}") from error


def _left(source: int) -> int | None:
    """Bytes that can be read from a descriptor, where that is known."""
    found = os.fstat(source)
    return found.st_size - os.lseek(source, 0, os.SEEK_CUR) if stat.S_ISREG(found.st_mode) else None
