"""Workflow Test Bench: run a workflow under every combination of its nodes' variants.

from wtb import Workflow, Context, Sweep, END, evaluator
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wtb.core.version import __version__ as __version__

if TYPE_CHECKING:
    from wtb.authoring.context.node_context import Context
    from wtb.authoring.edges import END
    from wtb.authoring.evaluation.evaluators import evaluator
    from wtb.authoring.nodes import Backoff, Node, Variant
    from wtb.authoring.workflow import Workflow
    from wtb.core.errors import FinalError, InputError, WTBError
    from wtb.operations.sweep import Sweep, SweepResult

# Name -> module. Looked up when first used, so that `import wtb` costs nothing and `wtb --help` stays quick.
_HOME = {
    "Backoff": "wtb.authoring.nodes",
    "Context": "wtb.authoring.context.node_context",
    "END": "wtb.authoring.edges",
    "FinalError": "wtb.core.errors",
    "InputError": "wtb.core.errors",
    "Node": "wtb.authoring.nodes",
    "Sweep": "wtb.operations.sweep",
    "SweepResult": "wtb.operations.sweep",
    "Variant": "wtb.authoring.nodes",
    "WTBError": "wtb.core.errors",
    "Workflow": "wtb.authoring.workflow",
    "evaluator": "wtb.authoring.evaluation.evaluators",
}

__all__ = [
    "END",
    "Backoff",
    "Context",
    "FinalError",
    "InputError",
    "Node",
    "Sweep",
    "SweepResult",
    "Variant",
    "WTBError",
    "Workflow",
    "evaluator",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
