"""Replies of judges: kept beside the stored files of a project, so that all who share those share them.

Files have scores and prices only, under digests of what was asked. Whose they are is not known. Earlier releases kept
those of all projects in one folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

from wtb.core.classes.frozen import frozen
from wtb.store.files.store import FileStore

KEPT_S = 90 * 86_400.0  # that a reply is kept after it was last used


@frozen
class Unused:
    """Replies that nobody uses: how many, and their size in bytes."""

    count: int = 0
    bytes: int = 0


def find_unused(files: FileStore, older_than_s: float = KEPT_S) -> Unused:
    """Count replies that nobody has used for so long; 0 counts all."""
    sizes = [size for _, size in _unused(files, older_than_s)]
    return Unused(len(sizes), sum(sizes))


def remove_unused(files: FileStore, older_than_s: float = KEPT_S, projects: Collection[str] | None = None) -> Unused:
    """Remove replies that nobody has used for so long.

    Args:
        files: The store.
        older_than_s: For so many seconds; 0 removes all.
        projects: Only those of these projects, and those that may be of any; None for all.
    """
    removed = []
    for path, size in _unused(files, older_than_s, projects):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            path.unlink()
            removed.append(size)
    return Unused(len(removed), sum(removed))


def _unused(
    files: FileStore, older_than_s: float, projects: Collection[str] | None = None
) -> Iterator[tuple[Path, int]]:
    """Their paths and sizes. One that is used meanwhile may be among them: it is asked for again then."""
    parts = files.parts()
    if projects is not None:
        parts = [parts[0], *map(files.of_project, projects)]
    before = time.time() + files.clock_ahead() - older_than_s
    for path in chain.from_iterable(part.judgements.glob("*/*") for part in parts):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if path.is_file() and (not older_than_s or found.st_mtime < before):
                yield path, found.st_size
