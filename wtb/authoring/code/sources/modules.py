"""Find modules and decide whose they are: the user's own, an installed distribution's, or Python's.

Own is whatever is neither the standard library nor an installed distribution, wherever it lies. A file decides, not a
name: a folder of the user's may be called like a module of Python, and a virtual environment may lie in a project.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from typing import Any

from wtb.authoring.code.sources.distributions import distribution_of
from wtb.authoring.code.sources.mentions import Imported
from wtb.authoring.code.sources.source_file import SourceFile, source_of
from wtb.core.classes.frozen import frozen

_PYTHON = os.path.dirname(os.__file__) + os.sep
_WTB = frozenset({"wtb", "wtb_workers", "wtb_scheduler"})


@frozen
class Module:
    """A module by its name, whether or not this process has imported it.

    Attributes:
        name: Its dotted name.
        file: Where it is from; None for a namespace package and for what is built into Python.
        package: The package to which its relative imports refer.
        folders: Where its submodules are, if it is a package.
    """

    name: str
    file: str | None
    package: str
    folders: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        return _is_own(self.name, self.file)

    @property
    def is_compiled(self) -> bool:
        return self.file is not None and self.file.endswith(tuple(EXTENSION_SUFFIXES))

    @property
    def root(self) -> str | None:
        """The folder from which it is imported."""
        if self.file is None:
            return None
        depth = self.name.count(".") + (1 if self.folders else 0)
        folder = os.path.dirname(os.path.abspath(self.file))
        for _ in range(depth):
            folder = os.path.dirname(folder)
        return folder

    @property
    def source(self) -> SourceFile | None:
        if self.file is None or self.is_compiled:
            return None
        return source_of(self.file, _namespace(self.name))

    @property
    def versioned_name(self) -> str:
        """Its name, with the version of its distribution."""
        top = self.name.partition(".")[0]
        distribution = None if top in _WTB or top in sys.stdlib_module_names else distribution_of(top, self.file)
        return f"{self.name}{'' if distribution is None else f' of {distribution}'}"

    def absolute(self, imported: Imported) -> str:
        """Return the full name of a module that this one imports."""
        if not imported.level:
            return imported.module
        package = self.package.rsplit(".", imported.level - 1)[0] if imported.level > 1 else self.package
        return f"{package}.{imported.module}".strip(".")


def is_own(name: str) -> bool:
    """Return whether code that is said to be of this module is the user's own; code of no module is."""
    if name == "None":
        return False
    module = sys.modules.get(name) or sys.modules.get(name.partition(".")[0])
    return _is_own(name, getattr(module, "__file__", None))


@functools.lru_cache(maxsize=8192)
def _is_own(name: str, file: str | None) -> bool:
    top = name.partition(".")[0]
    if top in _WTB:
        return False
    if top in sys.stdlib_module_names:  # unless it is a file of the user's that is called so
        return file is not None and not file.startswith((_PYTHON, "<frozen"))
    return distribution_of(top, file) is None


def module_of(name: str) -> Module | None:
    """Find a module by its full name, without importing it or its packages; None if there is none."""
    module = sys.modules.get(name)
    if (module is not None and getattr(module, "__spec__", None) is not None) or name == "__main__":
        folders = tuple(getattr(module, "__path__", ()))
        package = getattr(module, "__package__", None) or (name if folders else name.rpartition(".")[0])
        return Module(name, getattr(module, "__file__", None), package, folders)
    return _module_on_disk(name)


def _module_on_disk(name: str) -> Module | None:
    parent, _, _ = name.rpartition(".")
    places: Sequence[str] | None = None
    if parent:
        package = module_of(parent)
        if package is None or not package.folders:
            return None
        places = package.folders
    spec = _spec(name, places)
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    return Module(name, spec.origin if spec.has_location else None, name if folders else parent, folders)


def _spec(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec: ModuleSpec | None = find(name, places) if find is not None else None
        except (ImportError, ValueError, AttributeError):
            continue
        if spec is not None:
            return spec
    return None


def _namespace(name: str) -> dict[str, Any] | None:
    module = sys.modules.get(name)
    return None if module is None else vars(module)
