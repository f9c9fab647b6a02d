"""Authoring: a workflow of nodes over a shared state, each node with one or more variants.

wf = Workflow("rag", state=State)

@wf.node
def retrieve(state, ctx, *, k: int = 5): ...

retrieve.variant("deep", k=50)
wf.entry(retrieve)
wf.edge(retrieve, END)
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Self, Unpack, overload

from wtb.authoring.edges import END, Branch, Edge
from wtb.authoring.nodes import Backoff, Node, NodeOptions, Rules, Variant
from wtb.authoring.state_schema import Schema
from wtb.authoring.tools import Tool
from wtb.core.errors import InputError, WorkflowError, did_you_mean

DEFAULT: Final = "default"


NodeLike = str | Node


class Workflow:
    """A graph of nodes over a shared state.

    state: TypedDict, dataclass or pydantic model whose keys may carry reducers (`Annotated[list, operator.add]`);
        without one any key may be written.
    input: schema of the keys that a case must bring.
    resources: factory called once in each process; nodes find what it returns in `ctx.resources`.
    params: what nodes find in `ctx.params`; a sweep may override them.
    max_steps: how many steps an execution may take before it fails (a guard for loops).
    approval: when people are asked to let an execution go on: manual (only what nodes ask), none (nobody is there),
        before (each step), on_error, or {"after": NODE}; `run.approval` of a sweep overrides it.
    """

    engine: ClassVar[str] = "wtb.execution.engine.native:NativeEngine"  # the import path of what runs it
    breakpoints: Sequence[str] = ()  # that it always has, as people write them
    closed_input: ClassVar[bool] = False  # whether a case may bring keys of `input` only
    state_key: str | None = None  # where the state is a single value, the key that it stands under
    sent_to: frozenset[str] = frozenset()  # nodes that one step may run several times, or not at all
    is_limited: bool = True  # whether `max_steps` bounds loops to what somebody chose
    is_open: bool = False  # whether the path depends on the state in more than `branches` and conditions

    def __init__(
        self,
        name: str,
        *,
        state: type | None = None,
        input: type | None = None,
        description: str = "",
        version: str = "",
        params: Mapping[str, Any] | None = None,
        resources: Callable[[], Any] | None = None,
        max_steps: int = 100,
        approval: str | Mapping[str, str] = "manual",
    ) -> None:
        self.name = name
        self.description = description
        self.version = version
        self.params = dict(params or {})
        self.resources = resources
        self.max_steps = max_steps
        self.approval = approval
        self.schema = Schema.of(state)
        self.input = Schema.of(input) if input is not None else None
        self.nodes: dict[str, Node] = {}
        self.entries: list[str] = []
        self.edges: list[Edge] = []
        self.branches: list[Branch] = []
        self.tools: dict[str, Tool] = {}
        self.problems: list[str] = []
        self.original: Workflow | None = None

    def __repr__(self) -> str:
        return f"<workflow {self.name}: {', '.join(self.nodes)}>"

    def __getitem__(self, node: str) -> Node:
        """Look a node up. Raises InputError with a near match."""
        try:
            return self.nodes[node]
        except KeyError:
            raise InputError(f"workflow {self.name!r} has no node {node!r}{did_you_mean(node, self.nodes)}") from None

    def within(self, key: str) -> str | None:
        """The key as the schema has it, where a key of the state is of a workflow within this one."""
        return None

    @overload
    def node(self, fn: Callable[..., Any], /, **options: Unpack[NodeOptions]) -> Node: ...
    @overload
    def node(self, /, **options: Unpack[NodeOptions]) -> Callable[[Callable[..., Any]], Node]: ...
    def node(
        self, fn: Callable[..., Any] | None = None, /, **options: Unpack[NodeOptions]
    ) -> Node | Callable[[Callable[..., Any]], Node]:
        """Add a node: `wf.node(fn)`, `@wf.node` or `@wf.node(retries=2, ...)`; see NodeOptions."""

        def add(function: Callable[..., Any]) -> Node:
            return self._add_node(function, **options)

        return add if fn is None else add(fn)

    def _add_node(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        variant: str = DEFAULT,
        description: str = "",
        backoff: Backoff | float | None = None,
        final: Sequence[type[BaseException]] = (),
        **rules: Any,
    ) -> Node:
        called = str(name or getattr(fn, "__name__", type(fn).__name__))
        if not isinstance(backoff, Backoff):
            backoff = Backoff() if backoff is None else Backoff(initial=backoff)
        kept = Rules(backoff=backoff, final=tuple(final), **rules)
        text = description or (inspect.getdoc(fn) or "").partition("\n")[0]
        node = Node(called, kept, Variant(called, variant, fn, {}, text))
        if called in self.nodes:
            self.problems.append(f"two nodes are named {called!r}")
        if called == END:
            self.problems.append(f"a node cannot be named {END!r}")
        self.problems += kept.problems(called)
        self.nodes[called] = node
        return node

    @overload
    def tool(
        self, fn: Callable[..., Any], /, *, name: str | None = None, reverse: Callable[..., Any] | None = None
    ) -> Tool: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, reverse: Callable[..., Any] | None = None
    ) -> Callable[[Callable[..., Any]], Tool]: ...
    def tool(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        reverse: Callable[..., Any] | None = None,
    ) -> Tool | Callable[[Callable[..., Any]], Tool]:
        """Add a tool that nodes call as `ctx.tools.NAME(...)`: `wf.tool(fn)`, `@wf.tool` or `@wf.tool(reverse=undo)`.

        reverse: called as `reverse(result, **arguments)` where a rollback takes a call back.
        """

        def add(function: Callable[..., Any]) -> Tool:
            called = str(name or getattr(function, "__name__", type(function).__name__))
            made = Tool(called, function, reverse, (inspect.getdoc(function) or "").partition("\n")[0])
            if called in self.tools:
                self.problems.append(f"two tools are named {called!r}")
            self.problems += made.problems()
            self.tools[called] = made
            return made

        return add if fn is None else add(fn)

    def entry(self, *nodes: NodeLike) -> None:
        """Where executions start; several nodes start in the same step."""
        self.entries += [_name(node) for node in nodes]

    def edge(
        self,
        source: NodeLike | Sequence[NodeLike],
        target: NodeLike,
        *,
        when: Callable[[Any], Any] | None = None,
        priority: int = 0,
        default: bool = False,
    ) -> None:
        """Add an edge; with a list of sources the target waits for all of them."""
        several = not isinstance(source, str | Node)
        sources = tuple(_name(s) for s in source) if several else (_name(source),)  # type: ignore[union-attr, arg-type]
        if len(sources) > 1 and (when is not None or default):
            self.problems.append(f"the edge from {list(sources)} waits for all: it cannot be conditional")
        if when is not None and default:
            self.problems.append(f"the edge {sources[0]!r} -> {_name(target)!r} has both when= and default=")
        self.edges.append(Edge(sources, _name(target), when, priority, default))

    def branch(
        self,
        source: NodeLike,
        targets: Mapping[str, NodeLike],
        *,
        by: Callable[[Any], Any],
        default: NodeLike | None = None,
    ) -> None:
        """Go on to `targets[by(state)]`."""
        named = {key: _name(target) for key, target in targets.items()}
        self.branches.append(Branch(_name(source), named, by, None if default is None else _name(default)))

    def apply(self, choices: Mapping[str, str]) -> Workflow:
        """A plain workflow without variants: each node does what its chosen variant (or default) does.

        `original` of the result is this workflow. Raises InputError for unknown nodes and variants.
        """
        for name, variant in choices.items():
            self[name][variant]
        plain = self.copy()
        plain.original = self
        for node in self.nodes.values():
            chosen = node.variants[choices.get(node.name, node.default)]
            plain.nodes[node.name] = node.copy()
            plain.nodes[node.name].default = DEFAULT
            plain.nodes[node.name].variants = {DEFAULT: replace(chosen, name=DEFAULT, active=True)}
        return plain

    def copy(self) -> Self:
        """A workflow whose variants can be added to without touching this one; graph and schema are shared."""
        twin = copy.copy(self)
        twin.nodes = {name: node.copy() for name, node in self.nodes.items()}
        return twin

    def varied(self, node: str) -> Node | None:
        """A node that a sweep wants to vary; None where there is none. What was no node by itself may become one."""
        return self.nodes.get(node)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """The nodes that a sweep varies, in the order in which their variants are to be added."""
        return list(names)

    def add_variant(self, variant: Variant) -> list[str]:
        """Add a variant that a sweep makes, unless something is wrong with it: then say what, in words."""
        found = variant.problems()
        if not found:
            self.nodes[variant.node].variants[variant.name] = variant
        return found

    def param_problems(self, params: Mapping[str, Any]) -> list[str]:
        """What is wrong with the params of a sweep, in words."""
        return []

    @property
    def starts(self) -> Collection[str]:
        """The nodes that an execution can start from."""
        return self.nodes

    def validate(self) -> None:
        """Check the whole graph. Raises WorkflowError with all problems at once."""
        from wtb.authoring.approval import approval_problems
        from wtb.authoring.graph import odd_names, problems

        found = [*self.problems, *odd_names(self), *(p for node in self.nodes.values() for p in node.problems)]
        found += [p for node in self.nodes.values() for v in node.variants.values() for p in v.problems()]
        found += problems(self) + approval_problems(self.approval, self.name, self.nodes)
        if found:
            raise WorkflowError(*(f"workflow {self.name!r}: {problem}" for problem in found))


def _name(node: NodeLike) -> str:
    return node.name if isinstance(node, Node) else node
