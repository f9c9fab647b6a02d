"""Which versions of LangGraph the engine was tested with: it rests on modules that are not public."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError

LOWEST, BELOW = (1, 2, 22), (1, 3)
_ADVICE = pip_install("langgraph")


def check_installed() -> None:
    """Raises InputError where LangGraph is missing, or is another version than the engine knows."""
    try:
        found = version("langgraph")
    except PackageNotFoundError:
        raise InputError(f"langgraph is not installed: {_ADVICE}") from None
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if not LOWEST <= numbers < BELOW:
        wanted = f"langgraph >= {_words(LOWEST)}, < {_words(BELOW)}"
        raise InputError(f"langgraph {found} is installed; WTB's engine for its graphs expects {wanted}: {_ADVICE}")


def _words(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
