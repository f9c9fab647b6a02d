"""A LangGraph graph as a workflow of WTB: its nodes, those of graphs within it included, and how they lead on."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.constants import END, START
from langgraph.func import entrypoint
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._read import PregelNode
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.pregel.main import _coerce_context

from wtb.authoring.code.import_paths import made_by
from wtb.authoring.graph import odd_names
from wtb.authoring.nodes import Node, Rules, Variant
from wtb.authoring.state_schema import Key, Schema, is_typed_dict, unqualified
from wtb.authoring.workflow import DEFAULT, Workflow
from wtb.authoring.workflow_facts import Branch, WorkflowFacts
from wtb.core.errors import InputError, WorkflowError
from wtb.core.serialization.type_tags import TAG_OF
from wtb.core.values import Params
from wtb.integrations.langgraph.messages import type_of
from wtb.integrations.langgraph.nodes import ROOT, Arrows, ChosenGraph, Graph, GraphNode, entrypoint_of, full_name


def compile_graph(source: Any, where: str, params: Params | None = None) -> Graph:
    """Compile or make a graph that can be run. Raises InputError or WorkflowError if that is impossible.

    params: The arguments of a function that makes one.
    """
    if params and not inspect.isroutine(source):
        names = ", ".join(map(repr, params))
        raise InputError(
            f"{where}: a {type(source).__name__} takes no parameters ({names}); name a function that makes one"
        )
    if isinstance(source, CompiledStateGraph):
        return source
    if isinstance(source, StateGraph):
        try:
            return source.compile()
        except ValueError as error:
            raise WorkflowError(f"{where}: LangGraph does not compile it: {error}") from error
    if entrypoint_of(source) is not None:
        return _as_state_graph(source)
    if isinstance(source, Pregel):
        raise WorkflowError(f"{where} is a LangGraph graph that was not built from a StateGraph; expected a StateGraph")
    return compile_graph(made_by((lambda: source(**params)) if params else source, where), where)


def _as_state_graph(pregel: Graph) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Make a graph of one node of an entrypoint of the functional API. The state is its input, then its output.

    pregel: Made by `@entrypoint`. Its checkpointer is not used, so `previous` is None, as in the first run of a thread.
    """
    ((name, node),) = pregel.nodes.items()
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(object, context_schema=pregel.context_schema)
    retries, cached = pregel.retry_policy or None, pregel.cache_policy
    builder.add_node(name, node.bound, retry_policy=retries, cache_policy=cached, timeout=node.timeout)
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    graph = builder.compile(name=pregel.name, store=pregel.store, cache=pregel.cache)
    graph.config, graph.step_timeout = pregel.config, pregel.step_timeout
    # Its return value is the state, also if that is None, which a node of a StateGraph does not write.
    write = ChannelWrite([ChannelWriteEntry(ROOT, mapper=_returned)])
    graph.nodes[name] = graph.nodes[name].copy({"writers": [write]})
    return graph


def _returned(output: Any) -> Any:
    return output.value if isinstance(output, entrypoint.final) else output


_PLAIN: set[Any] = {dict, list, str, int, float, bool, type(None), object, Any, types.UnionType}
_SHAPES = {  # abstract types whose usual values can be stored
    collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Mapping,
    collections.abc.MutableMapping, collections.abc.Set, collections.abc.MutableSet,
    collections.abc.Collection, collections.abc.Iterable, collections.abc.Hashable,
}  # fmt: skip


def unstorable(name: str, graph: Graph) -> Iterator[str]:
    """Yield a problem for each state key whose type WTB cannot store. name: That of a graph within another."""
    where = f"graph {name!r}: " if name else ""
    for key, channel in graph.builder.channels.items():  # type: ignore[attr-defined]
        if any(sign in key for sign in "|~"):
            yield f"{where}state key {key!r}: expected a name without '|' and '~'"
        if isinstance(channel, UntrackedValue):  # kept where it can be
            continue
        if (kind := _unstorable_class(getattr(channel, "typ", Any), set())) is not None:
            yield (
                f"{where}state key {key!r} holds {kind.__module__}.{kind.__qualname__}, which cannot be stored: keep "
                f"plain data in the state (or a dataclass or pydantic model), and make the object in the node"
            )


def _unstorable_class(kind: Any, seen: set[int]) -> Any:
    """Return a class in a type that certainly cannot be stored; None if there is none."""
    if id(kind) in seen:
        return None
    seen.add(id(kind))
    kind, _, _ = unqualified(kind)
    origin = typing.get_origin(kind)
    if origin is collections.abc.Callable:
        return collections.abc.Callable
    if origin is typing.Literal:
        return None
    if origin is not None:
        inside = _first_unstorable(typing.get_args(kind), seen)
        return inside or (_unstorable_class(origin, seen) if isinstance(origin, type) else None)
    if not isinstance(kind, type) or kind in _PLAIN or kind in TAG_OF or kind in _SHAPES:
        return None
    if is_typed_dict(kind) or dataclasses.is_dataclass(kind):
        return _first_unstorable(_fields(kind), seen)
    if issubclass(kind, enum.Enum) or hasattr(kind, "model_fields") or kind.__module__.partition(".")[0] == "numpy":
        return None
    # Others may have subclasses that can be stored: a protocol, an abstract class, the base of pydantic models.
    is_open = getattr(kind, "_is_protocol", False) or bool(getattr(kind, "__abstractmethods__", ()))
    return None if is_open or kind.__module__ in ("datetime", "zoneinfo", "pathlib") else kind


def _first_unstorable(kinds: Iterable[Any], seen: set[int]) -> Any:
    return next((found_class for kind in kinds if (found_class := _unstorable_class(kind, seen)) is not None), None)


def _fields(shape: type) -> list[Any]:
    """Return the types of the fields of a TypedDict or dataclass; none if a name in them cannot be resolved."""
    try:
        return list(typing.get_type_hints(shape).values())
    except (NameError, TypeError):
        return []


CHOICE = "graph"
"""The node that stands for the whole graph, where graphs are varied."""


class GraphWorkflow(Workflow):
    """A workflow whose nodes are those of a LangGraph graph.

    A node that is a graph itself is stepped through, and its nodes are `node.inner`; but where it is varied, or has
    retries, a cache, a deadline or an error handler, it runs as one node. Where whole graphs are varied, the node
    `graph` chooses between them, and the nodes of the graph that the variant `v` stands for are `v.node`.

    Attributes:
        source: The object that the user wrote.
        factory: The function that makes the graph, if there is one.
        roots: The graphs by variant of `graph`.
    """

    engine = "wtb.integrations.langgraph.graph_engine:GraphEngine"

    def __init__(self, name: str, graph: Graph, source: Any, factory: Callable[..., Any] | None = None) -> None:
        super().__init__(name)
        self.source, self.factory = source, factory
        self.roots: dict[str, Graph] = {DEFAULT: graph}
        self.whole: set[str] = set()
        self.max_steps = (graph.config or {}).get("recursion_limit", DEFAULT_RECURSION_LIMIT)
        builder: Any = graph.builder  # type: ignore[attr-defined]
        self.input = _schema(graph, builder.input_schema)
        self.state_key = ROOT if set(self.input.keys) == {ROOT} else None
        self.settle()

    def copy(self) -> GraphWorkflow:
        twin = super().copy()
        assert isinstance(twin, GraphWorkflow)
        twin.roots, twin.whole = dict(self.roots), set(self.whole)
        return twin

    def varied(self, node: str) -> Node | None:
        if node not in self.nodes and node in self.inner:
            self.whole.add(node)
            self.settle()
        elif node not in self.nodes and node == CHOICE:
            self.nodes[CHOICE] = self._choice()
        return self.nodes.get(node)

    def in_order(self, names: Iterable[str]) -> list[str]:
        by_itself = CHOICE in self.roots[DEFAULT].nodes

        def depth(name: str) -> int:  # a graph before its nodes
            return -1 if name == CHOICE and not by_itself else name.count(".")

        return sorted(names, key=depth)

    def add_variant(self, variant: Variant) -> list[str]:
        node = self.nodes[variant.node]
        if isinstance(node, GraphNode):
            if wrong := variant.problems() or node.misfits(variant):
                return wrong
        elif wrong := self._add_graph(variant):
            return wrong
        node.variants[variant.name] = variant
        return []

    def _add_graph(self, variant: Variant) -> list[str]:
        where = f"node {CHOICE!r}, variant {variant.name!r}"
        if "." in variant.name:
            return [f"{where}: expected a name without '.', since the nodes of its graph are NAME.NODE"]
        if variant.name != DEFAULT or variant.params:
            try:
                graph = compile_graph(variant.fn, where, variant.params)
            except InputError as error:
                return list(error.problems)
            self.roots[variant.name] = graph
            self.settle()
            return [f"{where}: {problem}" for problem in self._misfits()]
        return []

    def settle(self) -> None:
        """Collect the nodes and edges from the graphs and the varied nodes."""
        previous, self.nodes = self.nodes, {}
        several = len(self.roots) > 1
        self.graphs = dict(self._iterate_graphs())
        arrows = Arrows(self.graphs, self.roots if several else [""])
        self.is_open = arrows.is_open
        self.schema = Schema(None, dict(self._keys()))
        if several:
            self.nodes[CHOICE] = previous[CHOICE]
        for name, graph in self.graphs.items():
            self._add_nodes(name, graph, previous)
        self.edges, self.branches = list(arrows.edges()), list(arrows.branches())
        self.sent_to = arrows.sent_to(self.nodes)
        for variant in self.roots:
            heads = [head for head in arrows.heads(variant if several else "") if head != END]
            self.entries = [CHOICE] if several else heads
            self.branches += [Branch(CHOICE, {variant: head}, _by_choice) for head in heads if several]
        self.breakpoints = tuple(dict.fromkeys(arrows.interrupts()))

    @property
    def inner(self) -> dict[str, Graph]:
        """The graphs that are nodes of graphs and are stepped through, by the node's name."""
        outermost = {""} if len(self.roots) == 1 else self.roots.keys()
        return {name: graph for name, graph in self.graphs.items() if name not in outermost}

    def facts(self) -> WorkflowFacts:
        of_outermost = [name for name, node in self.nodes.items() if len(self.roots) == 1 and name == _place(node)]
        return replace(
            super().facts(),
            source=self.source,
            starts=tuple(of_outermost),
            is_input_closed=True,
            state_key=self.state_key,
            composites=dict(self._composites()),
            sent_to=self.sent_to,
            is_limited=not self.inner and all("recursion_limit" in (g.config or {}) for g in self.graphs.values()),
            is_open=self.is_open,
            inner_graphs=tuple(name.partition(".")[2] if len(self.roots) > 1 else name for name in self.inner),
        )

    def _composites(self) -> Iterator[tuple[str, Node]]:
        """Yield what becomes one node if a sweep varies it: the graphs within, and the choice of the whole graph."""
        inner = self.inner
        for name, graph in self.graphs.items():
            for place in graph.nodes if inner else ():
                if (full := full_name(name, place)) in inner:
                    yield full, GraphNode(full, graph, place)
        if CHOICE not in self.nodes:
            yield CHOICE, self._choice()

    def _choice(self) -> Node:
        own: Any = self.factory or self.roots[DEFAULT]
        return Node(CHOICE, Rules(), ChosenGraph(CHOICE, DEFAULT, own))

    def _iterate_graphs(self) -> Iterator[tuple[str, Graph]]:
        """Yield every graph that is stepped through, with the prefix of its nodes' names."""
        several = len(self.roots) > 1
        todo = [(variant if several else "", graph) for variant, graph in self.roots.items()]
        for name, graph in todo:  # grows
            yield name, graph
            for place, node in graph.nodes.items():
                full = full_name(name, place)
                if is_graph(node.bound) and full not in self.whole and not _has_rules(node):
                    todo.append((full, node.bound))  # type: ignore[arg-type]

    def _keys(self) -> Iterator[tuple[str, Key]]:
        """Yield the keys of the state: those of the outermost graphs, and those of a graph within as `sub.key`."""
        # Reversed, because a later key replaces an earlier one: of a key of several graphs, that of the default counts.
        for name, graph in reversed(self.graphs.items()):
            rest = name.partition(".")[2] if len(self.roots) > 1 else name
            shape = graph.builder.state_schema  # type: ignore[attr-defined]
            for key in (*_schema(graph, None).keys.values(), *_schema(graph, shape).keys.values()):
                full = full_name(rest, key.name)
                yield full, replace(key, name=full, required=key.required and name in ("", DEFAULT))

    def _add_nodes(self, name: str, graph: Graph, previous: Mapping[str, Node]) -> None:
        for place, node in graph.nodes.items():
            full = full_name(name, place)
            if place != START and not node.is_error_handler and full not in self.graphs:
                # A node that stays keeps its object, with the variants that were added to it.
                self.nodes[full] = previous[full] if full in previous else GraphNode(full, graph, place)

    def validate(self) -> None:
        if problems := [*self.problems, *odd_names(super().facts()), *self._misfits()]:
            raise WorkflowError(*(f"workflow {self.name!r}: {problem}" for problem in dict.fromkeys(problems)))

    def _misfits(self) -> list[str]:
        """Return problems of its graphs: keys that cannot be stored, and ambiguous names."""
        problems = [problem for name, graph in self.graphs.items() for problem in unstorable(name, graph)]
        return [*problems, *self._shared_names()]

    def _shared_names(self) -> Iterator[str]:
        """Yield a problem for each node and key whose name could be one of a graph within."""
        for name, graph in self.graphs.items():
            for what, names in (("node", graph.nodes), ("state key", graph.builder.channels)):  # type: ignore[attr-defined]
                for inner in self.inner:
                    start = inner.removeprefix(f"{name}.") if name else inner
                    for own in names:
                        if inner != name and own.startswith(f"{start}."):
                            yield f"{what} {own!r} is named as those of the graph {inner!r} are; expected another name"

    def param_problems(self, params: Params) -> list[str]:
        for graph in self.roots.values():  # a graph within takes what it can of it
            try:
                context_of(graph, params)
            except (TypeError, ValueError) as error:
                return [f"params: the graph's context does not take them: {error}"]
        return []


def context_of(graph: Graph, params: Params) -> Any:
    """Make `runtime.context` for nodes. Raises TypeError or ValueError if the params do not fit its schema."""
    return _coerce_context(graph.context_schema, dict(params)) if params else None


def is_graph(bound: Any) -> bool:
    """Return whether a node is a graph that can be stepped through."""
    return isinstance(bound, CompiledStateGraph)


def _has_rules(node: PregelNode) -> bool:
    """Return whether a node has rules of its own. A graph with rules is one node, since they hold for all of it."""
    return bool(node.retry_policy or node.cache_policy or node.timeout or node.error_handler_node)


def _place(node: Node) -> str | None:
    return node.place if isinstance(node, GraphNode) else None


def _by_choice(state: Any) -> str:
    raise NotImplementedError("the combination selects the graph that runs")


def _schema(graph: Graph, shape: Any) -> Schema:
    """Return the keys of a graph's state or input. Only models and dataclasses have required keys."""
    builder: Any = graph.builder  # type: ignore[attr-defined]
    try:
        needed = set() if is_typed_dict(shape) else {k.name for k in Schema.of(shape).keys.values() if k.required}
    except InputError:  # a single value is the state
        needed = set()
    keys = builder.schemas.get(shape, builder.channels)
    managed = builder.managed
    types = {name: type_of(channel) for name, channel in builder.channels.items()}
    return Schema(None, {n: Key(n, types.get(n, Any), None, n in needed) for n in keys if n not in managed})
