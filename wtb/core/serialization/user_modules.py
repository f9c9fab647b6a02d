"""The folder of users' modules, and the processes that import none of them.

A command finds modules in its working directory, but only once it imports user code, so that commands that only read
run nothing of a folder. A file there never replaces a module of Python or of a library that WTB uses, whatever its
name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OWN = ("wtb", "wtb_scheduler", "wtb_workers")
_DISTRIBUTION = "workflow-test-bench"  # of WTB: `NAME` in wtb/config/distribution.py, which imports this layer


class _State:
    """The state of this process."""

    folder: str | None = None  # in which it finds users' modules, besides sys.path
    barred: str | None = None  # the kind of process that it is, if it imports none of them


def find_modules_in(folder: str) -> None:
    """Find users' modules in a folder, from the first import of user code on."""
    _State.folder = None if folder in sys.path else folder  # as PYTHONPATH has it, for what users run by themselves


def folder_of_modules() -> str | None:
    """Return the folder in which this process finds users' modules, besides `sys.path`."""
    return _State.folder


def search_path() -> list[str]:
    """Return the folders in which modules are searched before the folder of the command."""
    return [folder or os.getcwd() for folder in sys.path if folder != _State.folder]


def open_folder() -> None:
    """Let modules be found in the folder of the command, because user code is about to be imported."""
    if _State.folder is not None and _State.folder not in sys.path:
        sys.path.append(_State.folder)  # after all installed packages, except for modules that ProjectFinder finds
        sys.meta_path.insert(0, ProjectFinder(_State.folder))


def shadowed_file(name: str) -> str | None:
    """Return the file of the project that a module would come from, if another module has its name.

    Args:
        name: The name of an imported module.
    """
    top = name.partition(".")[0]
    if _State.folder is None or top not in sys.modules:
        return None
    local = _spec_in(top, [_State.folder])
    loaded = getattr(sys.modules[top], "__file__", None)
    return None if local is None or loaded == local.origin else local.origin


class ProjectFinder(MetaPathFinder):
    """Finds a project's modules before installed ones of the same name, unless WTB or Python needs those."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # A path is given for submodules, which are found in their package.
        if path is not None or fullname in sys.stdlib_module_names or fullname in _OWN:
            return None
        local = _spec_in(fullname, [self._folder])
        if local is None:
            return None
        installed = _spec_in(fullname, [folder for folder in sys.path if folder != self._folder])
        return None if installed is not None and fullname in _needed() else local


def _spec_in(name: str, path: list[str]) -> ModuleSpec | None:
    """Find a module or package of this name; a folder without `__init__.py` is none."""
    spec = PathFinder.find_spec(name, path)
    return None if spec is None or spec.origin is None else spec


@cache  # it takes a third of a second, and is needed only if a name exists twice
def _needed() -> frozenset[str]:
    """Return the names of the modules of all distributions that WTB needs."""
    from importlib import metadata

    needed = set(_requirements(_DISTRIBUTION))
    return frozenset(
        module
        for module, distributions in metadata.packages_distributions().items()
        if any(_normalized(name) in needed for name in distributions)
    )


def _requirements(name: str) -> Iterator[str]:
    """Yield the normalized names of a distribution's requirements, and of theirs; for WTB including all extras."""
    from importlib import metadata

    ahead: list[tuple[str, str]] = [(name, ".*")]
    seen = set(ahead)
    while ahead:
        distribution, extras = ahead.pop()
        yield distribution
        try:
            requirements = metadata.requires(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            match = re.match(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?", requirement)
            of_extra = re.search(r"extra == ['\"]([^'\"]+)['\"]", requirement)
            if match is None or (of_extra is not None and not re.fullmatch(extras, of_extra.group(1))):
                continue
            extra_pattern = "|".join(re.escape(extra.strip()) for extra in (match.group(2) or "").split(","))
            needed = _normalized(match.group(1)), extra_pattern
            if needed not in seen:
                seen.add(needed)
                ahead.append(needed)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bar(process: str | None) -> None:
    """Import no user code in this process from now on.

    Args:
        process: The name of the process in errors, such as "a worker"; None to import user code again.
    """
    _State.barred = process


@contextmanager
def without_user_code(process: str | None) -> Iterator[None]:
    """A context in which this process imports no user code.

    Args:
        process: The name of the process in errors, such as "the server"; None for a context in which it imports user
            code again.
    """
    before = _State.barred
    bar(process)
    try:
        yield
    finally:
        bar(before)


def barred() -> str | None:
    """Return the kind of this process, if it imports no user code."""
    return _State.barred
