"""Workflow Test Bench: run a workflow under every combination of its nodes' variants.

Public are the names in `__all__` here and in `wtb.testing`, `wtb.integrations.models`, `wtb.integrations.langgraph` and
`wtb.integrations.pytest_plugin`. Everything else may change from release to release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wtb.core.version import __version__ as __version__

if TYPE_CHECKING:
    from wtb.authoring.context.node_context import Context, current_context
    from wtb.authoring.edges import END
    from wtb.authoring.evaluation.evaluators import evaluator
    from wtb.authoring.nodes import Backoff, Node, Variant
    from wtb.authoring.workflow import Workflow
    from wtb.core.errors import FinalError, InputError, NodeError, Rejected, StateError, WTBError
    from wtb.operations.execution import Run, find_run, start
    from wtb.operations.sweep import Sweep, SweepResult

# Name -> module. Looked up when first used, so that `import wtb` costs nothing and `wtb --help` stays quick.
_HOME = {
    "Backoff": "wtb.authoring.nodes",
    "Context": "wtb.authoring.context.node_context",
    "END": "wtb.authoring.edges",
    "FinalError": "wtb.core.errors",
    "InputError": "wtb.core.errors",
    "Node": "wtb.authoring.nodes",
    "NodeError": "wtb.core.errors",
    "Rejected": "wtb.core.errors",
    "Run": "wtb.operations.execution",
    "StateError": "wtb.core.errors",
    "Sweep": "wtb.operations.sweep",
    "SweepResult": "wtb.operations.sweep",
    "Variant": "wtb.authoring.nodes",
    "WTBError": "wtb.core.errors",
    "Workflow": "wtb.authoring.workflow",
    "current_context": "wtb.authoring.context.node_context",
    "evaluator": "wtb.authoring.evaluation.evaluators",
    "find_run": "wtb.operations.execution",
    "start": "wtb.operations.execution",
}

__all__ = [
    "END",
    "Backoff",
    "Context",
    "FinalError",
    "InputError",
    "Node",
    "NodeError",
    "Rejected",
    "Run",
    "StateError",
    "Sweep",
    "SweepResult",
    "Variant",
    "WTBError",
    "Workflow",
    "current_context",
    "evaluator",
    "find_run",
    "start",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
