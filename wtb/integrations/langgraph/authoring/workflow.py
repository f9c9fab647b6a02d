"""A LangGraph graph as a workflow of WTB: its nodes, those of graphs within it included, and how they lead on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph.constants import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel._read import PregelNode
from langgraph.pregel.main import _coerce_context

from wtb.authoring.edges import Branch
from wtb.authoring.graph import odd_names
from wtb.authoring.nodes import Node, Rules, Variant
from wtb.authoring.state_schema import Key, Schema, is_typed_dict
from wtb.authoring.workflow import DEFAULT, Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import InputError, WorkflowError
from wtb.core.mappings import Params
from wtb.integrations.langgraph.authoring.compile import compile_graph
from wtb.integrations.langgraph.authoring.edges import Arrows
from wtb.integrations.langgraph.authoring.nodes import ROOT, ChosenGraph, Graph, GraphNode, full_name
from wtb.integrations.langgraph.authoring.storability import unstorable
from wtb.integrations.langgraph.engine.messages import type_of

CHOICE = "graph"
"""The node that stands for the whole graph, where graphs are varied."""


class GraphWorkflow(Workflow):
    """A workflow whose nodes are those of a LangGraph graph.

    A node that is a graph itself is stepped through, and its nodes are `node.inner`; but where it is varied, or has
    retries, a cache, a deadline or an error handler, it runs as one node. Where whole graphs are varied, the node
    `graph` chooses between them, and the nodes of the graph that the variant `v` stands for are `v.node`.

    source: the object that the user wrote. factory: the function that makes the graph, where there is one. roots: the
    graphs by variant of `graph`.
    """

    engine = "wtb.integrations.langgraph.engine.graph_engine:GraphEngine"

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
        """Find the nodes and how they lead on, from the graphs and from what is varied."""
        kept, self.nodes = self.nodes, {}
        several = len(self.roots) > 1
        self.graphs = dict(self._found())
        arrows = Arrows(self.graphs, self.roots if several else [""])
        self.is_open = arrows.is_open
        self.schema = Schema(None, dict(self._keys()))
        if several:
            self.nodes[CHOICE] = kept[CHOICE]
        for name, graph in self.graphs.items():
            self._add_nodes(name, graph, kept)
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

    def _found(self) -> Iterator[tuple[str, Graph]]:
        """Every graph that is stepped through, by what its nodes' names begin with."""
        several = len(self.roots) > 1
        todo = [(variant if several else "", graph) for variant, graph in self.roots.items()]
        for name, graph in todo:  # grows
            yield name, graph
            for place, node in graph.nodes.items():
                full = full_name(name, place)
                if is_graph(node.bound) and full not in self.whole and not _has_rules(node):
                    todo.append((full, node.bound))  # type: ignore[arg-type]

    def _keys(self) -> Iterator[tuple[str, Key]]:
        """The keys of the state: those of the outermost graphs, and those of a graph within as `sub.key`."""
        for name, graph in reversed(self.graphs.items()):
            rest = name.partition(".")[2] if len(self.roots) > 1 else name
            shape = graph.builder.state_schema  # type: ignore[attr-defined]
            for key in (*_schema(graph, None).keys.values(), *_schema(graph, shape).keys.values()):
                full = full_name(rest, key.name)
                yield full, replace(key, name=full, required=key.required and name in ("", DEFAULT))

    def _add_nodes(self, name: str, graph: Graph, kept: Mapping[str, Node]) -> None:
        for place, node in graph.nodes.items():
            full = full_name(name, place)
            if place != START and not node.is_error_handler and full not in self.graphs:
                self.nodes[full] = kept[full] if full in kept else GraphNode(full, graph, place)

    def validate(self) -> None:
        if found := [*self.problems, *odd_names(super().facts()), *self._misfits()]:
            raise WorkflowError(*(f"workflow {self.name!r}: {problem}" for problem in dict.fromkeys(found)))

    def _misfits(self) -> list[str]:
        """What of its graphs cannot be stored or told apart, in words."""
        found = [problem for name, graph in self.graphs.items() for problem in unstorable(name, graph)]
        return [*found, *self._shared_names()]

    def _shared_names(self) -> Iterator[str]:
        """Nodes and keys that are named as those of a graph within are."""
        for name, graph in self.graphs.items():
            for what, names in (("node", graph.nodes), ("state key", graph.builder.channels)):  # type: ignore[attr-defined]
                for inner in self.inner:
                    start = inner.removeprefix(f"{name}.") if name else inner
                    for one in names:
                        if inner != name and one.startswith(f"{start}."):
                            yield f"{what} {one!r} is named as those of the graph {inner!r} are; expected another name"

    def param_problems(self, params: Params) -> list[str]:
        for graph in self.roots.values():  # a graph within takes what it can of it
            try:
                context_of(graph, params)
            except (TypeError, ValueError) as error:
                return [f"params: the graph's context does not take them: {error}"]
        return []


def context_of(graph: Graph, params: Params) -> Any:
    """What nodes find in `runtime.context`. Raises TypeError or ValueError where the params do not fit its schema."""
    return _coerce_context(graph.context_schema, dict(params)) if params else None


def is_graph(bound: Any) -> bool:
    """Whether a node is a graph that can be stepped through."""
    return isinstance(bound, CompiledStateGraph)


def _has_rules(node: PregelNode) -> bool:
    """Whether a node has rules of its own: a graph that has is one node, since they hold for all of it."""
    return bool(node.retry_policy or node.cache_policy or node.timeout or node.error_handler_node)


def _place(node: Node) -> str | None:
    return node.place if isinstance(node, GraphNode) else None


def _by_choice(state: Any) -> str:
    raise NotImplementedError("which graph runs is chosen by the combination")


def _schema(graph: Graph, shape: Any) -> Schema:
    """The keys of a graph's state or input. A model or dataclass has to be given its required ones."""
    builder: Any = graph.builder  # type: ignore[attr-defined]
    try:
        needed = set() if is_typed_dict(shape) else {k.name for k in Schema.of(shape).keys.values() if k.required}
    except InputError:  # a single value is the state
        needed = set()
    keys = builder.schemas.get(shape, builder.channels)
    managed = builder.managed
    types = {name: type_of(channel) for name, channel in builder.channels.items()}
    return Schema(None, {n: Key(n, types.get(n, Any), None, n in needed) for n in keys if n not in managed})
