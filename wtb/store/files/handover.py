"""Handing files over: a node process leaves new contents in a folder, and its runner takes them into the store.

Node processes never write to a store. The folder is untrusted: it is read by descriptor, without following links, and
every content is hashed again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from wtb.core.errors import OutOfReach, StateError, StoreError
from wtb.core.failures import is_disk_fault
from wtb.core.fault_points import point
from wtb.store.files.store import BLOCK, Adding, FileStore, opened_by
from wtb.store.files.system import open_flags
from wtb.store.files.workspaces import Workspaces

OUTBOX = ".outbox"  # of a node process, beside its workspaces
_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
_FILE = open_flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")


class Outbox(FileStore):
    """A store as a node process sees it: it reads the store, and leaves what it adds in a folder for its runner."""

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
    """Contents on their way into an outbox. The runner makes them durable."""

    def publish(self) -> None:
        for digest, (temporary, _) in self._staged.items():
            point("files.publishing")
            os.rename(temporary, self._store.path(digest))


class Handover:
    """The runner's side of one attempt: it takes over the snapshots that the attempt leaves.

    A snapshot may refer to what the attempt has left and to what it began with, and to nothing else in the store.
    """

    def __init__(self, workspaces: Workspaces, folder: Path, begun_with: str | None) -> None:
        self._store = workspaces.files
        self._most = workspaces.bounds.size
        self._folder = folder
        self._snapshots = {begun_with}

    def take(self, snapshot: str | None, contents: Sequence[tuple[str, int]]) -> None:
        """Take a snapshot into the store.

        Args:
            snapshot: The digest of its list of files; None for no files.
            contents: Digest and size in bytes of what the attempt has left for it.

        Raises:
            StateError: If something was not left, or is not what its digest says.
            OSError: If the disk is full, or the shared directory out of reach.
        """
        if snapshot is None or snapshot in self._snapshots:
            return
        sizes = dict(contents)
        if snapshot not in sizes:
            raise StateError(f"an attempt left the snapshot {snapshot} without its list of files")
        if self._most is not None and sum(sizes.values()) - sizes[snapshot] > self._most:
            raise StateError(f"an attempt left more than {self._most:,} bytes, which run.workspace.size forbids")
        with _reading(), opened_by(partial(os.open, self._folder, _FOLDER)) as folder:
            self._add(folder, sizes)
        self._check(snapshot, sizes.keys())
        self._snapshots.add(snapshot)

    def _add(self, folder: int, sizes: Mapping[str, int]) -> None:
        """Store what was left, unless another attempt of the process has left the same before."""
        absent = {digest: size for digest, size in sizes.items() if not self._store.renew(digest, size)}
        with self._store.adding() as adding:
            for digest, size in absent.items():
                with opened_by(partial(os.open, digest, _FILE, dir_fd=folder)) as source:
                    if not stat.S_ISREG(os.fstat(source).st_mode):
                        raise StateError(f"an attempt left {digest}, which is not a file")
                    if adding.add(source, _bounded(source, size)) != (digest, size):
                        raise StateError(f"an attempt left a file {digest} whose content has another hash")
            adding.publish()
        for digest in sizes:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(digest, dir_fd=folder)

    def _check(self, snapshot: str, added: Collection[str]) -> None:
        """Raise StateError if a list of files names contents that are not the attempt's."""
        foreign = self._named(snapshot) - set(added)
        for before in self._snapshots if foreign else ():
            foreign -= self._named(before)
        if foreign:
            raise StateError(f"an attempt left a list of files with {min(foreign)}, which it did not have")

    def _named(self, snapshot: str | None) -> set[str]:
        try:
            return {entry.digest for entry in self._store.manifest(snapshot).values()}
        except OutOfReach:
            raise
        except StoreError as error:
            raise StateError(str(error)) from None


def _bounded(source: int, size: int) -> Callable[[], bytes]:
    """Return a function that reads a file block by block, and not far beyond its size."""
    left = size + 1

    def read() -> bytes:
        nonlocal left
        block = os.read(source, min(BLOCK, left))
        left -= len(block)
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
