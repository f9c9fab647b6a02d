"""Who copies a whole store, and who removes from it: never both at the same time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial

from wtb.store.files.store import FileStore, opened_by
from wtb.store.files.system import open_flags

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no store opens
    import fcntl

LOCK = ".lock"
_OPEN = open_flags("O_RDWR", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW")


@contextlib.contextmanager
def copying_files(files: FileStore) -> Iterator[None]:
    """Have nothing be removed from a store inside the block; waits for who removes something now."""
    if not files.top.is_dir():
        yield
        return
    with opened_by(partial(os.open, files.top / LOCK, _OPEN, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def removing_files(files: FileStore) -> Iterator[bool]:
    """Yield whether files may be removed from a store inside the block: nobody copies it."""
    if not files.top.is_dir():
        yield True
        return
    with opened_by(partial(os.open, files.top / LOCK, _OPEN, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
