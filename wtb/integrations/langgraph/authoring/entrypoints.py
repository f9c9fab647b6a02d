"""LangGraph's functional API: an entrypoint is a graph of one node. The state is its input, then what it returns."""

from __future__ import annotations

from typing import Any

from langgraph.constants import END, START
from langgraph.func import entrypoint
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry

from wtb.integrations.langgraph.authoring.nodes import ROOT, Graph


def as_state_graph(made: Graph) -> CompiledStateGraph[Any, Any, Any, Any]:
    """made: by `@entrypoint`. Its checkpointer is not used, so `previous` is None, as in the first run of a thread."""
    ((name, node),) = made.nodes.items()
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(object, context_schema=made.context_schema)
    retries, cached = made.retry_policy or None, made.cache_policy
    builder.add_node(name, node.bound, retry_policy=retries, cache_policy=cached, timeout=node.timeout)
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    graph = builder.compile(name=made.name, store=made.store, cache=made.cache)
    graph.config, graph.step_timeout = made.config, made.step_timeout
    # What it returns is the state, also where that is None, which a node of a StateGraph does not write.
    write = ChannelWrite([ChannelWriteEntry(ROOT, mapper=_returned)])
    graph.nodes[name] = graph.nodes[name].copy({"writers": [write]})
    return graph


def _returned(value: Any) -> Any:
    return value.value if isinstance(value, entrypoint.final) else value
