"""Packages that some evaluators need, each of an extra of WTB. They are imported when the first score is made."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError

Fn = TypeVar("Fn", bound=Callable[..., Any])


def needs(package: str, *, extra: str) -> Callable[[Fn], Fn]:
    """Declare that an evaluator imports a package, and the extra that brings it."""

    def declare(fn: Fn) -> Fn:
        setattr(fn, "wtb_needs", (package, extra))  # noqa: B010 (a function has no such attribute by its type)
        return fn

    return declare


def check_installed(name: str, fn: Callable[..., Any]) -> None:
    """Refuse an evaluator whose package is missing. Raises InputError, which names the extra."""
    needed = getattr(fn, "wtb_needs", None)
    if needed is not None and find_spec(needed[0]) is None:
        package, extra = needed
        raise InputError(
            f"evaluator {name!r} needs the package {package}, which is not installed; install it with: "
            f"{pip_install(extra)}"
        )
