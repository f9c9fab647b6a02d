"""Workflow Test Bench: run a workflow under every combination of its nodes' variants.

Public are the names in `__all__` here and in `wtb.history`, `wtb.testing`, `wtb.integrations.models`,
`wtb.integrations.langgraph` and `wtb.integrations.pytest_plugin`. Everything else may change from release to release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wtb.core.version import __version__ as __version__

if TYPE_CHECKING:
    from wtb.authoring.context.node_context import Context, current_context
    from wtb.authoring.evaluation.evaluators import evaluator
    from wtb.authoring.nodes import Backoff, Node, Variant
    from wtb.authoring.workflow import Workflow
    from wtb.authoring.workflow_facts import END
    from wtb.core.errors import FinalError, InputError, NodeError, Rejected, StateError, ToolDenied, WTBError
    from wtb.core.scoring.scores import Score
    from wtb.handles.bench import Bench, submit
    from wtb.handles.bench import open as open
    from wtb.handles.execution import ExecutionHandle
    from wtb.handles.local_sweep import Sweep
    from wtb.handles.records import ExecutionRecord, Progress, QuestionRecord, RunRecord, SweepRecord
    from wtb.handles.start import start
    from wtb.handles.sweep import SweepHandle
    from wtb.handles.target import QuestionHandle

# Name -> module. Looked up when first used, so that `import wtb` costs nothing and `wtb --help` stays quick.
_HOME = {
    "Backoff": "wtb.authoring.nodes",
    "Bench": "wtb.handles.bench",
    "Context": "wtb.authoring.context.node_context",
    "END": "wtb.authoring.workflow_facts",
    "ExecutionHandle": "wtb.handles.execution",
    "ExecutionRecord": "wtb.handles.records",
    "FinalError": "wtb.core.errors",
    "InputError": "wtb.core.errors",
    "Node": "wtb.authoring.nodes",
    "NodeError": "wtb.core.errors",
    "Progress": "wtb.handles.records",
    "QuestionHandle": "wtb.handles.target",
    "QuestionRecord": "wtb.handles.records",
    "Rejected": "wtb.core.errors",
    "RunRecord": "wtb.handles.records",
    "Score": "wtb.core.scoring.scores",
    "StateError": "wtb.core.errors",
    "Sweep": "wtb.handles.local_sweep",
    "SweepHandle": "wtb.handles.sweep",
    "SweepRecord": "wtb.handles.records",
    "ToolDenied": "wtb.core.errors",
    "Variant": "wtb.authoring.nodes",
    "WTBError": "wtb.core.errors",
    "Workflow": "wtb.authoring.workflow",
    "current_context": "wtb.authoring.context.node_context",
    "evaluator": "wtb.authoring.evaluation.evaluators",
    "open": "wtb.handles.bench",
    "start": "wtb.handles.start",
    "submit": "wtb.handles.bench",
}

# Not `open`: `from wtb import *` would put it in place of Python's own.
__all__ = [
    "END",
    "Backoff",
    "Bench",
    "Context",
    "ExecutionHandle",
    "ExecutionRecord",
    "FinalError",
    "InputError",
    "Node",
    "NodeError",
    "Progress",
    "QuestionHandle",
    "QuestionRecord",
    "Rejected",
    "RunRecord",
    "Score",
    "StateError",
    "Sweep",
    "SweepHandle",
    "SweepRecord",
    "ToolDenied",
    "Variant",
    "WTBError",
    "Workflow",
    "current_context",
    "evaluator",
    "start",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wtb' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    if name == "Workflow":
        found.picture = staticmethod(_picture)
    globals()[name] = found
    return found


def _picture(workflow: Workflow) -> str:
    """Draw a workflow for a notebook. What draws it is imported then."""
    from wtb.authoring.graph import graph_snapshot, variant_parameters
    from wtb.display.notebook import graph

    facts = workflow.facts()
    return graph(graph_snapshot(facts), variant_parameters(facts))


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
