"""LangGraph graphs in WTB, as they are: sweeps of their nodes' variants, and a store for their checkpoints."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError

if TYPE_CHECKING:
    from wtb.authoring.workflow import Workflow
    from wtb.integrations.langgraph.adapt import Variants, variants
    from wtb.integrations.langgraph.saver.checkpoint_saver import Saver
    from wtb.integrations.langgraph.saver.serde import Serializer
    from wtb.integrations.langgraph.saver.thread_checkpoints import ThreadCheckpoints, history

LOWEST, BELOW = (1, 2, 22), (1, 3)
_ADVICE = pip_install("langgraph")


def check_installed() -> None:
    """Check the installed LangGraph. Raises InputError if it is missing, or of an unsupported version."""
    try:
        installed = version("langgraph")
    except PackageNotFoundError:
        raise InputError(f"langgraph is not installed: {_ADVICE}") from None
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdigit())
    if not LOWEST <= numbers < BELOW:
        expected = f"langgraph >= {_words(LOWEST)}, < {_words(BELOW)}"
        raise InputError(
            f"langgraph {installed} is installed; WTB's engine for its graphs expects {expected}: {_ADVICE}"
        )


def _words(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


_HOME = {
    "Saver": "wtb.integrations.langgraph.saver.checkpoint_saver",
    "Serializer": "wtb.integrations.langgraph.saver.serde",
    "ThreadCheckpoints": "wtb.integrations.langgraph.saver.thread_checkpoints",
    "Variants": "wtb.integrations.langgraph.adapt",
    "history": "wtb.integrations.langgraph.saver.thread_checkpoints",
    "variants": "wtb.integrations.langgraph.adapt",
}

__all__ = ["Saver", "Serializer", "ThreadCheckpoints", "Variants", "history", "variants"]


def as_workflow(graph_or_variants: Any, name: str, source: Any) -> Workflow:
    """Make a workflow of a graph. source: The user's object, or the function that made it. Raises InputError."""
    check_installed()
    from wtb.integrations.langgraph.adapt import adapt

    return adapt(graph_or_variants, name, source)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb.integrations.langgraph' has no attribute {name!r}")
    check_installed()
    return getattr(import_module(_HOME[name]), name)
