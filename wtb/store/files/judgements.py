"""Where replies of judges are kept: beside stored files, so that all who share those share them.

Files have scores and prices only, under digests of what was asked. Whose they are is not known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from wtb.store.files.store import FileStore

_NAME = "judgements"  # no beginning of a digest, as folders of contents have it
KEPT_S = 90 * 86_400.0  # that a reply is kept after it was last used


def folder_of(files: FileStore) -> Path:
    """The folder of a store in which replies are kept. It may not be there yet."""
    return files.root / _NAME


def remove_unused(files: FileStore, older_than_s: float = KEPT_S) -> int:
    """Remove replies that nobody has used for so long; 0 removes all. Returns how many went."""
    before, removed = time.time() + files.clock_ahead() - older_than_s, 0
    for path in _all(files):
        with contextlib.suppress(FileNotFoundError):  # another process removes it
            if not older_than_s or path.stat().st_mtime < before:
                path.unlink()
                removed += 1
    return removed


def _all(files: FileStore) -> Iterator[Path]:
    return (path for path in folder_of(files).glob("*/*") if path.is_file())
