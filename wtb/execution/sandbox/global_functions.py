"""Functions that change global state of a process, such as its environment: calls by node runs are noted.

[docs/isolation.md](docs/isolation.md) lists them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from wtb.core.frozen import frozen
from wtb.execution.sandbox.shared_run import RoutedStream, SharedRun, current_run, place_of

Arguments = tuple[Any, ...]
Options: TypeAlias = Mapping[str, Any]
"""The keyword arguments of a call of such a function, as user code gives them."""


@frozen(slots=True)
class Change:
    """A change of something that all runs in a process share.

    Attributes:
        what: The changed thing, such as `os.environ['HOME']`.
        place: File and line of the call that changed it.
        advice: A better way.
        is_own: Whether it harms only the run that made it, since neighbours use the same thing: a sequence of random
            numbers.
    """

    what: str
    place: str
    advice: str
    is_own: bool = False


Note = Callable[[SharedRun, Change], None]
_note: list[Note] = []  # who is told of changes
SEED = "use ctx.rng, or a generator of your own"
APART = "set it when your module is imported, or pass the value as an argument"


def tell_of_changes(note: Note) -> None:
    """Set the function that is called with each change by a node run."""
    _note[:] = [note]


def watch_functions() -> None:
    """Wrap the functions of imported modules now, and those of other modules when they are imported."""
    _wrap_functions()
    _redirect_by_run()
    sys.meta_path.insert(0, _Finder())


def _wrap_functions() -> None:
    for (module_name, attribute), wrapped in _WRAPPED.items():
        module = sys.modules.get(module_name)
        if module is None or (module_name, attribute) in _done:
            continue
        holder: Any = module
        *path, name = attribute.split(".")
        for part in path:
            holder = getattr(holder, part, None)
        real = getattr(holder, name, None)
        if real is not None:
            _done.add((module_name, attribute))
            setattr(holder, name, _noting(real, wrapped))


class _Finder(MetaPathFinder):
    """Finds modules as others do, and wraps their functions once they are executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _MODULES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _wrap_functions()

        with suppress(AttributeError):  # a loader without attributes of its own
            loader.exec_module = exec_module


@frozen(slots=True)
class _Wrapped:
    """A function to wrap. `what` returns the thing that a call changes; None if it changes nothing."""

    what: Callable[[Arguments, Options], str | None]
    advice: str = APART
    is_own: bool = False


def _noting(real: Callable[..., Any], wrapped: _Wrapped) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*args: Any, **options: Any) -> Any:
        run = current_run.get()
        if run is None or not _note:
            return real(*args, **options)
        # Before the call, because some compare with the present state.
        what = wrapped.what(args, options)
        returned = real(*args, **options)
        if what is not None:
            frame = sys._getframe(1)
            if not _is_importing(frame):
                _note[0](run, Change(what, place_of(frame), wrapped.advice, wrapped.is_own))
        return returned

    return call


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: its changes happen once, whichever run imports it first."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _always(what: str) -> Callable[[Arguments, Options], str | None]:
    return lambda args, options: what


def _seeded(what: str) -> Callable[[Arguments, Options], str | None]:
    """Detect seeding with a value. Seeding from the system, as in `random.seed()`, makes no expected sequence."""
    return lambda args, options: what if any(argument is not None for argument in (*args, *options.values())) else None


def _variable(args: Arguments, options: Options) -> str | None:
    key, *rest = args
    before = os.environb.get(os.fsencode(key))
    after = os.fsencode(rest[0]) if rest else None
    return None if before == after else f"os.environ[{os.fsdecode(key)!r}]"


def _locale(args: Arguments, options: Options) -> str | None:
    locale_name = args[1] if len(args) > 1 else options.get("locale")
    return None if locale_name is None else "the locale"


def _directory(args: Arguments, options: Options) -> str | None:
    """Return the working directory, unless the thread has one of its own, or is there already."""
    if is_directory_own():
        return None
    try:
        target = args[0] if args else options["path"]
        return None if os.path.samefile(os.curdir, target) else "the working directory"
    except (OSError, KeyError, TypeError):
        return None  # the call fails, too, or leaves a directory that is gone


def is_directory_own() -> bool:
    """Return whether the thread has a working directory of its own."""
    return _own_directory[0]()


_own_directory: list[Callable[[], bool]] = [lambda: False]


def ask_for_directory(is_own: Callable[[], bool]) -> None:
    """Set the function that returns whether a thread has a working directory of its own."""
    _own_directory[:] = [is_own]


def _handler(args: Arguments, options: Options) -> str | None:
    """Return the logger of a handler that sees records of other runs; output on stdout and stderr is by run."""
    logger, *rest = args
    handler = rest[0] if rest else options.get("hdlr")
    stream = getattr(handler, "stream", None)
    if handler in logger.handlers or isinstance(handler, logging.NullHandler) or isinstance(stream, RoutedStream):
        return None
    return f"the handlers of logger {logger.name!r}"


_levels: dict[str, tuple[SharedRun | None, int]] = {}


def _level(args: Arguments, options: Options) -> str | None:
    """Return the logger whose level another run has set to another value."""
    logger, *rest = args
    level = logging._checkLevel(rest[0] if rest else options["level"])  # type: ignore[attr-defined]
    run = current_run.get()
    setter, before = _levels.get(logger.name, (run, level))
    _levels[logger.name] = run, level
    return f"the level of logger {logger.name!r}" if setter is not run and before != level else None


_WRAPPED: Mapping[tuple[str, str], _Wrapped] = {
    ("random", "seed"): _Wrapped(_seeded("the state of module random"), SEED, is_own=True),
    ("random", "setstate"): _Wrapped(_always("the state of module random"), SEED, is_own=True),
    ("numpy.random", "seed"): _Wrapped(_seeded("the state of numpy.random"), SEED, is_own=True),
    ("numpy.random", "set_state"): _Wrapped(_always("the state of numpy.random"), SEED, is_own=True),
    ("torch", "manual_seed"): _Wrapped(_always("the state of torch's generator"), SEED, is_own=True),
    ("os", "putenv"): _Wrapped(_variable),  # which os.environ calls
    ("os", "unsetenv"): _Wrapped(_variable),
    ("os", "chdir"): _Wrapped(_directory, "use ctx.workspace"),
    ("os", "fchdir"): _Wrapped(_directory, "use ctx.workspace"),
    ("time", "tzset"): _Wrapped(_always("the time zone")),
    ("locale", "setlocale"): _Wrapped(_locale),
    ("socket", "setdefaulttimeout"): _Wrapped(_always("the default timeout of sockets"), "set it for each socket"),
    ("sys", "setrecursionlimit"): _Wrapped(_always("the recursion limit")),
    ("logging", "disable"): _Wrapped(_always("which log records there are")),
    ("logging", "Logger.addHandler"): _Wrapped(_handler),
    ("logging", "Logger.setLevel"): _Wrapped(_level),
    ("logging.config", "dictConfig"): _Wrapped(_always("the configuration of logging")),
    ("logging.config", "fileConfig"): _Wrapped(_always("the configuration of logging")),
}
_MODULES = frozenset(module for module, _ in _WRAPPED)
_done: set[tuple[str, str]] = set()


def _redirect_by_run() -> None:
    """Make `contextlib.redirect_stdout` and `redirect_stderr` redirect only the output of the run that uses them."""
    kind: Any = contextlib._RedirectStream
    enter, leave = kind.__enter__, kind.__exit__
    nothing = object()

    def enter_by_run(self: Any) -> Any:
        run = current_run.get()
        if run is None or not isinstance(getattr(sys, self._stream), RoutedStream):
            return enter(self)
        self._old_targets.append((run, run.redirections.get(self._stream, nothing)))
        run.redirections[self._stream] = self._new_target
        return self._new_target

    def leave_by_run(self: Any, *error: Any) -> None:
        if not isinstance(self._old_targets[-1], tuple):
            leave(self, *error)
            return
        run, before = self._old_targets.pop()
        if before is nothing:
            del run.redirections[self._stream]
        else:
            run.redirections[self._stream] = before

    kind.__enter__, kind.__exit__ = enter_by_run, leave_by_run
