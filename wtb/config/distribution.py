"""The name under which WTB is installed; the package and the command are called `wtb`."""

from __future__ import annotations

from importlib import metadata

NAME = "workflow-test-bench"
OTHER_NAME = "wtb"  # a distribution of other people, which has a package of that name, too


def pip_install(extra: str) -> str:
    """The command that installs WTB with one of its extras."""
    return f'pip install "{NAME}[{extra}]"'


def rival() -> str | None:
    """The version of the other distribution that owns the package `wtb`, where both are installed."""
    versions = {name: version for name in (NAME, OTHER_NAME) if (version := _version(name)) is not None}
    return versions.get(OTHER_NAME) if len(versions) == 2 else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
