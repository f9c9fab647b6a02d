"""Files among the code of a workflow that the code itself writes: they are its output, although it names them.

An audit hook hears that a file is opened for writing, before that changes it. Writes of child processes, and of
libraries that open files in C, such as Arrow's, are not heard.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wtb.authoring.context.audit_hook import Handler, listen
from wtb.core.tree.stored_code import OUTSIDE

_MAX_PATHS: Final = 1000  # paths that are remembered of what is written while code is set up
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_NONE: Final = -1  # a descriptor
_BYTECODE: Final = f"{os.sep}__pycache__{os.sep}"


class _Watched:
    """The files to hear of, and what was heard.

    Attributes:
        parts: Path -> the name of the part of the code that the file is.
        names: The last parts of these paths, which most paths do not have.
        folders: The folders above these paths.
        early: Paths that were written while code was set up, before it was known what to watch.
        written: The parts that were written in this process, each with the node that was first.
        report: Called with parts that are written now; does nothing before a node runs.
    """

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.names: set[str] = set()
        self.folders: set[str] = set()
        self.early: dict[str, None] = {}
        self.written: dict[str, str] = {}
        self.report: Callable[[list[str]], None] = lambda parts: None

    def add(self, path: str, part: str) -> None:
        for place in {path, os.path.realpath(path)}:
            self.parts[place] = part
            self.names.add(os.path.basename(place))
            folder = os.path.dirname(place)
            while folder not in self.folders:
                self.folders.add(folder)
                folder = os.path.dirname(folder)
            if place in self.early:
                self.written.setdefault(part, OUTSIDE)


_watched = _Watched()
_is_set_up: ContextVar[bool] = ContextVar("wtb_code_is_set_up", default=False)


def watch_files(files: Mapping[str, str]) -> None:
    """Hear of writes to files from now on.

    Args:
        files: Path -> the name of the part of the code that the file is.
    """
    listen(_HANDLERS)
    for path, part in files.items():
        if _watched.parts.get(path) != part:
            _watched.add(path, part)


@contextmanager
def setting_up() -> Iterator[None]:
    """Remember files that are written meanwhile: code is imported, and perhaps opens files that it writes later."""
    listen(_HANDLERS)
    token = _is_set_up.set(True)
    try:
        yield
    finally:
        _is_set_up.reset(token)


def report_writes(report: Callable[[list[str]], None]) -> None:
    """Have parts that are written reported as they are."""
    _watched.report = report


def note_written(part: str, node: str) -> None:
    """Note that a part was written in this process: whoever opened the file may write it again."""
    _watched.written.setdefault(part, node)


def written_here() -> Mapping[str, str]:
    """Return the parts that were written in this process so far, each with the node that was first."""
    return _watched.written.copy()


def _opened(path: Any, _: Any, flags: int) -> None:
    if flags & _WRITES:
        _changed(path)


def _changed(path: Any, *_: Any) -> None:
    """Hear that the file at a path is written, replaced or removed."""
    if isinstance(path, int):  # a descriptor, which was opened before
        return
    text = path if type(path) is str else os.fsdecode(path)
    is_set_up = _is_set_up.get()
    if not is_set_up and text.rpartition(os.sep)[2] not in _watched.names:
        return
    place = os.path.abspath(text)
    part = _watched.parts.get(place) or _watched.parts.get(os.path.realpath(place))
    if part is not None:
        _tell([part])
    elif is_set_up and len(_watched.early) < _MAX_PATHS and _BYTECODE not in place:
        _watched.early[place] = None
        _watched.early[os.path.realpath(place)] = None


def _removed(path: Any, folder: int) -> None:
    if folder == _NONE:  # else the path begins at a folder that only a descriptor names
        _changed(path)


def _moved(source: Any, target: Any, source_folder: int, target_folder: int) -> None:
    for path, folder in ((source, source_folder), (target, target_folder)):
        if folder == _NONE:
            _changed(path)
            _emptied(path)


def _emptied(path: Any, *_: Any) -> None:
    """Hear that all of a folder is replaced or removed."""
    folder = os.path.abspath(os.fsdecode(path))
    if folder in _watched.folders:
        prefix = folder + os.sep
        _tell(sorted({part for place, part in _watched.parts.items() if place.startswith(prefix)}))


def _tell(parts: list[str]) -> None:
    if _is_set_up.get():
        for part in parts:
            note_written(part, OUTSIDE)
    else:
        _watched.report(parts)


def _linked(_: Any, target: Any, *folders: int) -> None:
    _removed(target, folders[-1])


_HANDLERS: Final[Mapping[str, Handler]] = {
    "open": _opened,
    "os.rename": _moved,
    "os.remove": _removed,
    "os.truncate": _changed,
    "os.link": _linked,
    "os.symlink": _linked,
    "shutil.rmtree": _emptied,
    "sqlite3.connect": _changed,
}
