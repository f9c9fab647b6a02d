"""LangGraph graphs in WTB, as they are: sweeps of their nodes' variants, and a store for their checkpoints.

from wtb.langgraph import Saver, variants
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wtb.langgraph.authoring import Variants, variants
    from wtb.langgraph.saver import Saver
    from wtb.langgraph.threads import history

_HOME = {
    "Saver": "wtb.langgraph.saver",
    "Variants": "wtb.langgraph.authoring",
    "history": "wtb.langgraph.threads",
    "variants": "wtb.langgraph.authoring",
}

__all__ = ["Saver", "Variants", "history", "variants"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb.langgraph' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
