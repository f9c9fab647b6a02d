"""Manifests: the list of a snapshot's files, and what two of them differ in.

Stored as JSON, `path -> [sha256, size in bytes, mode]`. Paths are relative, with `/` between their parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

import orjson

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StateError, StoreError

DIGEST = re.compile(r"[0-9a-f]{64}")


@frozen(slots=True)
class Entry:
    """A file of a snapshot: the SHA-256 of its content, its size in bytes and its permissions."""

    digest: str
    size: int
    mode: int


Manifest = Mapping[str, Entry]


@frozen(slots=True)
class Change:
    """A file in which two snapshots differ, and its sizes in bytes; only its mode may have changed."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: int | None
    after: int | None


def encode(manifest: Manifest) -> bytes:
    """A manifest as it is stored."""
    entries = {path: (entry.digest, entry.size, entry.mode) for path, entry in manifest.items()}
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS)


def decode(data: bytes, name: str) -> Manifest:
    """A stored manifest. Raises StoreError, naming it, for damaged or unsafe ones."""
    try:
        found = {path: Entry(*entry) for path, entry in orjson.loads(data).items()}
        wrong = _unsafe(found)
    except (ValueError, TypeError, AttributeError):
        raise StoreError(f"workspace snapshot {name} is damaged: it is not a list of files") from None
    if wrong is not None:
        raise StoreError(f"workspace snapshot {name} is damaged: it has a file {wrong!r}")
    return found


def compare(before: Manifest, after: Manifest) -> list[Change]:
    """What changed between two manifests, by path."""
    changes = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None and other is not None:
            changes.append(Change(path, "added", None, other.size))
        elif other is None and one is not None:
            changes.append(Change(path, "removed", one.size, None))
        elif one is not None and other is not None and one != other:
            changes.append(Change(path, "changed", one.size, other.size))
    return changes


def merge(before: Manifest, after: Mapping[str, Manifest]) -> Manifest:
    """Join what nodes made of the same files, by node.

    Raises StateError, naming both nodes, where they changed one path differently or need it as file and folder.
    """
    merged = dict(before)
    author: dict[str, str] = {}
    for node, manifest in after.items():
        for change in compare(before, manifest):
            path, entry = change.path, manifest.get(change.path)
            if path in author and merged.get(path) != entry:
                raise StateError(f"nodes {author[path]!r} and {node!r} changed the file {path!r} differently")
            author[path] = node
            if entry is None:
                merged.pop(path, None)
            else:
                merged[path] = entry
    check_folders(merged, author)
    return merged


def new_contents(after: Manifest, before: Manifest) -> dict[str, int]:
    """Digest -> bytes of the contents that one has and the other has not."""
    known = {entry.digest for entry in before.values()}
    return {entry.digest: entry.size for entry in after.values() if entry.digest not in known}


def check_folders(paths: Collection[str], author: Mapping[str, str]) -> None:
    """Raise StateError where one path is a file, and a folder of another."""
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
    """Whether a path leads to below the directory that it is relative to: no `..`, empty part, NUL, or `/` in front."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _unsafe(manifest: Manifest) -> str | None:
    """A path that leads out, is a folder of another one, or has an entry that cannot be. Raises TypeError."""
    folders: set[str] = set()
    for path, entry in manifest.items():
        if not (is_safe(path) and entry.size >= 0 <= entry.mode and DIGEST.fullmatch(entry.digest)):
            return path
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return next(iter(folders & manifest.keys()), None)
