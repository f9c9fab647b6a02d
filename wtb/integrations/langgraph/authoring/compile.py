"""Graphs that can be run, from what users write: builders, compiled graphs, entrypoints, functions that make one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from wtb.authoring.code.resolve import made_by
from wtb.core.errors import InputError, WorkflowError
from wtb.integrations.langgraph.authoring.entrypoints import as_state_graph
from wtb.integrations.langgraph.authoring.nodes import Graph, entrypoint_of


def compiled(thing: Any, where: str, params: Mapping[str, Any] | None = None) -> Graph:
    """A graph that can be run. Raises InputError or WorkflowError for what is none.

    params: arguments for a function that makes one.
    """
    if params and not inspect.isroutine(thing):
        given = ", ".join(map(repr, params))
        raise InputError(
            f"{where}: a {type(thing).__name__} takes no parameters ({given}); name a function that makes one"
        )
    if isinstance(thing, CompiledStateGraph):
        return thing
    if isinstance(thing, StateGraph):
        try:
            return thing.compile()
        except ValueError as error:
            raise WorkflowError(f"{where}: LangGraph does not compile it: {error}") from error
    if entrypoint_of(thing) is not None:
        return as_state_graph(thing)
    if isinstance(thing, Pregel):
        raise WorkflowError(f"{where} is a graph of LangGraph that was put together by hand; expected a StateGraph")
    return compiled(made_by((lambda: thing(**params)) if params else thing, where), where)
