"""WTB as it is installed: the name of its distribution, and garbage collection in its own processes."""

from __future__ import annotations

import gc

NAME = "workflow-test-bench"
OTHER_NAME = "wtb"  # a distribution of other people, which has a package of that name, too


def pip_install(extra: str) -> str:
    """Return the command that installs WTB with one of its extras."""
    return f'pip install "{NAME}[{extra}]"'


def rival() -> str | None:
    """Return the version of the other distribution that owns the package `wtb`, if both are installed."""
    versions = {name: version for name in (NAME, OTHER_NAME) if (version := _version(name)) is not None}
    return versions.get(OTHER_NAME) if len(versions) == 2 else None


def _version(name: str) -> str | None:
    from importlib import metadata  # slow, and every command imports this module to collect its garbage

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# The number of new objects before a collection of the young, and how often the older ones follow. Python's 700
# are exceeded three times in each node run, and the collections find almost nothing in a fifth of a short run's time.
THRESHOLDS = (20_000, 10, 10)


def start_collecting() -> None:
    """Collect garbage from now on, except objects that exist already: imported modules stay."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
