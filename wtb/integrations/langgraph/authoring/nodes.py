"""Nodes of LangGraph graphs as WTB's nodes: their rules, and what stands in for them under each variant."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from langchain_core.runnables import Runnable
from langgraph._internal._runnable import RunnableCallable
from langgraph.constants import START
from langgraph.pregel import Pregel
from langgraph.pregel._read import PregelNode
from langgraph.pregel._retry import _should_retry_on

from wtb.authoring.code.fingerprint import fingerprint
from wtb.authoring.nodes import Backoff, Node, Rules, Variant
from wtb.authoring.state_schema import is_typed_dict
from wtb.authoring.workflow import DEFAULT
from wtb.core.errors import InputError, did_you_mean

Graph = Pregel[Any, Any, Any, Any]
GIVEN = ("config", "writer", "store", "previous", "runtime", "error")
"""What LangGraph gives a node by name: no parameters of a variant."""


ROOT = "__root__"
"""The key that a state stands under which is a single value, such as a list."""


def full_name(name: str, place: str) -> str:
    """The name of a node of a graph. name: of the graph, empty for the outermost one."""
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
        known = {p.name: p for p in every if p.kind in by_name and p.name not in GIVEN}
        return known, any(p.kind is p.VAR_KEYWORD for p in every)

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
        known, takes_any = self.parameters
        for name in self.params:
            if name in GIVEN or (name not in known and not takes_any):
                takes = ", ".join(known) or "none"
                problems_found.append(
                    f"{where}: takes no parameter {name!r}{did_you_mean(name, known)} (it takes: {takes})"
                )
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in self.params:
                problems_found.append(f"{where}: parameter {name!r} has neither a default nor a value")
        return problems_found


class ChosenGraph(GraphVariant):
    """A way to make the whole graph: a compiled one, or a factory, all of whose arguments are parameters."""

    @property
    def parameters(self) -> tuple[Mapping[str, inspect.Parameter], bool]:
        fn: Any = self.fn
        if not inspect.isroutine(fn):
            raise InputError("a compiled graph takes no parameters: only a function that makes the graph has them")
        every = inspect.signature(fn).parameters.values()
        return {p.name: p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}, any(
            p.kind is p.VAR_KEYWORD for p in every
        )


class GraphNode(Node):
    """A node of a LangGraph graph. own: as LangGraph has compiled it; graph: that it is in; place: its name there."""

    variant_type = GraphVariant

    def __init__(self, name: str, graph: Graph, place: str) -> None:
        self.graph, self.place = graph, place
        self._codes: dict[str, str] = {}
        self.own: PregelNode = graph.nodes[place]
        self.own_fn = fn = function_of(self.own.bound)
        text = (inspect.getdoc(fn) or "").partition("\n")[0] if inspect.isroutine(fn) else ""
        super().__init__(name, rules_of(graph, self.own), GraphVariant(name, DEFAULT, fn, {}, text))

    def compile(self, variant: Variant) -> PregelNode:
        """What LangGraph runs for a variant. Raises ValueError or TypeError where it takes no such node."""
        again = {} if self.own.error_handler_node else {"retry_policy": None}
        if variant.fn is self.own_fn and not variant.params:
            return self.own.copy({**again, "cache_policy": None})
        compiled = _compile_node(
            self.graph, self.place, partial(variant.fn, **variant.params) if variant.params else variant.fn
        )
        only = {
            "bound": compiled.bound,
            "channels": compiled.channels,
            "mapper": compiled.mapper,
            "subgraphs": compiled.subgraphs,
        }
        return self.own.copy({**again, "cache_policy": None, **only})

    def copy(self) -> Self:
        twin = super().copy()
        twin._codes = {}
        return twin

    def code(self, variant: Variant) -> Any:
        """With what runs in the attempt beside the function: the error handler, and what decides where it leads."""
        builder: Any = self.graph.builder  # type: ignore[attr-defined]
        handler = self.own.error_handler_node
        handlers = [builder.nodes[handler].runnable] if handler else []
        paths = [
            [branch.path, sorted((branch.ends or {}).items(), key=str)]
            for branch in builder.branches.get(self.place, {}).values()
        ]
        return [variant.fn, *handlers, *paths]

    def fingerprint(self, variant: str) -> str:
        """That of a variant's code when it was first asked for: its runs may change globals."""
        if variant not in self._codes:
            self._codes[variant] = fingerprint(self.code(self.variants[variant]))
        return self._codes[variant]

    def misfits(self, variant: Variant) -> list[str]:
        """Why a variant cannot stand in for the node, in words."""
        where = f"node {self.name!r}, variant {variant.name!r}"
        known = set(self.graph.channels)
        wanted = () if ROOT in known else _state_keys(variant.fn)
        if missing := [key for key in wanted if key not in known]:
            has = ", ".join(self.graph.builder.channels)  # type: ignore[attr-defined]
            return [f"{where}: its state has {missing[0]!r}, which the graph's state does not have (it has: {has})"]
        try:
            self.compile(variant)
        except (TypeError, ValueError, KeyError, NameError) as error:
            return [f"{where}: LangGraph does not take it as a node: {error}"]
        return []

    def variant_problems(self, names: Sequence[str]) -> list[str]:
        found = [(name, stops_within(self.variants[name].fn)) for name in names if name in self.variants]
        return [f"node {self.name!r}, variant {name!r}: {stops}" for name, stops in found if stops is not None]

    def is_final(self, error: BaseException, failed: int) -> bool:
        """Whether the node's retry policies forbid another attempt. failed: attempts before the one that failed now."""
        policies = self.own.retry_policy or ()
        if not isinstance(error, Exception):
            return True
        matching = next((policy for policy in policies if _should_retry_on(policy, error)), None)
        return matching is None or failed + 1 >= matching.max_attempts


def entrypoint_of(thing: Any) -> PregelNode | None:
    """The only node of a graph of LangGraph's functional API; None for all else."""
    if isinstance(thing, Pregel) and not hasattr(thing, "builder") and len(thing.nodes) == 1:
        (node,) = thing.nodes.values()
        return node if node.triggers == [START] else None
    return None


def stops_within(bound: Any) -> str | None:
    """Why a graph cannot run as one node, in words, where it or a graph in it was compiled to be interrupted."""
    if not isinstance(bound, Pregel):
        return None
    if bound.interrupt_before_nodes or bound.interrupt_after_nodes:
        return (
            "a graph that was compiled with interrupt_before or interrupt_after runs as one node here, which cannot be "
            "stopped in the middle: compile it without and let its nodes call interrupt(), or vary its nodes one by one"
        )
    return next((found for node in bound.nodes.values() if (found := stops_within(node.bound))), None)


def function_of(bound: Any) -> Callable[..., Any]:
    """The user's function in a runnable; the runnable itself where it is something else."""
    if type(bound) is RunnableCallable:
        found = bound.func or bound.afunc
        if found is not None:
            return found
    return bound  # type: ignore[no-any-return]


def rules_of(graph: Graph, node: PregelNode) -> Rules:
    """How WTB runs a node: with LangGraph's policies. One that has an error handler tries again by itself."""
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
    """What LangGraph makes of a function as this node of the graph."""
    builder: Any = graph.builder  # type: ignore[attr-defined]
    twin, spec = copy.copy(builder), builder.nodes[place]
    twin.compiled = False
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
    """The keys of the state that a function says it takes; none where it does not say."""
    while isinstance(fn, partial):
        fn = fn.func
    if isinstance(fn, Runnable) or not callable(fn):
        return ()
    target = fn if inspect.isroutine(fn) else type(fn).__call__
    try:
        names = [p.name for p in inspect.signature(target).parameters.values() if p.name != "self"]
        kind = typing.get_type_hints(target).get(names[0]) if names else None
        return list(typing.get_type_hints(kind)) if isinstance(kind, type) and _is_shape(kind) else ()
    except (TypeError, ValueError, NameError):  # what cannot be resolved says nothing
        return ()


def _is_shape(kind: type) -> bool:
    return is_typed_dict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")
