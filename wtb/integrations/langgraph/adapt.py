"""Workflows made of LangGraph graphs, and variants that are declared beside a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wtb.core.errors import did_you_mean
from wtb.core.frozen import frozen
from wtb.core.values import Params
from wtb.integrations.langgraph.nodes import GraphVariant
from wtb.integrations.langgraph.workflow import GraphWorkflow, compile_graph


@frozen
class _Added:
    node: str
    name: str
    fn: Any
    params: Params
    description: str


@dataclass
class Variants:
    """A LangGraph graph with variants of its nodes beside it. `variants` makes it; a sweep's `workflow` may name it.

    Attributes:
        graph: The graph, unchanged.
        added: The variants, in the order in which they were added.

    Example:
        >>> from langgraph.graph import END, START, StateGraph
        >>> from wtb.integrations.langgraph import variants
        >>> builder = StateGraph(dict)
        >>> _ = builder.add_node("answer", lambda state: {"text": "yes"})
        >>> _ = builder.add_edge(START, "answer")
        >>> candidates = variants(builder).add("answer", "no", lambda state: {"text": "no"})
        >>> len(candidates.added)
        1
    """

    graph: Any
    added: list[_Added] = field(default_factory=list)

    def add(
        self, node: str, name: str, fn: Callable[..., Any] | None = None, /, *, description: str = "", **params: Any
    ) -> Variants:
        """Add a variant of a node.

        Args:
            node: The node's name; `sub.node` in a graph that is a node itself; `graph` for the whole graph.
            name: The variant's name.
            fn: What LangGraph takes as a node; without it, the node's own function with other parameters.
            description: One line for people.
            **params: Given to the function by keyword.

        Returns:
            The same object.
        """
        self.added.append(_Added(node, name, fn, params, description))
        return self


def variants(graph: Any) -> Variants:
    """Start to put variants of a graph's nodes beside it: `variants(builder).add("retrieve", "bm25", bm25)`.

    Args:
        graph: A StateGraph, a compiled graph, or a function that makes one; it is not changed.

    Returns:
        The graph without variants yet; `add` adds them.

    Example:
        >>> from langgraph.graph import END, START, StateGraph
        >>> from wtb.integrations.langgraph import variants
        >>> from wtb.testing import run_cell
        >>> from typing import TypedDict
        >>> class State(TypedDict, total=False):
        ...     text: str
        >>> builder = StateGraph(State)
        >>> _ = builder.add_node("answer", lambda state: {"text": "yes"})
        >>> _ = builder.add_edge(START, "answer")
        >>> candidates = variants(builder).add("answer", "negative", lambda state: {"text": "no"})
        >>> run_cell(candidates, {}, answer="negative").state
        {'text': 'no'}
    """
    return Variants(graph)


def adapt(graph_or_variants: Any, name: str, source: Any) -> GraphWorkflow:
    """Make the workflow of a graph, or of variants of one. Raises InputError, WorkflowError.

    source: The user's object: the same, or a function that made it.
    """
    added = graph_or_variants.added if isinstance(graph_or_variants, Variants) else []
    graph = compile_graph(
        graph_or_variants.graph if isinstance(graph_or_variants, Variants) else graph_or_variants, f"{name!r}"
    )
    maker = graph_or_variants.graph if isinstance(graph_or_variants, Variants) else source
    factory = maker if inspect.isroutine(maker) else None
    # LangGraph gives this name to graphs that are compiled without one.
    workflow = GraphWorkflow(name if graph.name == "LangGraph" else graph.name, graph, source, factory)
    for addition in added:
        workflow.problems += _add(workflow, addition)
    return workflow


def _add(workflow: GraphWorkflow, added: _Added) -> list[str]:
    node = workflow.varied(added.node)
    if node is None:
        near = did_you_mean(added.node, workflow.nodes)
        return [f"variant {added.name!r} is for node {added.node!r}, which is not there{near}"]
    if added.name in node.variants:
        return [f"node {added.node!r} has two variants named {added.name!r}"]
    own = node.variants[node.default]
    fn = own.fn if added.fn is None else added.fn
    return workflow.add_variant(
        GraphVariant(added.node, added.name, fn, added.params, added.description or own.description)
    )
