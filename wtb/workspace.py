"""Workspaces: a private directory for each attempt, and snapshots of it by content hash.

A snapshot is a manifest, `path -> (sha256, size, mode)`, stored as a file under its own hash beside the contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import orjson

from wtb.errors import StateError, StoreError
from wtb.ids import new_id

Manifest = dict[str, tuple[str, int, int]]


class FileStore:
    """Contents by SHA-256 below one directory; what is read is verified."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, source: Path) -> tuple[str, int]:
        """Store the content of a file. Returns (digest, size in bytes)."""
        with source.open("rb") as stream:
            return self._publish(stream)

    def add_manifest(self, manifest: Manifest) -> str:
        with tempfile.TemporaryFile() as stream:
            stream.write(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS))
            stream.seek(0)
            return self._publish(stream)[0]

    def manifest(self, digest: str | None) -> Manifest:
        """The files of a snapshot; none where there is no snapshot. Raises StoreError for damaged ones."""
        if digest is None:
            return {}
        data = self._path(digest).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"workspace snapshot {digest} is damaged: its content has another hash")
        return {path: (sha, size, mode) for path, (sha, size, mode) in orjson.loads(data).items()}

    def restore(self, digest: str | None, into: Path) -> None:
        """Write the files of a snapshot into an empty directory. Raises StoreError for damaged content."""
        for name, (sha, _, mode) in self.manifest(digest).items():
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy(sha, target)
            target.chmod(mode)

    def _copy(self, digest: str, target: Path) -> None:
        check = hashlib.sha256()
        with self._path(digest).open("rb") as source, target.open("wb") as out:
            while block := source.read(1 << 20):
                check.update(block)
                out.write(block)
        if check.hexdigest() != digest:
            raise StoreError(f"stored file {digest} is damaged: its content has another hash")

    def _publish(self, stream: IO[bytes]) -> tuple[str, int]:
        self.root.mkdir(parents=True, exist_ok=True)
        check, size = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(dir=self.root, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as out:
                while block := stream.read(1 << 20):
                    check.update(block)
                    out.write(block)
                    size += len(block)
                out.flush()
                os.fsync(out.fileno())
            target = self._path(check.hexdigest())
            if target.exists():
                os.unlink(name)
            else:
                target.parent.mkdir(exist_ok=True)
                os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        return check.hexdigest(), size

    def _path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest[2:]


class Workspaces:
    """Makes, snapshots and removes the directories that attempts work in."""

    def __init__(self, files: FileStore, root: Path) -> None:
        self.files = files
        self.root = root

    def open(self, snapshot: str | None) -> Path:
        """A new private directory with the files of a snapshot."""
        path = self.root / new_id()
        path.mkdir(parents=True, mode=0o700)
        self.files.restore(snapshot, path)
        return path

    def close(self, path: Path, snapshot: str | None, keep: bool) -> str | None:
        """Snapshot the directory if `keep` and something changed since `snapshot`; remove it either way.

        Returns the digest of the snapshot that holds now. Raises StateError for what must not be kept: symbolic
        links that lead out, files with several links, and anything that is neither file nor directory.
        """
        try:
            return self._snapshot(path, snapshot) if keep else snapshot
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _snapshot(self, path: Path, parent: str | None) -> str | None:
        before = self.files.manifest(parent)
        after: Manifest = {}
        for name, info in _walk(path):
            digest, size = self.files.add(path / name)
            after[name] = (digest, size, stat.S_IMODE(info.st_mode))
        return parent if after == before else self.files.add_manifest(after)

    def merge(self, parent: str | None, after: Mapping[str, str | None]) -> str | None:
        """Join what the nodes of one step left, by node. Raises StateError where two changed one path differently."""
        changed = {node: digest for node, digest in after.items() if digest != parent}
        if len(set(changed.values())) <= 1:
            return next(iter(changed.values()), parent)
        before = self.files.manifest(parent)
        merged = dict(before)
        author: dict[str, str] = {}
        for node, digest in changed.items():
            manifest = self.files.manifest(digest)
            for name in before.keys() | manifest.keys():
                entry = manifest.get(name)
                if entry == before.get(name):
                    continue
                if name in author and merged.get(name) != entry:
                    raise StateError(f"nodes {author[name]!r} and {node!r} changed the file {name!r} differently")
                author[name] = node
                if entry is None:
                    merged.pop(name, None)
                else:
                    merged[name] = entry
        return self.files.add_manifest(merged)

    def snapshot_of(self, files: Mapping[str, Path]) -> str | None:
        """A snapshot of given files, by their name in the workspace."""
        if not files:
            return None
        manifest: Manifest = {}
        for name, source in files.items():
            digest, size = self.files.add(source)
            manifest[name] = (digest, size, 0o644)
        return self.files.add_manifest(manifest)


def _walk(root: Path) -> list[tuple[str, os.stat_result]]:
    found = []
    for folder, directories, names in os.walk(root, followlinks=False):
        for name in sorted(directories + names):
            path = Path(folder) / name
            info = path.lstat()
            relative = str(PurePosixPath(path.relative_to(root)))
            if stat.S_ISDIR(info.st_mode):
                continue
            if not stat.S_ISREG(info.st_mode):
                kind = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "not a regular file"
                raise StateError(f"workspace file {relative!r} is {kind}; only files and directories are kept")
            if info.st_nlink > 1:
                raise StateError(f"workspace file {relative!r} has several hard links; make it a copy")
            found.append((relative, info))
    return found
