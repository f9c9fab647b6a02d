"""The approval modes of a sweep: its own, else those of its workflow. Pure."""

from __future__ import annotations

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.run_options import After
from wtb.core.arguments.approval import Mode, modes_of, no_such_node
from wtb.planning.sweep_spec import SweepSpec


def effective_modes(spec: SweepSpec, workflow: WorkflowFacts) -> tuple[Mode, ...]:
    """Return the modes that apply: those of the sweep, else those of its workflow."""
    return _of_spec(spec) or modes_of(workflow.approval)


def _of_spec(spec: SweepSpec) -> tuple[Mode, ...]:
    """Return the modes that a sweep sets itself, as files write them; empty if it sets none."""
    approval = spec.run.approval
    if approval is None:
        return ()
    several = approval if isinstance(approval, tuple) else (approval,)
    return tuple({"after": mode.after} if isinstance(mode, After) else mode for mode in several)


def mode_problems(spec: SweepSpec, workflow: WorkflowFacts) -> list[str]:
    """Return what is wrong with the approval modes of a sweep, in words."""
    problems = []
    is_list = isinstance(spec.run.approval, tuple)
    for place, mode in enumerate(_of_spec(spec)):
        if not isinstance(mode, str) and mode["after"] not in workflow.nodes:
            at = ("run", "approval", *((place,) if is_list else ()), "after")
            problems.append(spec.located.problem(at, no_such_node(workflow.name, workflow.nodes, mode["after"])))
    return problems
