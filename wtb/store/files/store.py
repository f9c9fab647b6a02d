"""Files by content: each content and each manifest once, under its SHA-256, below one directory."""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NotRequired, Self, TypedDict

from wtb.core.errors import StoreError
from wtb.core.fault_points import point
from wtb.core.ids import new_id
from wtb.store.files.manifest import DIGEST, Manifest, decode, encode
from wtb.store.files.system import check_system, open_flags

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where `check_system` refuses to open a store
    import fcntl

BLOCK = 1 << 20
TEMPORARY = ".new-"
_PAGE = 4096
_ZEROS = bytes(BLOCK)
_FICLONE = 0x40049409
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)
_READ = open_flags("O_RDONLY", "O_CLOEXEC")
_CREATE = open_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC")


class CachePlace(TypedDict):
    """Where the cache of a shared store is, and how many bytes it may have."""

    root: str
    most: int


class Place(TypedDict):
    """Where a store is, for another process of this machine.

    cache, was_there: of one in a shared directory, and whether that has had the store's folder.
    """

    root: str
    cache: NotRequired[CachePlace]
    was_there: NotRequired[bool]


class FileStore:
    """Contents by SHA-256 below one directory. What is there is whole: writers publish by renaming.

    owner: whose temporary files are named so that others can tell whose they were.
    """

    def __init__(self, root: Path, owner: str = "") -> None:
        check_system()
        self.root = root
        self.owner = owner
        self._root = os.fspath(root)
        self._clones: bool | None = None

    def owned(self, owner: str) -> Self:
        """The same store, whose temporary files are an owner's."""
        made = copy.copy(self)
        made.owner = owner
        return made

    def temporary(self) -> str:
        """A path for a new temporary file."""
        return f"{self._root}/{TEMPORARY}{self.owner}{new_id()}"

    def unfinished(self) -> Iterator[str]:
        """The names of temporary files, without what they all begin with: owners, where they have one, and more."""
        return (name.removeprefix(TEMPORARY) for name in listed(self._root) if name.startswith(TEMPORARY))

    def remove_unfinished(self, owner: str) -> int:
        """Remove the temporary files of an owner that has ended. Returns how many."""
        mine = [name for name in self.unfinished() if owner and name.startswith(owner)]
        for name in mine:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._root}/{TEMPORARY}{name}")
        return len(mine)

    def add(self, source: Path | int) -> tuple[str, int]:
        """Store the content of a file, given by its path or as a descriptor, read from where it stands.

        Returns (digest, size in bytes). What is there already is made young again, for garbage collection to see.
        """
        with self.adding() as adding, _opened(source) as descriptor:
            found = adding.add(descriptor)
            adding.publish()
        return found

    def add_manifest(self, manifest: Manifest) -> tuple[str, int]:
        """Store a manifest, whose contents should be there. Returns (digest, size in bytes)."""
        with self.adding() as adding:
            found = adding.add_manifest(manifest)
            adding.publish()
        return found

    def adding(self) -> Adding:
        """Several contents that become visible together, or not at all: `with store.adding() as adding: ...`."""
        return Adding(self)

    def manifest(self, digest: str | None) -> Manifest:
        """The files of a snapshot; none where there is no snapshot. Raises StoreError for damaged or unsafe ones."""
        return {} if digest is None else decode(b"".join(self.read(digest)), digest)

    def read(self, digest: str) -> Iterator[bytes]:
        """A content in blocks of at most 1 MiB. Raises StoreError where it is missing, or at its end damaged."""
        check = hashlib.sha256()
        with opened_by(partial(self._source, digest)) as source:
            while block := os.read(source, BLOCK):
                check.update(block)
                yield block
        self._verify(digest, check.hexdigest())

    def copy(self, digest: str, target: Path) -> None:
        """Copy a content to a new file. Raises StoreError where it is missing or damaged, FileExistsError."""
        with opened_by(partial(os.open, target, _CREATE, 0o666)) as out:
            try:
                self.copy_into(digest, None, out)
            except BaseException:
                target.unlink()
                raise

    def copy_into(self, digest: str, size: int | None, out: int) -> None:
        """Put a content into an empty file that is open for writing, as a reflink where the file system can.

        A copy is verified by its hash, a reflink by its size. Raises StoreError where it is missing or damaged.
        """
        with opened_by(partial(self._open, digest)) as source:
            self._put(source, digest, size, out)

    def _put(self, source: int, digest: str, size: int | None, out: int) -> None:
        """Copy a content to a file, as a clone if the file system can. Raises StoreError if it is damaged."""
        if self._clones is not False and self._clone(source, out):
            found = os.fstat(out).st_size
            if size not in (None, found):
                raise StoreError(f"stored file {digest} is damaged: it has {found} bytes, expected {size}")
            return
        self._write(digest, partial(os.read, source, BLOCK), out)

    def _write(self, digest: str, read: Callable[[], bytes], out: int) -> None:
        """Write a content to an empty file, with holes where it is zero."""
        self._stream(digest, read, partial(write_sparse, out))
        os.ftruncate(out, os.lseek(out, 0, os.SEEK_CUR))

    def _stream(self, digest: str, read: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
        """Copy a content block by block. Raises StoreError if its hash is another."""
        check = hashlib.sha256()
        while block := read():
            check.update(block)
            write(block)
        self._verify(digest, check.hexdigest())

    def stored(self) -> Iterator[tuple[str, int, float]]:
        """All contents and manifests: (digest, size in bytes, time at which it was last added)."""
        return stored_in(self._root)

    def remove(self, digest: str, unless_added_since: float | None = None) -> bool:
        """Remove a content that nothing needs; whether it was there and is gone.

        unless_added_since: seconds since the epoch. What somebody added again since then stays, also when they
        do so at this moment.
        """
        place, aside = self.path(digest), self.temporary()
        try:
            if unless_added_since is not None and _fresh_stat(place).st_mtime >= unless_added_since:
                return False  # not even for a moment is it gone
            os.rename(place, aside)
        except FileNotFoundError:
            return False
        if unless_added_since is not None and _fresh_stat(aside).st_mtime >= unless_added_since:
            os.rename(aside, place)
            return False
        os.unlink(aside)
        return True

    def remove_leftovers(self, older_than_s: float) -> int:
        """Remove temporary files that killed writers left and nobody wrote to for so long. Returns how many."""
        removed, before = 0, time.time() + self.clock_ahead() - older_than_s
        for name in listed(self._root):
            if name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(self.root / name).st_mtime < before:
                        os.unlink(self.root / name)
                        removed += 1
        return removed

    def clock_ahead(self) -> float:
        """Seconds by which the clock that gives stored files their times is ahead of this machine's; 0 of none yet."""
        if not self.root.is_dir():
            return 0.0
        temporary = self.temporary()
        with opened_by(partial(os.open, temporary, _CREATE, 0o600)) as descriptor:
            os.unlink(temporary)
            return os.fstat(descriptor).st_mtime - time.time()

    def make(self) -> None:
        """Make the directory of the store."""
        os.makedirs(self._root, exist_ok=True)

    def place(self) -> Place:
        """Where it is, for another process of this machine; see `sharedfiles.store_at`."""
        return {"root": self._root}

    def path(self, digest: str) -> str:
        """Where a content lies, or would lie. Raises StoreError for what is no digest."""
        return content_path(self._root, digest)

    def _source(self, digest: str) -> int:
        """What `read` reads."""
        return self._open(digest)

    def _open(self, digest: str) -> int:
        try:
            return os.open(self.path(digest), _READ)
        except FileNotFoundError:
            raise StoreError(f"stored file {digest} is missing") from None

    def _clone(self, source: int, out: int) -> bool:
        """Clone a file (copy on write). Returns False if the file system cannot."""
        try:
            fcntl.ioctl(out, _FICLONE, source)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            self._clones = False
            return False
        self._clones = True
        return True

    @staticmethod
    def _verify(digest: str, found: str) -> None:
        if found != digest:
            raise StoreError(f"stored file {digest} is damaged: its content has another hash")


class Adding:
    """Contents on their way into a store: temporary files until `publish`, removed where that is not called."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._staged: dict[str, tuple[str, int]] = {}  # digest -> (temporary file, size)

    def __enter__(self) -> Adding:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for temporary, _ in self._staged.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def add(self, source: int, read: Callable[[], bytes] | None = None) -> tuple[str, int]:
        """Take in what can be read from a descriptor, or what `read` gives of it. Returns (digest, size in bytes)."""
        return self._stage(read or partial(os.read, source, BLOCK))

    def add_manifest(self, manifest: Manifest) -> tuple[str, int]:
        data = encode(manifest)
        return self.add_blocks([data], len(data))

    def add_blocks(self, blocks: Iterable[bytes], size: int) -> tuple[str, int]:
        """Take in a content block by block. size: bytes of all of them. Returns (digest, size in bytes)."""
        return self._stage(partial(next, iter(blocks), b""))

    def publish(self) -> None:
        """Make all visible, in the order in which they were added, and durable."""
        missing: dict[str, str] = {}
        for digest, (temporary, size) in self._staged.items():
            place = self._store.path(digest)
            if not _renewed(place, size):
                missing[temporary] = place
        folders: dict[str, None] = {}
        if len(missing) > 1:  # all are on their way to the disk before the first is waited for
            for temporary in missing:
                _start_writing(temporary)
        for temporary, place in missing.items():
            point("files.publishing")
            _sync(temporary)
            os.utime(temporary)  # it is young from now on, however long ago it was written
            folder = os.path.dirname(place)
            folders[folder] = None
            try:
                os.rename(temporary, place)
            except FileNotFoundError:
                os.makedirs(folder, exist_ok=True)
                os.rename(temporary, place)
                folders[self._store._root] = None
        for folder in folders:
            _sync(folder)

    def _stage(self, read: Callable[[], bytes]) -> tuple[str, int]:
        """Write a content to a temporary file under its hash. Returns (digest, bytes)."""
        temporary = self._store.temporary()
        check, size = hashlib.sha256(), 0
        try:
            with opened_by(partial(self._create, temporary)) as out:
                while block := read():
                    check.update(block)
                    write_sparse(out, block)
                    size += len(block)
                os.ftruncate(out, size)
                os.fchmod(out, 0o444)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        digest = check.hexdigest()
        if digest in self._staged:
            os.unlink(temporary)
        else:
            self._staged[digest] = temporary, size
        return digest, size

    def _create(self, temporary: str) -> int:
        try:
            return os.open(temporary, _CREATE, 0o600)
        except FileNotFoundError:
            self._store.make()
            return os.open(temporary, _CREATE, 0o600)


def content_path(root: str, digest: str) -> str:
    """Return where a content lies below a directory. Raises StoreError for what is no digest."""
    if not DIGEST.fullmatch(digest):
        raise StoreError(f"{digest!r} is not the hash of a stored file")
    return f"{root}/{digest[:2]}/{digest[2:]}"


def stored_in(root: str) -> Iterator[tuple[str, int, float]]:
    """List the contents below a directory: (digest, size in bytes, time at which it was last added or used)."""
    for folder in listed(root):
        if len(folder) == 2:
            for rest in listed(f"{root}/{folder}"):
                with contextlib.suppress(FileNotFoundError):  # another process may be removing it
                    if DIGEST.fullmatch(folder + rest):
                        found = os.stat(f"{root}/{folder}/{rest}")
                        yield folder + rest, found.st_size, found.st_mtime


def digest_of(read: Callable[[], bytes]) -> tuple[str, int]:
    """(SHA-256, size in bytes) of what `read` gives, block by block."""
    check, size = hashlib.sha256(), 0
    while block := read():
        check.update(block)
        size += len(block)
    return check.hexdigest(), size


def write_all(out: int, data: bytes) -> None:
    written = os.write(out, data)
    while written < len(data):
        written += os.write(out, memoryview(data)[written:])


def write_sparse(out: int, data: bytes) -> None:
    """Write to a file that is written for the first time; where all is zero a hole is left, which takes no room."""
    if is_zero(data):
        os.lseek(out, len(data), os.SEEK_CUR)
    else:
        write_all(out, data)


def is_zero(data: bytes) -> bool:
    """Whether a block of at least a page has nothing but zeros."""
    return len(data) >= _PAGE and not data[0] and data == (_ZEROS if len(data) == BLOCK else bytes(len(data)))


def _renewed(place: str, size: int) -> bool:
    """Whether a content is there. A file of another size is a damaged one, to be replaced."""
    try:
        os.utime(place)
        return _fresh_stat(place).st_size == size
    except FileNotFoundError:
        return False


def _fresh_stat(path: str) -> os.stat_result:
    """What is known of a file once it was opened: NFS may answer from its memory before."""
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        return os.fstat(descriptor)


def _sync(path: str) -> None:
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        os.fsync(descriptor)


def _start_writing(path: str) -> None:
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def opened_by(opening: Callable[[], int]) -> Iterator[int]:
    descriptor = opening()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened(source: Path | int) -> Iterator[int]:
    if isinstance(source, int):
        yield source
        return
    with opened_by(partial(os.open, source, _READ)) as descriptor:
        yield descriptor


def listed(folder: str) -> list[str]:
    """Return the names in a directory in order; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
