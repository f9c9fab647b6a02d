"""Workflow Test Bench: run a workflow under every combination of its nodes' variants.

from wtb import Workflow, Context, Sweep, END, evaluator
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wtb.context import Context
    from wtb.errors import FinalError, InputError, WTBError
    from wtb.evaluation import evaluator
    from wtb.nodes import Backoff, Node, Variant
    from wtb.sweep import Sweep, SweepResult
    from wtb.workflow import END, Workflow

__version__ = "0.1.0"

# Name -> module. Looked up when first used, so that `import wtb` costs nothing and `wtb --help` stays quick.
_HOME = {
    "Backoff": "wtb.nodes",
    "Context": "wtb.context",
    "END": "wtb.workflow",
    "FinalError": "wtb.errors",
    "InputError": "wtb.errors",
    "Node": "wtb.nodes",
    "Sweep": "wtb.sweep",
    "SweepResult": "wtb.sweep",
    "Variant": "wtb.nodes",
    "WTBError": "wtb.errors",
    "Workflow": "wtb.workflow",
    "evaluator": "wtb.evaluation",
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
