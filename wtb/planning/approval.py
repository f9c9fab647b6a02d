"""The approval mode of a sweep: its own, else that of its workflow. Pure."""

from __future__ import annotations

from wtb.authoring.approval import approval_mode, no_such_node
from wtb.authoring.workflow import Workflow
from wtb.planning.sweep_spec import SweepSpec


def mode_of(spec: SweepSpec, workflow: Workflow) -> tuple[str, str | None]:
    """(mode, node) of what is to be asked: of the sweep, else of its workflow. node: of the mode `after` alone."""
    return _of_spec(spec) or approval_mode(workflow.approval)


def _of_spec(spec: SweepSpec) -> tuple[str, str | None] | None:
    wanted = spec.run.approval
    if wanted is None:
        return None
    return (wanted, None) if isinstance(wanted, str) else ("after", wanted.after)


def mode_problems(spec: SweepSpec, workflow: Workflow) -> list[str]:
    """What is wrong with the approval mode of a sweep, in words."""
    mode, node = _of_spec(spec) or ("manual", None)
    if mode != "after" or node in workflow.nodes:
        return []
    return [spec.located.problem(("run", "approval", "after"), no_such_node(workflow.name, workflow.nodes, node))]
