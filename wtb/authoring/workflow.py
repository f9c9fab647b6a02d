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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Self, Unpack, overload

import orjson

from wtb.authoring.nodes import Backoff, Node, NodeOptions, Rules, Variant
from wtb.authoring.state_schema import Schema
from wtb.authoring.tools import Tool
from wtb.authoring.workflow_facts import END, Branch, Edge, WorkflowFacts
from wtb.core.errors import InputError, WorkflowError, did_you_mean
from wtb.core.questions import Approval, approval_problems
from wtb.core.values import Json, Params

DEFAULT: Final = "default"


NodeLike = str | Node


class Workflow:
    """A graph of nodes over a shared state.

    Args:
        name: Its name in commands, reports and messages.
        state: TypedDict, dataclass or pydantic model whose keys may carry reducers (`Annotated[list, operator.add]`);
            without one any key may be written.
        input: TypedDict, dataclass or pydantic model of the keys that a case must bring.
        description: One line for people.
        version: Text that counts as part of the code: with another one, nothing is reused.
        metadata: Further facts to store and show with its runs, such as an owner or a ticket: anything that JSON can
            write.
        params: The values of `ctx.params`; a sweep may override them.
        resources: Factory called once in each process; its result is `ctx.resources`.
        max_steps: The number of steps after which an execution fails (a guard for loops).
        approval: When an execution waits for a person: `manual` (only for questions of nodes), `none` (nobody can
            answer), `before` (each step), `on_error`, `{"after": NODE}`, or a list of the last three; `run.approval`
            of a sweep overrides it.

    Example:
        >>> from wtb import END, Workflow
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, ctx, *, word: str = "Hello"):
        ...     return {"text": f"{word}, {state['name']}!"}
        >>> curt = greet.variant("curt", word="Hi")
        >>> wf.entry(greet)
        >>> wf.edge(greet, END)
        >>> wf.validate()
        >>> wf
        <workflow greeting: greet>
    """

    engine: ClassVar[str] = "wtb.execution.engine.native:NativeEngine"  # the import path of its engine
    breakpoints: Sequence[str] = ()  # that it always has, as people write them
    picture: ClassVar[Callable[[Any], str] | None] = None  # draws it for notebooks; `wtb` names what does

    def __init__(
        self,
        name: str,
        *,
        state: type | None = None,
        input: type | None = None,
        description: str = "",
        version: str = "",
        metadata: Mapping[str, Any] | None = None,
        params: Params | None = None,
        resources: Callable[[], Any] | None = None,
        max_steps: int = 100,
        approval: Approval = "manual",
    ) -> None:
        self.name = name
        self.description = description
        self.version = version
        self.metadata = _checked_metadata(name, metadata or {})
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
        # Further versions that a sweep records, by server. Called on submission, which fails if one of them raises.
        self.versions: dict[str, Callable[[], Mapping[str, str]]] = {}
        self.problems: list[str] = []
        self.original: Workflow | None = None

    def __repr__(self) -> str:
        return f"<workflow {self.name}: {', '.join(self.nodes)}>"

    def _repr_html_(self) -> str | None:
        """Return the graph as HTML, for notebooks."""
        return None if self.picture is None else type(self).picture(self)  # type: ignore[misc]

    def __getitem__(self, node: str) -> Node:
        """Look a node up. Raises InputError with a near match."""
        try:
            return self.nodes[node]
        except KeyError:
            raise InputError(f"workflow {self.name!r} has no node {node!r}{did_you_mean(node, self.nodes)}") from None

    @overload
    def node(self, fn: Callable[..., Any], /, **options: Unpack[NodeOptions]) -> Node: ...
    @overload
    def node(self, /, **options: Unpack[NodeOptions]) -> Callable[[Callable[..., Any]], Node]: ...
    def node(
        self, fn: Callable[..., Any] | None = None, /, **options: Unpack[NodeOptions]
    ) -> Node | Callable[[Callable[..., Any]], Node]:
        """Add a node: `wf.node(fn)`, `@wf.node` or `@wf.node(retries=2, ...)`.

        Args:
            fn: The node's function, sync or async: `(state)` or `(state, ctx)`, then parameters by keyword only. It
                returns the keys of the state that it writes, or None.
            **options: Options of the node, such as `retries`, `timeout` (seconds), `on_error`, `limit` and `max_usd`.

        Returns:
            The node; as a decorator with options, a function that takes `fn` and returns the node.

        Example:
            >>> from wtb import Workflow
            >>> wf = Workflow("greeting")
            >>> @wf.node(retries=2, timeout=10.0)
            ... def greet(state):
            ...     return {"text": f"Hello, {state['name']}!"}
            >>> greet({"name": "Ana"})  # a node can be called as the function that it is
            {'text': 'Hello, Ana!'}
        """

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
        node_rules = Rules(backoff=backoff, final=tuple(final), **rules)
        text = description or (inspect.getdoc(fn) or "").partition("\n")[0]
        node = Node(called, node_rules, Variant(called, variant, fn, {}, text))
        if called in self.nodes:
            # Not raised here, so that `validate` reports all problems at once.
            self.problems.append(f"two nodes are named {called!r}")
        if called == END:
            self.problems.append(f"a node cannot be named {END!r}")
        self.problems += node_rules.problems(called)
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

        Args:
            fn: The function, sync or async. Nodes call it with arguments by name, and each call is recorded.
            name: The name for nodes; by default the function's name.
            reverse: Called as `reverse(result, **arguments)` when a rollback reverses a call.

        Returns:
            The tool; as a decorator with options, a function that takes `fn` and returns the tool.

        Example:
            >>> from wtb import Workflow
            >>> wf = Workflow("trip")
            >>> @wf.tool
            ... def book(*, flight: str) -> str:
            ...     return f"booking of {flight}"
            >>> @book.reversed_by
            ... def cancel(booking: str, *, flight: str) -> None: ...
            >>> list(wf.tools)
            ['book']
        """

        def add(function: Callable[..., Any]) -> Tool:
            called = str(name or getattr(function, "__name__", type(function).__name__))
            tool = Tool(called, function, reverse, (inspect.getdoc(function) or "").partition("\n")[0])
            if called in self.tools:
                self.problems.append(f"two tools are named {called!r}")
            self.problems += tool.problems()
            self.tools[called] = tool
            return tool

        return add if fn is None else add(fn)

    def entry(self, *nodes: NodeLike) -> None:
        """Set the nodes at which executions start.

        Args:
            *nodes: Nodes or their names; several start in the same step.
        """
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
        """Add an edge.

        Unconditional edges are all followed. Of the conditional ones of a node, the true one of highest priority is
        followed; if none is true, the one with `default`.

        Args:
            source: The node that the edge leaves, or a list of nodes: then the target waits for all of them.
            target: The node that it leads to, or `END`.
            when: Condition, called with the state; without one the edge is always followed.
            priority: Decides between several conditions that are true; the highest wins.
            default: Follow this edge when no condition of the node holds.
        """
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
        """Continue from a node at `targets[by(state)]`.

        Args:
            source: The node that decides.
            targets: Node, or `END`, by the keys that `by` may return.
            by: Called with the state; returns a key of `targets`.
            default: The target for any other key; without one, another key fails the execution.
        """
        named = {key: _name(target) for key, target in targets.items()}
        self.branches.append(Branch(_name(source), named, by, None if default is None else _name(default)))

    def apply(self, choices: Mapping[str, str]) -> Workflow:
        """Make a plain workflow without variants, in which each node does what its chosen variant does.

        Args:
            choices: Variant by node; other nodes do what their default does.

        Returns:
            The plain workflow; its `original` is this one.

        Raises:
            InputError: For an unknown node or variant.
        """
        for name, variant in choices.items():
            # The look-up raises for unknown names.
            self[name][variant]
        plain = self.copy()
        plain.original = self
        for node in self.nodes.values():
            chosen_variant = node.variants[choices.get(node.name, node.default)]
            plain.nodes[node.name] = node.copy()
            plain.nodes[node.name].default = DEFAULT
            plain.nodes[node.name].variants = {DEFAULT: replace(chosen_variant, name=DEFAULT, active=True)}
        return plain

    def copy(self) -> Self:
        """Copy the workflow, so that variants and tools can be added without touching this one.

        Returns:
            The copy; graph and schema are shared.
        """
        twin = copy.copy(self)
        twin.nodes = {name: node.copy() for name, node in self.nodes.items()}
        twin.tools, twin.versions = dict(self.tools), dict(self.versions)
        return twin

    def varied(self, node: str) -> Node | None:
        """Look up a node that a sweep varies. A composite may become a node by this.

        Args:
            node: Its name.

        Returns:
            The node, or None if there is none of that name.
        """
        return self.nodes.get(node)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Order the nodes that a sweep varies.

        Args:
            names: Names of nodes.

        Returns:
            The same names, in the order in which their variants must be added.
        """
        return list(names)

    def add_variant(self, variant: Variant) -> list[str]:
        """Add a variant that a sweep defines, unless it has problems.

        Args:
            variant: The variant; its `node` names a node of this workflow.

        Returns:
            Its problems, one line each; empty if it was added.
        """
        problems = variant.problems()
        if not problems:
            self.nodes[variant.node].variants[variant.name] = variant
        return problems

    def param_problems(self, params: Params) -> list[str]:
        """Check the params of a sweep.

        Args:
            params: Values by name.

        Returns:
            Their problems, one line each.
        """
        return []

    def facts(self) -> WorkflowFacts:
        """Gather the facts that planning, display and runners read.

        Returns:
            The facts as they are now: nodes, edges, tools and servers that are added later are not among them.
        """
        return WorkflowFacts(
            name=self.name,
            source=self,
            version=self.version,
            description=self.description,
            metadata=self.metadata,
            params=self.params,
            resources=self.resources,
            max_steps=self.max_steps,
            approval=self.approval,
            schema=self.schema,
            input=self.input,
            nodes=dict(self.nodes),
            entries=tuple(self.entries),
            starts=tuple(self.nodes),
            edges=tuple(self.edges),
            branches=tuple(self.branches),
            breakpoints=tuple(self.breakpoints),
            tools=dict(self.tools),
            versions=dict(self.versions),
        )

    def validate(self) -> None:
        """Check the whole graph.

        Raises:
            WorkflowError: With all problems at once, one line each.
        """
        from wtb.authoring.graph import odd_names, problems

        facts = self.facts()
        all_problems = [*self.problems, *odd_names(facts), *(p for node in self.nodes.values() for p in node.problems)]
        all_problems += [p for node in self.nodes.values() for v in node.variants.values() for p in v.problems()]
        all_problems += problems(facts) + approval_problems(self.approval, self.name, self.nodes)
        if all_problems:
            raise WorkflowError(*(f"workflow {self.name!r}: {problem}" for problem in all_problems))


def _name(node: NodeLike) -> str:
    return node.name if isinstance(node, Node) else node


def _checked_metadata(workflow: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the metadata of a workflow. Raises InputError if JSON cannot write it."""
    try:
        copied: dict[str, Json] = orjson.loads(orjson.dumps(dict(metadata)))
    except (TypeError, ValueError) as error:
        raise InputError(f"workflow {workflow!r}: metadata: {error}; expected what JSON can write") from None
    return copied
