"""Manifests: the list of a snapshot's files, and the difference between two.

Stored as JSON, `path -> [sha256, size in bytes, mode]`. Paths are relative, with `/` between their parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

import orjson

from wtb.core.errors import StateError, StoreError
from wtb.core.frozen import frozen

DIGEST = re.compile(r"[0-9a-f]{64}")


@frozen(slots=True)
class Entry:
    """A file of a snapshot: the SHA-256 of its content, its size in bytes and its permissions."""

    digest: str
    size: int
    mode: int


Manifest = Mapping[str, Entry]
ChangeKind = Literal["added", "removed", "changed"]


@frozen(slots=True)
class Change:
    """A file in which two snapshots differ, with its sizes in bytes; only its mode may have changed."""

    path: str
    kind: ChangeKind
    before: int | None
    after: int | None


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored."""
    # Sorted, so that equal directories have equal manifests, and one digest.
    entries = {path: (file.digest, file.size, file.mode) for path, file in manifest.items()}
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS)


def decode(content: bytes, name: str) -> Manifest:
    """Return a stored manifest. Raises StoreError with its name if it is damaged or unsafe."""
    try:
        manifest = {path: Entry(*file) for path, file in orjson.loads(content).items()}
        wrong = _unsafe(manifest)
    except (ValueError, TypeError, AttributeError):
        raise StoreError(f"workspace snapshot {name} is damaged: it is not a list of files") from None
    if wrong is not None:
        raise StoreError(f"workspace snapshot {name} is damaged: it has a file {wrong!r}")
    return manifest


def compare(before: Manifest, after: Manifest) -> list[Change]:
    """Return the changes between two manifests, by path."""
    changes = []
    for path in sorted(before.keys() | after.keys()):
        old, other = before.get(path), after.get(path)
        if old != other:
            kind: ChangeKind = "added" if old is None else "removed" if other is None else "changed"
            sizes = [None if file is None else file.size for file in (old, other)]
            changes.append(Change(path, kind, *sizes))
    return changes


def merge(before: Manifest, after: Mapping[str, Manifest]) -> Manifest:
    """Join the manifests that nodes made from the same files, by node.

    Raises:
        StateError: Naming both nodes, if they changed one path differently or need it as file and folder.
    """
    merged = dict(before)
    author: dict[str, str] = {}
    for node, manifest in after.items():
        for change in compare(before, manifest):
            path, file = change.path, manifest.get(change.path)
            if path in author and merged.get(path) != file:
                raise StateError(f"nodes {author[path]!r} and {node!r} changed the file {path!r} differently")
            author[path] = node
            if file is None:
                merged.pop(path, None)
            else:
                merged[path] = file
    check_folders(merged, author)
    return merged


def new_contents(after: Manifest, before: Manifest) -> dict[str, int]:
    """Return the bytes of the contents that `after` has and `before` has not, by digest."""
    old_digests = {file.digest for file in before.values()}
    return {file.digest: file.size for file in after.values() if file.digest not in old_digests}


def check_folders(paths: Collection[str], author: Mapping[str, str]) -> None:
    """Raise StateError if a path is a file, and a folder of another path."""
    for path in paths:
        folder = path
        while folder := folder.rpartition("/")[0]:
            if folder in paths:
                if folder in author and path in author:
                    who = f"nodes {author[folder]!r} and {author[path]!r} changed {folder!r} differently: "
                else:
                    who = f"node {author[path]!r}: " if path in author else ""
                raise StateError(f"{who}{folder!r} is a file, and {path!r} needs it to be a folder")


def is_safe(path: str) -> bool:
    """Return whether a path leads to below its base directory: no `..`, empty part, NUL, or leading `/`."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _unsafe(manifest: Manifest) -> str | None:
    """Return a path that leads out, is a folder of another one, or has an impossible entry. Raises TypeError."""
    folders: set[str] = set()
    for path, file in manifest.items():
        if not (is_safe(path) and file.size >= 0 <= file.mode and DIGEST.fullmatch(file.digest)):
            return path
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return next(iter(folders & manifest.keys()), None)
