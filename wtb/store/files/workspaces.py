"""Workspaces: a private directory for each attempt, and its changes as a snapshot.

Files that a node leaves are untrusted: directories are walked by descriptor, and links never followed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from wtb.core.errors import InputError, NodeTimeout, StateError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.store.files import safe_directories
from wtb.store.files.manifest import (
    Change,
    Entry,
    Manifest,
    check_folders,
    compare,
    encode,
    is_safe,
    merge,
    new_contents,
)
from wtb.store.files.store import BLOCK, Adding, FileStore, digest_of, folder_of, is_zero, opened_by


@frozen(slots=True)
class Snapshot:
    """The files of a workspace, None if there are none.

    `new` has (digest, bytes) of the contents and manifests that its parent does not have.
    """

    digest: str | None
    new: tuple[tuple[str, int], ...] = ()


@frozen(slots=True)
class Bounds:
    """The largest allowed snapshot; None is no limit. See `run.workspace` of a sweep.

    Attributes:
        size: Apparent bytes of all its files, including holes.
        stored: Bytes of new contents, without holes.
        entries: Files and directories.
    """

    size: int | None = 10_000_000_000
    stored: int | None = 10_000_000_000
    entries: int | None = 1_000_000


class Workspaces:
    """Makes, snapshots and removes the directories that attempts work in; merges, compares and exports snapshots."""

    def __init__(self, files: FileStore, root: Path, bounds: Bounds | None = None, top: Path | None = None) -> None:
        self.files = files
        self.root = root
        self.bounds = bounds or Bounds()
        self.top = top or root  # with the directories of all projects
        self._telling: dict[int, bool] = {}

    def of_project(self, project: str) -> Workspaces:
        """Return the workspaces of a project: its store, and a folder of its own to work in."""
        return Workspaces(self.files.of_project(project), self.top / folder_of(project), self.bounds, self.top)

    def of_runner(self, runner_id: str, *folders: str, bounds: Bounds | None = None) -> Workspaces:
        """Return the workspaces of a runner, whose id is the prefix of its temporary files.

        Args:
            runner_id: The runner.
            folders: The names of the folders that lead from here to its directory.
            bounds: The bounds of its snapshots; None to keep the present ones.
        """
        files = self.files.owned(f"{runner_id}.")
        return Workspaces(files, self.root.joinpath(*folders), bounds or self.bounds, self.top)

    def open(self, snapshot: str | None, directory: Path | None = None) -> Workspace:
        """Create a private directory with the files of a snapshot: a new one below `root`, or `directory`.

        Raises:
            FileExistsError: If `directory` exists.
            StoreError: For missing or damaged files.
        """
        path = os.fspath(directory) if directory is not None else f"{os.fspath(self.root)}/{new_id()}"
        safe_directories.make_private(path)
        if snapshot is None:
            return Workspace(self, path, None, {}, {})
        try:
            files = self.files.manifest(snapshot)
            with safe_directories.open_folder(path) as folder:
                restored = safe_directories.restore(self.files, files, folder)
                stamps = self._settle_stamps(folder, restored)
            return Workspace(self, path, snapshot, files, stamps)
        except BaseException:
            safe_directories.remove_tree(path)
            raise

    def _settle_stamps(
        self, folder: int, restored: dict[str, safe_directories.Stamp]
    ) -> dict[str, safe_directories.Stamp]:
        """Wait until every change of a restored file will show in its stamp. Returns the stamps for which that
        holds.
        """
        if not self.tells(folder):
            return {}
        newest = max((stamp[2] for stamp in restored.values()), default=0)
        now = safe_directories.wait_beyond(newest, folder)
        return restored if newest < now else {path: stamp for path, stamp in restored.items() if stamp[2] < now}

    def tells(self, folder: int) -> bool:
        """Return whether the stamps of files in a folder show all writes."""
        device = os.fstat(folder).st_dev
        if device not in self._telling:
            self._telling[device] = safe_directories.tells_of_writes(folder)
        return self._telling[device]

    def merge(self, parent: str | None, after: Mapping[str, str | None]) -> Snapshot:
        """Merge the snapshots that the nodes of one step left, by node. `new` has the additions of the merge itself.

        Raises:
            StateError: Naming both nodes, if they changed one path differently or need it as file and folder.
        """
        changed = {node: digest for node, digest in after.items() if digest != parent}
        # Usually at most one node of a step writes files, and its snapshot is the result.
        if len(set(changed.values())) <= 1:
            return Snapshot(next(iter(changed.values()), parent))
        manifests = {node: self.files.manifest(digest) for node, digest in changed.items()}
        merged = merge(self.files.manifest(parent), manifests)
        if not merged:
            return Snapshot(None)
        digest, size = self.files.add_manifest(merged)
        return Snapshot(digest, () if digest in changed.values() or digest == parent else ((digest, size),))

    def snapshot_of(self, files: Mapping[str, Path]) -> Snapshot:
        """Return a snapshot of given files, by their path in the workspace. Raises StateError for paths that lead
        out.
        """
        for name in files:
            if not is_safe(name):
                raise StateError(f"{name!r} is not a path in a workspace; expected a relative one without '..'")
        check_folders(files, {})
        if not files:
            return Snapshot(None)
        with self.files.adding() as adding:
            manifest = {}
            for name, source in files.items():
                with source.open("rb", buffering=0) as stream:
                    manifest[name] = Entry(*adding.add(stream.fileno()), 0o644)
            listed = adding.add_manifest(manifest)
            adding.publish()
        return Snapshot(listed[0], (*new_contents(manifest, {}).items(), listed))

    def compare(self, a: str | None, b: str | None) -> list[Change]:
        """Return the changes from snapshot `a` to `b`, by path."""
        return compare(self.files.manifest(a), self.files.manifest(b))

    def export(self, digest: str | None, into: Path, only: str | None = None) -> Manifest:
        """Write the files of a snapshot, or only the file or folder `only`, into a new or empty directory.

        Returns:
            The manifest of the written files.

        Raises:
            InputError: If `only` does not exist or the directory is not empty.
            StoreError: For missing or damaged files.
        """
        manifest = self.files.manifest(digest)
        exported = {
            path: file
            for path, file in manifest.items()
            if only is None or path == only or path.startswith(only.rstrip("/") + "/")
        }
        if only is not None and not exported:
            raise InputError(f"there is no file or folder {only!r}{did_you_mean(only, manifest)}")
        try:
            into.mkdir(parents=True, exist_ok=True)
            if os.listdir(into):
                raise InputError(f"{into} is not empty; name a new or empty directory")
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"{into} is not a directory; name a new or empty one") from None
        with opened_by(partial(os.open, into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
            safe_directories.restore(self.files, exported, folder)
        return exported


class Workspace:
    """The directory of one attempt. `snapshot` is the one that it was opened with, or the last one that was taken."""

    __slots__ = ("_before", "_home", "_path", "_stamps", "snapshot")

    def __init__(
        self,
        home: Workspaces,
        path: str,
        snapshot: str | None,
        before: Manifest,
        stamps: Mapping[str, safe_directories.Stamp],
    ) -> None:
        self._home = home
        self._path = path
        self.snapshot = snapshot
        self._before = before
        self._stamps = stamps

    @property
    def path(self) -> Path:
        return Path(self._path)

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot of the present files, and continue. Raises as `close` does."""
        try:
            return self._take(allowed, until, is_interim=True)
        except FileNotFoundError:  # the node removed it with all its files
            return Snapshot(None)
        except NotADirectoryError as error:
            raise _replaced(error) from None

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot if `keep` is true and something changed, and remove the directory in any case.

        Args:
            keep: Whether to take a snapshot.
            allowed: Bytes of new contents and manifests that it may add.
            until: The time, of `time.monotonic`, at which it has to be taken.

        Raises:
            StateError: If it adds more, is larger than the bounds allow, is still being written to, or has entries that
                cannot be kept: symbolic links, files with several hard links, names that are not UTF-8, and entries
                that are neither files nor directories. Nothing is stored then.
            NodeTimeout: If the time has come.
            OSError: If the disk is full.
        """
        try:
            # Most attempts leave no files, and one system call finds that out and removes the directory.
            os.rmdir(self._path)
        except FileNotFoundError:
            pass  # the node removed it with all its files
        except OSError:
            try:
                return self._take(allowed, until) if keep else Snapshot(self.snapshot)
            except NotADirectoryError as error:
                raise _replaced(error) from None
            finally:
                safe_directories.remove_tree(self._path)
        return Snapshot(None if keep else self.snapshot)

    def _take(self, allowed: int | None, until: float | None, is_interim: bool = False) -> Snapshot:
        """Take a snapshot. With `is_interim` the attempt continues, and the next snapshot is compared with this one."""
        after: dict[str, Entry] = {}
        stamps: dict[str, safe_directories.Stamp] = {}
        with safe_directories.open_folder(self._path) as root:
            # Later writes get a later time than any stamp that is kept.
            began = safe_directories.wait_beyond(0, root) if is_interim and self._home.tells(root) else 0
            snapshot = self._read(root, _Meter(self._home.bounds, self._before, allowed, until), after, stamps)
        if is_interim:
            self.snapshot, self._before = snapshot.digest, after
            self._stamps = {path: stamp for path, stamp in stamps.items() if stamp[2] < began}
        return snapshot

    def _read(
        self, root: int, meter: _Meter, after: dict[str, Entry], stamps: dict[str, safe_directories.Stamp]
    ) -> Snapshot:
        """Store new and changed files; a file whose stamp is unchanged is not read again."""
        with self._home.files.adding() as adding:
            for path, folder, name, status in safe_directories.walk(root, seen=meter.saw):
                meter.measure(path, status.st_size)
                stamps[path] = safe_directories.stamp(status)
                # An unchanged ctime, which user code cannot set, proves that the content is unchanged.
                if self._stamps.get(path) == stamps[path]:
                    after[path] = self._before[path]
                else:
                    after[path] = safe_directories.read_entry(path, folder, name, partial(meter.add, adding))
            if after == self._before:
                return Snapshot(self.snapshot)
            if not after:
                return Snapshot(None)
            new = new_contents(after, self._before)
            meter.check(sum(new.values()) + len(encode(after)))
            listed = adding.add_manifest(after)
            adding.publish()
        return Snapshot(listed[0], (*new.items(), listed))


def _replaced(error: OSError) -> StateError:
    return StateError(f"the workspace {error.filename} was replaced by what is not a directory")


class _Meter:
    """Measures a snapshot while it is taken, and ends that if it becomes too large, or takes too long.

    Contents are stored until they are more than is allowed; after that they are only measured.
    """

    def __init__(self, bounds: Bounds, before: Manifest, allowed: int | None, until: float | None) -> None:
        self._bounds = bounds
        self._stored_digests = {file.digest for file in before.values()}
        self._allowed = allowed
        self._until = until
        self._entries = self._size = self._stored = self._added = 0

    def saw(self, path: str) -> None:
        """Count an entry. Raises StateError, NodeTimeout."""
        self._entries += 1
        limit = self._bounds.entries
        if limit is not None and self._entries > limit:
            raise StateError(
                f"the workspace has more than {limit:,} files and directories, up to {_named(path)}; keep fewer in "
                f"ctx.workspace, or raise run.workspace.entries"
            )
        self._check_time(path)

    def measure(self, path: str, size: int) -> None:
        """Count the apparent size of a file. Raises StateError."""
        self._size += size
        self._check("size", self._size, path, size)

    def add(self, adding: Adding, path: str, descriptor: int, size: int) -> tuple[str, int]:
        """Add a file, up to the size that it had. Raises StateError, NodeTimeout."""
        remaining, before = size, self._stored

        def read() -> bytes:
            nonlocal remaining
            self._check_time(path)
            block = os.read(descriptor, min(BLOCK, remaining))
            remaining -= len(block)
            if not is_zero(block):
                self._stored += len(block)
                self._check("stored", self._stored, path, size)
            return block

        # Beyond the quota contents are only hashed, so that the error can
        # report the whole size and the disk stays free.
        fits = self._allowed is None or self._added + size <= self._allowed
        digest, size = adding.add(descriptor, read) if fits else digest_of(read)
        if digest not in self._stored_digests:
            self._stored_digests.add(digest)
            self._added += size
        else:
            self._stored = before
        return digest, size

    def _check(self, bound: str, bytes: int, path: str, size: int) -> None:
        """Raise StateError if a bound on the workspace is exceeded, with the file that exceeds it."""
        limit: int | None = getattr(self._bounds, bound)
        if limit is not None and bytes > limit:
            what = "has" if bound == "size" else "adds"
            raise StateError(
                f"the workspace {what} more than {_size(limit)} with its file {_named(path)} of {_size(size)}; remove "
                f"what is not needed from ctx.workspace, or raise run.workspace.{bound}"
            )

    def _check_time(self, path: str) -> None:
        if self._until is not None and time.monotonic() >= self._until:
            raise NodeTimeout(f"its deadline came while its workspace was kept, at the file {_named(path)}")

    def check(self, bytes: int) -> None:
        if self._allowed is not None and bytes > self._allowed:
            raise StateError(
                f"the workspace adds {_size(bytes)}, and the quota of its session leaves {_size(self._allowed)}; "
                f"remove what is not needed from ctx.workspace, or raise the session's quota"
            )


def _named(path: str) -> str:
    return repr(path if len(path) <= 300 else f"...{path[-300:]}")


def _size(bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if bytes >= factor:
            return f"{bytes / factor:.1f} {unit}"
    return f"{bytes} bytes"
