"""The workflow that a registered name or an import path stands for, whatever the user has written there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from wtb.authoring.code.import_paths import exits_as_errors, load, own_frames, workflow_path
from wtb.authoring.workflow import Workflow
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError, WorkflowError
from wtb.core.failures import check_interrupt

ADAPTERS = "wtb.workflow_adapters"  # entry points: (graph, its name, what the user gave) -> Workflow
EXPECTED = "a wtb.Workflow, a LangGraph StateGraph or compiled graph, or a function without arguments that makes one"


def workflow_at(name: str, problem: Callable[[str], str] = str) -> Workflow:
    """The workflow of this name or import path. problem: puts what is wrong into words. Raises InputError."""
    try:
        path = workflow_path(name)
        return as_workflow(load(path), path)  # by its path, as node processes know it
    except WorkflowError:
        raise
    except InputError as error:
        raise InputError(*(problem(text) for text in error.problems)) from error


def as_workflow(found: Any, name: str) -> Workflow:
    """A workflow, a graph, or what a function makes of these, as a workflow. Raises InputError."""
    given = found
    if not isinstance(found, Workflow) and not is_graph(found):
        found = made_by(found, f"{name!r}")
    if isinstance(found, Workflow):
        return found
    for adapter in entry_points(group=ADAPTERS, name="langgraph"):  # several where WTB is installed more than once
        adapted: Workflow = adapter.load()(found, name, given)
        return adapted
    raise InputError(
        f"{name!r} is a LangGraph graph, and this WTB has no adapter for it, as where it runs without being installed: "
        f"{pip_install('langgraph')}"
    )


def is_graph(found: Any) -> bool:
    """Return whether something is a graph of LangGraph, or variants beside one; without importing LangGraph."""
    return any(
        kind.__module__.startswith(("langgraph.", "wtb.integrations.langgraph.")) for kind in type(found).__mro__
    )


def made_by(factory: Any, where: str) -> Any:
    """What a factory makes. Raises InputError where it is none, fails, or makes something else."""
    if not inspect.isroutine(factory):
        raise InputError(f"{where} is of type {type(factory).__name__}; expected {EXPECTED}")
    parameters = inspect.signature(factory).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed or inspect.iscoroutinefunction(factory):
        what = f"takes {', '.join(needed)}" if needed else "is async"
        raise InputError(f"{where} {what}; expected {EXPECTED}")
    try:
        with exits_as_errors():
            workflow = factory()
    except BaseException as error:
        check_interrupt(error)
        raise InputError(f"{where} cannot be called: {own_frames(error)}") from error
    if not isinstance(workflow, Workflow) and not is_graph(workflow):
        raise InputError(f"{where} made {type(workflow).__name__}; expected {EXPECTED}")
    return workflow
