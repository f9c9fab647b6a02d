"""Where replies of judges are kept: beside stored files, so that all who share those share them.

Files have scores and prices only, under digests of what was asked. Whose they are is not known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wtb.store.files.store import FileStore

_NAME = "judgements"  # no beginning of a digest, as folders of contents have it
KEPT_S = 90 * 86_400.0  # that a reply is kept after it was last used


def folder_of(files: FileStore) -> Path:
    """The folder of a store in which replies are kept. It may not be there yet."""
    return files.root / _NAME


@dataclass(frozen=True)
class Unused:
    """Replies that nobody uses: how many, and their size in bytes."""

    count: int = 0
    bytes: int = 0


def find_unused(files: FileStore, older_than_s: float = KEPT_S) -> Unused:
    """Count replies that nobody has used for so long; 0 counts all."""
    sizes = [size for _, size in _unused(files, older_than_s)]
    return Unused(len(sizes), sum(sizes))


def remove_unused(files: FileStore, older_than_s: float = KEPT_S) -> Unused:
    """Remove replies that nobody has used for so long; 0 removes all."""
    removed = []
    for path, size in _unused(files, older_than_s):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            path.unlink()
            removed.append(size)
    return Unused(len(removed), sum(removed))


def _unused(files: FileStore, older_than_s: float) -> Iterator[tuple[Path, int]]:
    """Their paths and sizes. One that is used meanwhile may be among them: it is asked for again then."""
    before = time.time() + files.clock_ahead() - older_than_s
    for path in folder_of(files).glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if path.is_file() and (not older_than_s or found.st_mtime < before):
                yield path, found.st_size
