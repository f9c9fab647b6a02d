"""Files by content: each content and each manifest once, under its SHA-256, below one directory.

A store has a folder for each project, itself a store. Earlier releases kept the contents of all projects beside each
other in the root: contents that are missing in a project's folder are read from there, until a garbage collection has
moved them.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
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
JUDGEMENTS = "judgements"  # no beginning of a digest, as folders of contents have it
_PAGE = 4096
_ZEROS = bytes(BLOCK)
_FICLONE = 0x40049409
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)
_READ = open_flags("O_RDONLY", "O_CLOEXEC")
_CREATE = open_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC")
PROJECTS = "projects"
_FOLDER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # lower case only, because some file systems ignore case


class CachePlace(TypedDict):
    """The place of the cache of a shared store, its bound in bytes, and the folder of its contents."""

    root: str
    most: int
    folder: str


class Place(TypedDict):
    """The place of a store, for another process of this machine.

    `cache` and `was_there` are of a store in a shared directory; `was_there` is whether that has had the store's
    folder.
    """

    root: str
    cache: NotRequired[CachePlace]
    was_there: NotRequired[bool]


class FileStore:
    """Contents by SHA-256 below one directory. Visible contents are complete, because writers publish by renaming.

    Attributes:
        owner: The prefix of the names of temporary files, by which others can recognise their owner.
        top: The root of the store of all projects; for a store without a project, its own root.
    """

    def __init__(self, root: Path, owner: str = "") -> None:
        check_system()
        self.root = self.top = root
        self.owner = owner
        self._root = os.fspath(root)
        self._clones: bool | None = None
        self._is_apart: bool | None = None  # whether nothing of a project can lie outside of its folder

    def of_project(self, project: str) -> Self:
        """Return the store of a project, in a folder of its own."""
        return self._in(self.top / PROJECTS / folder_of(project))

    def parts(self) -> list[Self]:
        """List the stores of all projects that have stored something, after the store of earlier releases for all of
        them.
        """
        projects = self.top / PROJECTS
        return [self._in(self.top), *(self._in(projects / name) for name in listed(os.fspath(projects)))]

    def _in(self, root: Path) -> Self:
        store = copy.copy(self)
        store.root, store._root, store._is_apart = root, os.fspath(root), None
        return store

    @property
    def judgements(self) -> Path:
        """The folder in which replies of judges are kept. It may not exist yet."""
        return self.root / JUDGEMENTS

    def owned(self, owner: str) -> Self:
        """Return the same store with an owner for its temporary files."""
        store = copy.copy(self)
        store.owner = owner
        return store

    def temporary(self) -> str:
        """Return a path for a new temporary file."""
        return f"{self._root}/{TEMPORARY}{self.owner}{new_id()}"

    def unfinished(self) -> Iterator[str]:
        """Yield the names of temporary files without their common prefix; a name begins with the owner, if there is
        one.
        """
        return (name.removeprefix(TEMPORARY) for name in listed(self._root) if name.startswith(TEMPORARY))

    def remove_unfinished(self, owner: str) -> int:
        """Remove the temporary files of an owner that has ended. Returns how many."""
        mine = [name for name in self.unfinished() if owner and name.startswith(owner)]
        for name in mine:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._root}/{TEMPORARY}{name}")
        return len(mine)

    def add(self, source: Path | int) -> tuple[str, int]:
        """Store the content of a file, given by its path, or by a descriptor that is read from its position.

        An existing content becomes young again for garbage collections.

        Returns:
            (digest, size in bytes).
        """
        with self.adding() as adding, _opened(source) as descriptor:
            added = adding.add(descriptor)
            adding.publish()
        return added

    def add_manifest(self, manifest: Manifest) -> tuple[str, int]:
        """Store a manifest, whose contents should be stored already. Returns (digest, size in bytes)."""
        with self.adding() as adding:
            added = adding.add_manifest(manifest)
            adding.publish()
        return added

    def adding(self) -> Adding:
        """Add several contents that become visible together, or not at all: `with store.adding() as adding: ...`."""
        return Adding(self)

    def manifest(self, digest: str | None) -> Manifest:
        """Return the files of a snapshot; nothing without a snapshot. Raises StoreError for damaged or unsafe ones."""
        return {} if digest is None else decode(b"".join(self.read(digest)), digest)

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield a content in blocks of at most 1 MiB. Raises StoreError if it is missing, or, at its end, damaged."""
        check = hashlib.sha256()
        with opened_by(partial(self._source, digest)) as source:
            while block := os.read(source, BLOCK):
                check.update(block)
                yield block
        self._verify(digest, check.hexdigest())

    def copy(self, digest: str, target: Path) -> None:
        """Copy a content to a new file. Raises StoreError if it is missing or damaged, FileExistsError."""
        with opened_by(partial(os.open, target, _CREATE, 0o666)) as out:
            try:
                self.copy_into(digest, None, out)
            except BaseException:
                target.unlink()
                raise

    def copy_into(self, digest: str, size: int | None, out: int) -> None:
        """Copy a content into an empty file that is open for writing, as a reflink if the file system can.

        A copy is verified by its hash, a reflink by its size. Raises StoreError if it is missing or damaged.
        """
        with opened_by(partial(self._open, digest)) as source:
            self._put(source, digest, size, out)

    def _put(self, source: int, digest: str, size: int | None, out: int) -> None:
        """Copy a content to a file, as a clone if the file system can. Raises StoreError if it is damaged."""
        if self._clones is not False and self._clone(source, out):
            actual_size = os.fstat(out).st_size
            if size not in (None, actual_size):
                raise StoreError(f"stored file {digest} is damaged: it has {actual_size} bytes, expected {size}")
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

    def has(self, digest: str) -> bool:
        """Return whether a content is there, in the project's folder or where earlier releases left it."""
        return any(os.path.exists(content_path(root, digest)) for root in (self._root, os.fspath(self.top)))

    def renew(self, digest: str, size: int) -> bool:
        """Make a content young again for garbage collections. Returns whether it is stored with this size in bytes."""
        return _renewed(self.path(digest), size)

    def stored(self) -> Iterator[tuple[str, int, float]]:
        """Yield all contents and manifests: (digest, size in bytes, time at which it was last added)."""
        return stored_in(self._root)

    def remove(self, digest: str, unless_added_since: float | None = None) -> bool:
        """Remove a content that nothing needs. Returns whether it was removed.

        A content that was added again since `unless_added_since`, in seconds since the epoch, stays, even if it is
        added at this moment.
        """
        place, aside = self.path(digest), self.temporary()
        try:
            if unless_added_since is not None and _fresh_stat(place).st_mtime >= unless_added_since:
                return False  # it never disappears, not even for a moment
            os.rename(place, aside)
        except FileNotFoundError:
            return False
        # Renamed first and looked at again, because a writer may have renewed it between the check and the renaming.
        if unless_added_since is not None and _fresh_stat(aside).st_mtime >= unless_added_since:
            os.rename(aside, place)
            return False
        os.unlink(aside)
        return True

    def remove_empty_folders(self) -> None:
        """Remove folders of contents that have none left."""
        for name in listed(self._root):
            if len(name) == 2:
                with contextlib.suppress(OSError):  # it has some
                    os.rmdir(f"{self._root}/{name}")

    def remove_leftovers(self, older_than_s: float) -> int:
        """Remove temporary files of killed writers that nobody wrote to for so long. Returns how many."""
        removed, before = 0, time.time() + self.clock_ahead() - older_than_s
        for name in listed(self._root):
            if name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(self.root / name).st_mtime < before:
                        os.unlink(self.root / name)
                        removed += 1
        return removed

    def clock_ahead(self) -> float:
        """Return the seconds by which the clock of stored files is ahead of this machine's; 0 without a store."""
        if not self.root.is_dir():
            return 0.0
        # A network file system gives files the time of its server.
        temporary = self.temporary()
        with opened_by(partial(os.open, temporary, _CREATE, 0o600)) as descriptor:
            os.unlink(temporary)
            return os.fstat(descriptor).st_mtime - time.time()

    def make(self) -> None:
        """Make the directory of the store."""
        os.makedirs(self._root, exist_ok=True)

    def place(self) -> Place:
        """Return the place of the store, for another process of this machine; see `shared_store.store_at`."""
        return {"root": self._root}

    def path(self, digest: str) -> str:
        """Return the path of a content, stored or not. Raises StoreError for an invalid digest."""
        return content_path(self._root, digest)

    def _source(self, digest: str) -> int:
        """Open the content that `read` reads."""
        return self._open(digest)

    def _open(self, digest: str) -> int:
        # The third look finds what a garbage collection has moved to the project's folder between the first two.
        for root in (self._root,) if self.root == self.top else (self._root, os.fspath(self.top), self._root):
            with contextlib.suppress(FileNotFoundError):
                return os.open(content_path(root, digest), _READ)
        raise StoreError(f"stored file {digest} is missing")

    def provide(self, snapshot: str) -> None:
        """Make a snapshot readable for node processes, which see nothing but the folder of their project.

        Raises:
            StoreError: If something of it is missing or damaged.
        """
        if self._is_apart is None:  # once for each store, because nothing is added to the old folder
            self._is_apart = self.root == self.top or not self.has_shared_contents()
        if self._is_apart:
            return
        digests = [file.digest for file in self.manifest(snapshot).values()]
        for digest in (*digests, snapshot):  # contents first, so that a visible manifest has all of them
            self.copy_to_project(digest)

    def has_shared_contents(self) -> bool:
        """Return whether contents of all projects lie beside each other, as earlier releases left them."""
        return any(len(name) == 2 for name in listed(os.fspath(self.top)))

    def copy_to_project(self, digest: str, *, alone: bool = False) -> None:
        """Copy a content to the project's folder if earlier releases left it beside those of others.

        If `alone`, no other project needs it, so that a second name is enough; the first one is removed afterwards.
        """
        place = self.path(digest)
        if os.path.exists(place):
            return
        if alone:
            with contextlib.suppress(OSError):  # some file systems have no such links
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.link(content_path(os.fspath(self.top), digest), place)
                _sync(os.path.dirname(place))
                return
        with self.adding() as adding, opened_by(partial(self._open, digest)) as source:
            self._verify(digest, adding.add(source)[0])
            adding.publish()

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
    def _verify(digest: str, actual: str) -> None:
        if actual != digest:
            raise StoreError(f"stored file {digest} is damaged: its content has another hash")


class Adding:
    """Contents that are being added to a store: temporary files until `publish`, removed if that is not called."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._staged: dict[str, tuple[str, int]] = {}  # digest -> (temporary file, size)

    def __enter__(self) -> Adding:
        return self

    def __exit__(self, *error: object) -> None:
        for temporary, _ in self._staged.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def add(self, source: int, read: Callable[[], bytes] | None = None) -> tuple[str, int]:
        """Add the content that a descriptor, or `read`, returns. Returns (digest, size in bytes)."""
        return self._stage(read or partial(os.read, source, BLOCK))

    def add_manifest(self, manifest: Manifest) -> tuple[str, int]:
        encoded = encode(manifest)
        return self.add_blocks([encoded], len(encoded))

    def add_blocks(self, blocks: Iterable[bytes], size: int) -> tuple[str, int]:
        """Add a content block by block; `size` is the bytes of all blocks. Returns (digest, size in bytes)."""
        return self._stage(partial(next, iter(blocks), b""))

    def publish(self) -> None:
        """Make all contents visible, in the order in which they were added, and durable."""
        missing: dict[str, str] = {}
        for digest, (temporary, size) in self._staged.items():
            place = self._store.path(digest)
            # An existing content is not replaced, so that readers keep an intact
            # file, unless its size shows that it is damaged.
            if not self._store.renew(digest, size):
                missing[temporary] = place
        folders: dict[str, None] = {}
        if len(missing) > 1:  # all are on their way to the disk before any is waited for
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
        # A renaming is durable once its folder is. Without this a crash could lose contents of a committed snapshot.
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


def folder_of(project: str) -> str:
    """Return the name of a project's folder: the project's own, or a digest of one that cannot name a folder."""
    return project if _FOLDER.fullmatch(project) else f"~{hashlib.sha256(project.encode()).hexdigest()[:32]}"


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
                        status = os.stat(f"{root}/{folder}/{rest}")
                        yield folder + rest, status.st_size, status.st_mtime


def digest_of(read: Callable[[], bytes]) -> tuple[str, int]:
    """Return (SHA-256, size in bytes) of the blocks that `read` returns."""
    check, size = hashlib.sha256(), 0
    while block := read():
        check.update(block)
        size += len(block)
    return check.hexdigest(), size


def write_all(out: int, content: bytes) -> None:
    written = os.write(out, content)
    while written < len(content):
        written += os.write(out, memoryview(content)[written:])


def write_sparse(out: int, block: bytes) -> None:
    """Write a block to a new file; a block of zeros becomes a hole, which takes no room."""
    if is_zero(block):
        os.lseek(out, len(block), os.SEEK_CUR)
    else:
        write_all(out, block)


def is_zero(block: bytes) -> bool:
    """Return whether a block of at least a page contains only zeros."""
    return len(block) >= _PAGE and not block[0] and block == (_ZEROS if len(block) == BLOCK else bytes(len(block)))


def _renewed(place: str, size: int) -> bool:
    """Renew the time of a content. Returns False if it is missing, or has another size, which means that it is
    damaged.
    """
    try:
        os.utime(place)
        return _fresh_stat(place).st_size == size
    except FileNotFoundError:
        return False


def _fresh_stat(path: str) -> os.stat_result:
    """Return the status of a file after opening it, because NFS may return a remembered one before."""
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        return os.fstat(descriptor)


def _sync(path: str) -> None:
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        os.fsync(descriptor)


def _start_writing(path: str) -> None:
    # Advising that the pages are not needed makes Linux begin to write them, without waiting.
    with opened_by(partial(os.open, path, _READ)) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def opened_by(opening: Callable[[], int]) -> Iterator[int]:
    descriptor = opening()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(source: Path | int) -> contextlib.AbstractContextManager[int]:
    return contextlib.nullcontext(source) if isinstance(source, int) else opened_by(partial(os.open, source, _READ))


def listed(folder: str) -> list[str]:
    """Return the names in a directory in order; none if it does not exist."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
