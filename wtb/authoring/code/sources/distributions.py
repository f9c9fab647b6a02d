"""Which installed distribution a package is from, where its code is not the project's own."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_INSTALLED = {"site-packages", "dist-packages"}


def distribution_of(package: str, file: str | None = None) -> str | None:
    """`name==version` for a package that was installed from an index; None for the project's own code.

    The project's own is what is imported from anywhere else: the working folder, a script, a notebook, an editable
    install; and what was installed from a folder, a file or a repository, as projects are in images of workers.
    package: the first part of a module's name. file: that of the module, which decides; else that of the package.
    """
    module = sys.modules.get(package)
    file = file or getattr(module, "__file__", None)
    places = (file,) if file else tuple(getattr(module, "__path__", ()))  # a namespace has several, and no file
    return _installed_version(package, places)


@functools.cache
def _installed_version(package: str, places: tuple[str, ...]) -> str | None:
    if not places or not all(_INSTALLED & set(Path(place).parts) for place in places):
        return None
    distributions = _distributions(package)
    # The file says where from, and is there unless it was an index (PEP 610).
    if not distributions or any(distribution.read_text("direct_url.json") for distribution in distributions):
        return None
    return ", ".join(f"{distribution.name}=={distribution.version}" for distribution in distributions)


def _distributions(package: str) -> list[Distribution]:
    from importlib.metadata import PackageNotFoundError, distribution  # a tenth of the start of a node process

    try:
        return [distribution(package)]
    except PackageNotFoundError:  # they may be named differently; to find that out takes a look at all of them
        return [distribution(name) for name in sorted(set(_by_package().get(package, ())))]


@functools.cache
def _by_package() -> Mapping[str, list[str]]:
    from importlib.metadata import packages_distributions

    return packages_distributions()
