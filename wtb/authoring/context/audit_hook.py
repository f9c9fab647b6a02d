"""The audit hook of this process, and the files among the code of a workflow that the code is seen to write.

Handlers only listen, and what they raise is ignored. Guards stop what policies deny.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wtb.core.errors import PolicyDenied
from wtb.core.tree.stored_code import OUTSIDE

Handler = Callable[..., None]  # of the arguments of its event
_handlers: dict[str, Handler] = {}
_guards: dict[str, Handler] = {}
_owner = 0  # the process that listens: those that it forks must not speak for it
_lock = threading.Lock()


def listen(handlers: Mapping[str, Handler]) -> None:
    """Call handlers from now on. A hook cannot be removed.

    Args:
        handlers: By the name of the event, as in Python's table of audit events.
    """
    global _owner
    with _lock:
        _owner = os.getpid()
        _install()
        _handlers.update(handlers)


def guard(handlers: Mapping[str, Handler]) -> None:
    """Call handlers from now on that stop what Python is about to do, by raising PolicyDenied.

    Processes that this one forks are guarded, too.

    Args:
        handlers: By the name of the event.
    """
    with _lock:
        _install()
        _guards.update(handlers)


def _install() -> None:
    # A hook cannot be removed, so a second one would handle each event twice.
    if not _handlers and not _guards:
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Handle an audit event. An error raised here fails the audited act of user code."""
    if (guarding := _guards.get(event)) is not None:
        _check(guarding, event, arguments)
    handler = _handlers.get(event)
    # A fork inherits the hook and its handlers, but it must not report in the name of its parent.
    if handler is None or os.getpid() != _owner:
        return
    try:
        handler(*arguments)
    except Exception:  # noqa: BLE001 - arguments of another shape, or a report that cannot be sent
        return


def _check(guarding: Handler, event: str, arguments: tuple[Any, ...]) -> None:
    try:
        guarding(*arguments)
    except PolicyDenied:
        raise
    except Exception as error:  # noqa: BLE001 - arguments of another shape: what cannot be decided is denied
        raise PolicyDenied(f"{event} is denied: policies cannot decide about it ({type(error).__name__})") from None


_MAX_PATHS: Final = 1000  # paths that are remembered of what is written while code is set up
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_NONE: Final = -1  # a descriptor
_BYTECODE: Final = f"{os.sep}__pycache__{os.sep}"


class _Watched:
    """The watched files, and the writes to them.

    Attributes:
        parts: Path -> the name of the part of the code that the file is.
        names: The last parts of these paths, which most paths do not have.
        folders: The folders above these paths.
        early: Paths that were written while code was set up, before it was known what to watch.
        written: The parts that were written in this process, each with the node that was first.
        report: Called with parts that are written now; does nothing until `report_writes` sets it.
    """

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.names: set[str] = set()
        self.folders: set[str] = set()
        self.early: dict[str, None] = {}
        self.written: dict[str, str] = {}
        self.report: Callable[[list[str]], None] = lambda parts: None

    def add(self, path: str, part: str) -> None:
        # If a folder of the path is a link, code may open the file by either path.
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
    """Watch files for writes from now on.

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
    """Set the function that is called with parts as soon as they are written."""
    _watched.report = report


def note_written(part: str, node: str) -> None:
    """Note that a part was written in this process, because code that has the file open may write it again."""
    _watched.written.setdefault(part, node)


def written_here() -> Mapping[str, str]:
    """Return the parts that were written in this process so far, each with the node that was first."""
    return _watched.written.copy()


def _opened(path: Any, _: Any, flags: int) -> None:
    if flags & _WRITES:
        _changed(path)


def _changed(path: Any, *_: Any) -> None:
    """Handle the event that the file at a path is written, replaced or removed."""
    if isinstance(path, int):  # a descriptor, which was opened before
        return
    text = path if type(path) is str else os.fsdecode(path)
    is_set_up = _is_set_up.get()
    # The hook runs for every file that this process opens, so the cheapest check is first.
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
    # Otherwise the path begins at a folder that only a descriptor names.
    if folder == _NONE:
        _changed(path)


def _moved(source: Any, target: Any, source_folder: int, target_folder: int) -> None:
    for path, folder in ((source, source_folder), (target, target_folder)):
        if folder == _NONE:
            _changed(path)
            # A folder that is moved takes all of its files along.
            _emptied(path)


def _emptied(path: Any, *_: Any) -> None:
    """Handle the event that a whole folder is replaced or removed."""
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
    # SQLite opens its file in C, which raises no event `open`.
    "sqlite3.connect": _changed,
}
