"""The folder in which users' modules are, and the processes that import none of them.

A command finds modules in its working directory. That folder comes first on `sys.path` only once the command imports
user code: until then a file there cannot replace a library, so that commands that only read run nothing of a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _State:
    """What holds for this process."""

    folder: str | None = None  # in which it finds users' modules, besides sys.path
    barred: str | None = None  # the kind of process that it is, if it imports none of them


def find_modules_in(folder: str) -> None:
    """Find users' modules in a folder, from the first import of user code on."""
    _State.folder = folder


def search_path() -> list[str]:
    """Return where node processes find modules: the folder of the command, then what is on `sys.path`."""
    path = [entry or os.getcwd() for entry in sys.path]
    return path if _State.folder is None or path[:1] == [_State.folder] else [_State.folder, *path]


def open_folder() -> None:
    """Put the folder of the command first on `sys.path`, because user code is about to be imported."""
    if _State.folder is not None and _State.folder not in sys.path:
        sys.path.insert(0, _State.folder)


def bar(process: str | None) -> None:
    """Import no user code in this process from now on.

    Args:
        process: What errors call it, such as "a worker"; None to import user code again.
    """
    _State.barred = process


@contextmanager
def without_user_code(process: str) -> Iterator[None]:
    """A context in which this process imports no user code. process: what errors call it."""
    before = _State.barred
    bar(process)
    try:
        yield
    finally:
        bar(before)


def barred() -> str | None:
    """Return what this process is, if it imports no user code."""
    return _State.barred
