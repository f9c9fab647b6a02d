"""Graphs that can be run, from what users write: builders, compiled graphs, entrypoints, functions that make one."""

from __future__ import annotations

import inspect
from typing import Any

from langgraph.constants import END, START
from langgraph.func import entrypoint
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry

from wtb.authoring.code.resolve import made_by
from wtb.core.errors import InputError, WorkflowError
from wtb.core.mappings import Params
from wtb.integrations.langgraph.authoring.nodes import ROOT, Graph, entrypoint_of


def compile_graph(thing: Any, where: str, params: Params | None = None) -> Graph:
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
        return _as_state_graph(thing)
    if isinstance(thing, Pregel):
        raise WorkflowError(f"{where} is a graph of LangGraph that was put together by hand; expected a StateGraph")
    return compile_graph(made_by((lambda: thing(**params)) if params else thing, where), where)


def _as_state_graph(pregel: Graph) -> CompiledStateGraph[Any, Any, Any, Any]:
    """An entrypoint of the functional API as a graph of one node. The state is its input, then what it returns.

    pregel: by `@entrypoint`. Its checkpointer is not used, so `previous` is None, as in the first run of a thread.
    """
    ((name, node),) = pregel.nodes.items()
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(object, context_schema=pregel.context_schema)
    retries, cached = pregel.retry_policy or None, pregel.cache_policy
    builder.add_node(name, node.bound, retry_policy=retries, cache_policy=cached, timeout=node.timeout)
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    graph = builder.compile(name=pregel.name, store=pregel.store, cache=pregel.cache)
    graph.config, graph.step_timeout = pregel.config, pregel.step_timeout
    # What it returns is the state, also where that is None, which a node of a StateGraph does not write.
    write = ChannelWrite([ChannelWriteEntry(ROOT, mapper=_returned)])
    graph.nodes[name] = graph.nodes[name].copy({"writers": [write]})
    return graph


def _returned(value: Any) -> Any:
    return value.value if isinstance(value, entrypoint.final) else value
