"""Nodes of LangGraph graphs as WTB's nodes, what stands in for them, and the edges between them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

from langchain_core.runnables import Runnable
from langgraph._internal._runnable import RunnableCallable
from langgraph.constants import END, START
from langgraph.pregel import Pregel
from langgraph.pregel._read import PregelNode
from langgraph.pregel._retry import _should_retry_on

from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.nodes import Backoff, Node, Rules, Variant
from wtb.authoring.state_schema import is_typed_dict
from wtb.authoring.workflow import DEFAULT
from wtb.authoring.workflow_facts import Branch, Edge
from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen

Graph = Pregel[Any, Any, Any, Any]
INJECTED_PARAMETERS = ("config", "writer", "store", "previous", "runtime", "error")
"""The arguments that LangGraph passes to a node by name, which are no parameters of a variant."""


ROOT = "__root__"
"""The key of a state that is a single value, such as a list."""


def full_name(name: str, place: str) -> str:
    """Return the name of a node. name: That of its graph; empty for the outermost one."""
    return f"{name}.{place}" if name else place


class GraphVariant(Variant):
    """A way to do a node of a LangGraph graph: a function of the state as LangGraph calls it, a runnable or a graph."""

    @property
    def parameters(self) -> tuple[Mapping[str, inspect.Parameter], bool]:
        fn: Any = self.fn
        if isinstance(fn, Runnable):
            raise InputError(f"a {type(fn).__name__} takes no parameters: only functions have them")
        try:
            every = list(inspect.signature(fn).parameters.values())[1:]
        except (TypeError, ValueError):  # a builtin, and what is no function
            return {}, False
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        accepted = {p.name: p for p in every if p.kind in by_name and p.name not in INJECTED_PARAMETERS}
        return accepted, any(p.kind is p.VAR_KEYWORD for p in every)

    def problems(self) -> list[str]:
        where = f"node {self.node!r}, variant {self.name!r}"
        fn: Any = self.fn
        if isinstance(fn, Runnable):
            return [f"{where}: a {type(fn).__name__} takes no parameters"] if self.params else []
        if not callable(fn):
            return [f"{where}: found {type(fn).__name__}; expected a function, a runnable or a compiled graph"]
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # a builtin: LangGraph takes it as it is
            return []
        if not parameters:
            return [f"{where}: takes no state; expected (state), with parameters by keyword"]
        problems_found = []
        accepted, takes_any = self.parameters
        for name in self.params:
            if name in INJECTED_PARAMETERS or (name not in accepted and not takes_any):
                takes = ", ".join(accepted) or "none"
                problems_found.append(
                    f"{where}: takes no parameter {name!r}{did_you_mean(name, accepted)} (it takes: {takes})"
                )
        for name, parameter in accepted.items():
            if parameter.default is parameter.empty and name not in self.params:
                problems_found.append(f"{where}: parameter {name!r} has neither a default nor a value")
        return problems_found


class ChosenGraph(GraphVariant):
    """A way to make the whole graph: a compiled one, or a factory, all of whose arguments are parameters."""

    @property
    def parameters(self) -> tuple[Mapping[str, inspect.Parameter], bool]:
        fn: Any = self.fn
        if not inspect.isroutine(fn):
            raise InputError("a compiled graph has no parameters; expected a function that makes the graph")
        every = inspect.signature(fn).parameters.values()
        accepted = {p.name: p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        return accepted, any(p.kind is p.VAR_KEYWORD for p in every)


class GraphNode(Node):
    """A node of a LangGraph graph.

    Attributes:
        own: The node as LangGraph has compiled it.
        graph: The graph around it.
        place: Its name in that graph.
    """

    variant_type = GraphVariant

    def __init__(self, name: str, graph: Graph, place: str) -> None:
        self.graph, self.place = graph, place
        self._codes: dict[str, str] = {}
        self.own: PregelNode = graph.nodes[place]
        self.own_fn = fn = function_of(self.own.bound)
        text = (inspect.getdoc(fn) or "").partition("\n")[0] if inspect.isroutine(fn) else ""
        super().__init__(name, rules_of(graph, self.own), GraphVariant(name, DEFAULT, fn, {}, text))

    def compile(self, variant: Variant) -> PregelNode:
        """Compile what LangGraph runs for a variant. Raises ValueError or TypeError if it takes no such node."""
        # WTB makes the attempts and looks into the cache itself. Only for a node with an error handler LangGraph makes
        # the attempts, because the handler runs after the last one.
        policies = {} if self.own.error_handler_node else {"retry_policy": None}
        if variant.fn is self.own_fn and not variant.params:
            return self.own.copy({**policies, "cache_policy": None})
        fn = partial(variant.fn, **variant.params) if variant.params else variant.fn
        compiled = _compile_node(self.graph, self.place, fn)
        # Nothing else, so that triggers and writers stay those of the graph.
        only = {name: getattr(compiled, name) for name in ("bound", "channels", "mapper", "subgraphs")}
        return self.own.copy({**policies, "cache_policy": None, **only})

    def copy(self) -> Self:
        twin = super().copy()
        twin._codes = {}
        return twin

    def code(self, variant: Variant) -> Any:
        """Return all code of an attempt: the function, the error handler, and the functions of conditional edges."""
        builder: Any = self.graph.builder  # type: ignore[attr-defined]
        handler = self.own.error_handler_node
        handlers = [builder.nodes[handler].runnable] if handler else []
        paths = [
            [branch.path, sorted((branch.ends or {}).items(), key=str)]
            for branch in builder.branches.get(self.place, {}).values()
        ]
        return [variant.fn, *handlers, *paths]

    def fingerprint(self, variant: str) -> str:
        """Return the fingerprint of a variant's code at the first call, because its runs may change globals."""
        if variant not in self._codes:
            self._codes[variant] = fingerprint(self.code(self.variants[variant]))
        return self._codes[variant]

    def misfits(self, variant: Variant) -> list[str]:
        """Return the reasons why a variant cannot replace the node's own function."""
        where = f"node {self.name!r}, variant {variant.name!r}"
        state_keys = set(self.graph.channels)
        variant_keys = () if ROOT in state_keys else _state_keys(variant.fn)
        if missing := [key for key in variant_keys if key not in state_keys]:
            has = ", ".join(self.graph.builder.channels)  # type: ignore[attr-defined]
            return [f"{where}: its state has {missing[0]!r}, which the graph's state does not have (it has: {has})"]
        try:
            self.compile(variant)
        except (TypeError, ValueError, KeyError, NameError) as error:
            return [f"{where}: LangGraph does not take it as a node: {error}"]
        return []

    def variant_problems(self, names: Sequence[str]) -> list[str]:
        stop_reasons = [(name, stops_within(self.variants[name].fn)) for name in names if name in self.variants]
        return [f"node {self.name!r}, variant {name!r}: {stops}" for name, stops in stop_reasons if stops is not None]

    def is_final(self, error: BaseException, failed: int) -> bool:
        """Return whether the retry policies forbid another attempt. `failed` counts attempts before this failure."""
        policies = self.own.retry_policy or ()
        if not isinstance(error, Exception):
            return True
        matching = next((policy for policy in policies if _should_retry_on(policy, error)), None)
        return matching is None or failed + 1 >= matching.max_attempts


def entrypoint_of(candidate: Any) -> PregelNode | None:
    """Return the only node of a graph of LangGraph's functional API; None for anything else."""
    if isinstance(candidate, Pregel) and not hasattr(candidate, "builder") and len(candidate.nodes) == 1:
        (node,) = candidate.nodes.values()
        return node if node.triggers == [START] else None
    return None


def stops_within(bound: Any) -> str | None:
    """Return why a graph cannot run as one node: it, or a graph in it, was compiled with interrupts; else None."""
    if not isinstance(bound, Pregel):
        return None
    if bound.interrupt_before_nodes or bound.interrupt_after_nodes:
        return (
            "a graph that was compiled with interrupt_before or interrupt_after runs as one node here, which cannot be "
            "stopped in the middle: compile it without and let its nodes call interrupt(), or vary its nodes one by one"
        )
    return next((reason for node in bound.nodes.values() if (reason := stops_within(node.bound))), None)


def function_of(bound: Any) -> Callable[..., Any]:
    """Return the user's function in a runnable, or the runnable itself if it wraps none."""
    if type(bound) is RunnableCallable:
        function = bound.func or bound.afunc
        if function is not None:
            return function
    return bound  # type: ignore[no-any-return]


def rules_of(graph: Graph, node: PregelNode) -> Rules:
    """Return the rules for a node from its LangGraph policies. One with an error handler tries again by itself."""
    policies: Sequence[Any] = () if node.error_handler_node else node.retry_policy or ()
    if not policies:
        return Rules(timeout=graph.step_timeout)
    first = policies[0]
    return Rules(
        retries=max(policy.max_attempts for policy in policies) - 1,
        backoff=Backoff(first.initial_interval, first.backoff_factor, first.max_interval),
        timeout=graph.step_timeout,
    )


def _compile_node(graph: Graph, place: str, fn: Any) -> PregelNode:
    """Let LangGraph compile a function as this node of the graph."""
    builder: Any = graph.builder  # type: ignore[attr-defined]
    twin, spec = copy.copy(builder), builder.nodes[place]
    # LangGraph warns of nodes that are added to a compiled graph.
    twin.compiled = False
    # The copy is shallow, and the user's own builder must not change.
    for name in ("nodes", "schemas", "channels", "managed"):
        setattr(twin, name, dict(getattr(builder, name)))
    del twin.nodes[place]
    if (entrypoint := entrypoint_of(fn)) is not None:
        fn = function_of(entrypoint.bound)
    own_input = {} if _state_keys(fn) and ROOT not in twin.channels else {"input_schema": spec.input_schema}
    twin.add_node(place, fn, metadata=spec.metadata, timeout=spec.timeout, **own_input)
    compiled: PregelNode = twin.compile().nodes[place]
    return compiled


def _state_keys(fn: Any) -> Sequence[str]:
    """Return the keys of the state by a function's annotations; none if it has no such annotation."""
    while isinstance(fn, partial):
        fn = fn.func
    if isinstance(fn, Runnable) or not callable(fn):
        return ()
    target = fn if inspect.isroutine(fn) else type(fn).__call__
    try:
        names = [p.name for p in inspect.signature(target).parameters.values() if p.name != "self"]
        kind = typing.get_type_hints(target).get(names[0]) if names else None
        return list(typing.get_type_hints(kind)) if isinstance(kind, type) and _is_shape(kind) else ()
    except (TypeError, ValueError, NameError):  # what cannot be resolved is no hint
        return ()


def _is_shape(kind: type) -> bool:
    return is_typed_dict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")


@frozen
class Arrows:
    """The edges between the nodes of graphs, those of graphs within graphs included.

    Attributes:
        graphs: The graphs by the beginning of their nodes' names.
        outermost: The beginnings of those that are in no other graph.
    """

    graphs: Mapping[str, Graph]
    outermost: Collection[str]

    def edges(self) -> Iterator[Edge]:
        for name, graph in self.graphs.items():
            # LangGraph keeps edges in sets, whose order differs from process to process.
            straight = [((start,), end) for start, end in sorted(_builder(graph).edges)]
            for starts, end in [*straight, *sorted(_builder(graph).waiting_edges)]:
                sources = tuple(tail for start in starts if start != START for tail in self.tails(name, start))
                yield from (Edge(sources, head) for head in self.leads_to(name, end) if sources)

    def branches(self) -> Iterator[Branch]:
        for name, graph in self.graphs.items():
            for start, by, ends, _ in _conditional(graph):
                for source in self.tails(name, start) if start != START else ():
                    yield Branch(source, {label: head for label, end in ends for head in self.leads_to(name, end)}, by)
            for start, by, targets in _unannotated(graph):
                to = {head: head for end in targets for head in self.leads_to(name, end)}
                yield from (Branch(source, to, by) for source in self._within(name, start))

    def sent_to(self, nodes: Collection[str]) -> frozenset[str]:
        """Return those of these nodes that may have no task, or several, in a step that leads to them."""
        places: set[str] = set()
        for name, graph in self.graphs.items():
            sent = [end for _, _, ends, sends in _conditional(graph) if sends for _, end in ends]
            commanded = [end for _, _, ends in _unannotated(graph) for end in ends]
            places |= {full_name(name, end) for end in (*sent, *commanded)}
        # With dots, so that nodes of a graph within count, and `drafts` does not count for `draft`.
        return frozenset(node for node in nodes if any(f"{node}.".startswith(f"{to}.") for to in places))

    def interrupts(self) -> Iterator[str]:
        """Yield the interrupts with which graphs were compiled, as breakpoints."""
        for name, graph in self.graphs.items():
            everywhere = _steps_of(graph)
            for place in everywhere if graph.interrupt_before_nodes == "*" else graph.interrupt_before_nodes:
                yield from (f"before {node}" for node in self.leads_to(name, place))
            for place in everywhere if graph.interrupt_after_nodes == "*" else graph.interrupt_after_nodes:
                yield from (f"after {node}" for node in self.tails(name, place))

    def heads(self, name: str) -> list[str]:
        """Return the nodes that a graph may begin with."""
        graph = self.graphs[name]
        places = [end for start, end in sorted(_builder(graph).edges) if start == START]
        places += [end for start, _, ends, _ in _conditional(graph) if start == START for _, end in ends]
        return list(dict.fromkeys(head for place in places for head in self.leads_to(name, place)))

    def leads_to(self, name: str, place: str) -> list[str]:
        """Return the next nodes of an edge that leads to a place in a graph."""
        if place == END:  # of a graph within another: what follows is led to from its tails
            return [END] if name in self.outermost else []
        full = full_name(name, place)
        return self.heads(full) if full in self.graphs else [full]

    def tails(self, name: str, place: str) -> list[str]:
        """Return the nodes after which a place in a graph is done: itself, or the last nodes of its inner graph."""
        full = full_name(name, place)
        if full not in self.graphs:
            return [full]
        inner = self.graphs[full]
        leads = {start for start, end in _builder(inner).edges if end != END}
        leads |= {start for starts, _ in _builder(inner).waiting_edges for start in starts}
        leads |= {start for start, _, ends, _ in _conditional(inner) if all(end != END for _, end in ends)}
        last = [step for step in _steps_of(inner) if step not in leads]
        return [tail for step in last for tail in self.tails(full, step)]

    def _within(self, name: str, place: str) -> Iterator[str]:
        """Yield the nodes of a place in a graph: itself, or those of its inner graph."""
        full = full_name(name, place)
        if full not in self.graphs:
            yield full
            return
        for inner in _steps_of(self.graphs[full]):
            yield from self._within(full, inner)

    @property
    def is_open(self) -> bool:
        """Return True if the edges do not determine how often nodes run.

        Conditions decide where a graph begins, nodes wait until nothing else is to be done, or those of a graph within
        take their steps beside others.
        """
        within = len(self.graphs) > len(self.outermost)
        return any(
            START in _builder(graph).branches
            or any(spec.defer for spec in _builder(graph).nodes.values())
            or (within and _parts(graph))
            for graph in self.graphs.values()
        )


def _steps_of(graph: Graph) -> list[str]:
    """Return the nodes of a graph, without those that LangGraph adds: the entry, and error handlers."""
    return [place for place, node in graph.nodes.items() if place != START and not node.is_error_handler]


def _builder(graph: Graph) -> Any:
    return graph.builder  # type: ignore[attr-defined]


def _conditional(graph: Graph) -> Iterator[tuple[str, Any, list[tuple[str, str]], bool]]:
    """Yield the conditional edges of a graph: source, deciding function, (label, target) pairs, and a flag.

    The flag is True if an edge may lead to none of its targets, or to one several times.
    """
    builder = _builder(graph)
    anywhere = [(place, place) for place in (*builder.nodes, END)]
    for start, branches in builder.branches.items():
        for branch in branches.values():
            # Without a map of paths, LangGraph accepts the name of any node.
            ends = anywhere if branch.ends is None else [(str(label), end) for label, end in branch.ends.items()]
            by = function_of(branch.path)
            yield start, by, ends, not _names_one(by)
    for place, spec in builder.nodes.items():
        if spec.ends:  # where its Command may lead
            yield place, function_of(spec.runnable), [(end, end) for end in spec.ends], True


def _unannotated(graph: Graph) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield source, deciding function and targets of Commands whose targets no annotation names.

    A node to which no edge leads can only be their target, from any node that declares no targets of its Commands.
    """
    builder = _builder(graph)
    led_to = {end for _, end in (*builder.edges, *builder.waiting_edges)}
    led_to |= {end for _, _, ends, _ in _conditional(graph) for _, end in ends}
    steps = {place: spec for place, spec in builder.nodes.items() if not spec.is_error_handler}
    if unreached := [place for place in steps if place not in led_to]:
        for place, spec in steps.items():
            if targets := [target for target in unreached if target != place and not spec.ends]:
                yield place, function_of(spec.runnable), targets


def _names_one(by: Any) -> bool:
    """Return True if the function of a conditional edge is annotated to return one name."""
    try:
        annotation = typing.get_type_hints(by).get("return")
    except (TypeError, NameError):  # a runnable, or what cannot be resolved
        return False
    return annotation is str or (
        typing.get_origin(annotation) is typing.Literal and all(isinstance(a, str) for a in typing.get_args(annotation))
    )


def _parts(graph: Graph) -> bool:
    """Return whether several nodes may follow one, so that those of a graph within take steps beside others."""
    builder = _builder(graph)
    starts = [start for start, _ in builder.edges]
    return len(starts) > len(set(starts))
