"""LangGraph graphs in WTB, as they are: sweeps of their nodes' variants, and a store for their checkpoints."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wtb.integrations.langgraph.authoring.versions import check_installed

if TYPE_CHECKING:
    from wtb.authoring.workflow import Workflow
    from wtb.integrations.langgraph.authoring.adapt import Variants, variants
    from wtb.integrations.langgraph.saver.checkpoint_saver import Saver
    from wtb.integrations.langgraph.saver.serde import Serializer
    from wtb.integrations.langgraph.saver.thread_checkpoints import ThreadCheckpoints
    from wtb.integrations.langgraph.saver.thread_history import history

_HOME = {
    "Saver": "wtb.integrations.langgraph.saver.checkpoint_saver",
    "Serializer": "wtb.integrations.langgraph.saver.serde",
    "ThreadCheckpoints": "wtb.integrations.langgraph.saver.thread_checkpoints",
    "Variants": "wtb.integrations.langgraph.authoring.adapt",
    "history": "wtb.integrations.langgraph.saver.thread_history",
    "variants": "wtb.integrations.langgraph.authoring.adapt",
}

__all__ = ["Saver", "Serializer", "ThreadCheckpoints", "Variants", "history", "variants"]


def as_workflow(found: Any, name: str, given: Any) -> Workflow:
    """A graph as a workflow. given: what the user wrote, which may be a function that made it. Raises InputError."""
    check_installed()
    from wtb.integrations.langgraph.authoring.adapt import adapt

    return adapt(found, name, given)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb.integrations.langgraph' has no attribute {name!r}")
    check_installed()
    return getattr(import_module(_HOME[name]), name)
