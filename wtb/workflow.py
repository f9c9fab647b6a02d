"""Authoring: a workflow of nodes over a shared state, each node with one or more variants.

wf = Workflow("rag", state=State)

@wf.node
def retrieve(state, ctx, *, k: int = 5): ...

retrieve.variant("deep", k=50)
wf.entry(retrieve)
wf.edge(retrieve, END)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from wtb.errors import InputError, WorkflowError, did_you_mean
from wtb.schema import Schema

END: Final = "__end__"
DEFAULT: Final = "default"

Fn = TypeVar("Fn", bound=Callable[..., Any])


@dataclass(frozen=True)
class Backoff:
    """Seconds to wait before attempt n + 1: `initial * factor ** (n - 1)`, at most `maximum`."""

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 60.0

    def seconds(self, attempt: int) -> float:
        return min(self.maximum, self.initial * self.factor ** (attempt - 1))


@dataclass(frozen=True)
class Rules:
    """How a node is run. `timeout` in seconds, `rate` in starts a second, `limit` in runs at a time."""

    retries: int = 0
    timeout: float | None = None
    backoff: Backoff = field(default_factory=Backoff)
    final: tuple[type[BaseException], ...] = ()
    on_error: Literal["fail", "skip"] = "fail"
    durable: bool = False
    queue: str | None = None
    limit: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Variant:
    """One way to do a node: a callable with parameters."""

    node: str
    name: str
    fn: Callable[..., Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    active: bool = True

    @cached_property
    def takes_context(self) -> bool:
        """Whether the callable has a second positional parameter for the context."""
        parameters = inspect.signature(self.fn).parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(positional) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)

    def problems(self) -> list[str]:
        """What is wrong with the callable or its parameters, in words."""
        where = f"node {self.node!r}, variant {self.name!r}"
        signature = inspect.signature(self.fn)
        known = {p.name: p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
        anything = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        found = []
        if not any(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
            for p in signature.parameters.values()
        ):
            found.append(f"{where}: takes no state; expected (state) or (state, ctx) before any parameters")
        positional = [
            p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        misplaced = positional[2:]
        if len(positional) > 1 and positional[1].default not in (inspect.Parameter.empty, None):
            misplaced.insert(0, positional[1])  # it would be given the context
        for parameter in misplaced:
            found.append(f"{where}: {parameter.name!r} must be keyword-only: put a * before the parameters")
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in self.params:
                found.append(f"{where}: parameter {name!r} has neither a default nor a value")
        for name, value in self.params.items():
            if name in known:
                found += _type_problem(where, self.fn, name, value)
            elif not anything:
                takes = ", ".join(known) or "none"
                found.append(f"{where}: takes no parameter {name!r}{did_you_mean(name, known)} (it takes: {takes})")
        return found


def _type_problem(where: str, fn: Callable[..., Any], name: str, value: Any) -> list[str]:
    import typing

    import pydantic

    try:
        annotation = typing.get_type_hints(fn).get(name, Any)
        pydantic.TypeAdapter(annotation).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        expected = getattr(annotation, "__name__", None) or str(annotation)
        return [f"{where}: parameter {name!r} is {value!r}; expected {expected} ({error.errors()[0]['msg']})"]
    except (NameError, TypeError, pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError):
        return []  # an annotation that cannot be resolved or checked says nothing
    return []


class NodeOptions(TypedDict, total=False):
    """What `Workflow.node` takes.

    name: default is the function's `__name__`. variant: name of the node's own callable among its variants.
    retries: further attempts after a failed one; `final` errors are not tried again.
    timeout: seconds that one attempt may take. backoff: a Backoff, or its initial seconds.
    on_error: `skip` goes on without the node's writes when its last attempt has failed.
    durable: commit before it starts and right after it ends. queue: which workers run it.
    limit, rate: at most so many runs at a time, or starts a second.
    """

    name: str | None
    variant: str
    description: str
    retries: int
    timeout: float | None
    backoff: Backoff | float | None
    final: Sequence[type[BaseException]]
    on_error: Literal["fail", "skip"]
    durable: bool
    queue: str | None
    limit: int | None
    rate: float | None


class Node:
    """One step of a workflow. Calling it calls its own function, so that it can be tested by itself."""

    def __init__(self, name: str, rules: Rules, default: Variant) -> None:
        self.name = name
        self.rules = rules
        self.default = default.name
        self.variants: dict[str, Variant] = {default.name: default}
        self.problems: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.variants[self.default].fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<node {self.name}: {', '.join(self.variants)}>"

    def __getitem__(self, variant: str) -> Variant:
        """Look a variant up. Raises InputError with a near match."""
        try:
            return self.variants[variant]
        except KeyError:
            raise InputError(
                f"node {self.name!r} has no variant {variant!r}{did_you_mean(variant, self.variants)}"
                f" (it has: {', '.join(self.variants)})"
            ) from None

    @overload
    def variant(self, name: str, /, *, description: str = "") -> Callable[[Fn], Fn]: ...
    @overload
    def variant(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        of: str | None = None,
        description: str = "",
        **params: Any,
    ) -> Any: ...
    def variant(
        self,
        name: str,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        of: str | None = None,
        description: str = "",
        **params: Any,
    ) -> Any:
        """Add a variant.

        With a function, or as a decorator: another callable. With parameters (or `of=`, the variant that it
        derives from): the same callable with other parameters; returns the Variant.
        """
        if fn is None and of is None and not params:

            def register(decorated: Fn) -> Fn:
                self._add(Variant(self.name, name, decorated, {}, description))
                return decorated

            return register
        parent = self[of or self.default]
        merged = dict(params) if fn is not None and of is None else {**parent.params, **params}
        added = Variant(self.name, name, fn or parent.fn, merged, description)
        self._add(added)
        return added

    def _add(self, variant: Variant) -> None:
        if variant.name in self.variants:
            self.problems.append(f"node {self.name!r} has two variants named {variant.name!r}")
            return
        self.variants[variant.name] = variant

    def deactivate(self, variant: str) -> None:
        """Leave a variant out of `all`; it can still be named."""
        self.variants[variant] = replace(self[variant], active=False)

    def activate(self, variant: str) -> None:
        self.variants[variant] = replace(self[variant], active=True)

    def active(self) -> list[str]:
        """Names of the variants that `all` means."""
        return [name for name, variant in self.variants.items() if variant.active]


@dataclass(frozen=True)
class Edge:
    """From all of `sources` (a join waits for each) to `target`; taken when `when(state)` is true.

    Unconditional edges are all followed. Of the conditional ones of a node the true one of highest priority
    is followed; when none is true, the one with `default`.
    """

    sources: tuple[str, ...]
    target: str
    when: Callable[[Any], Any] | None = None
    priority: int = 0
    default: bool = False


@dataclass(frozen=True)
class Branch:
    """From `source` to `targets[by(state)]`, or to `default` when that key is not there."""

    source: str
    targets: Mapping[str, str]
    by: Callable[[Any], Any]
    default: str | None = None


NodeLike = str | Node


class Workflow:
    """A graph of nodes over a shared state.

    state: TypedDict, dataclass or pydantic model whose keys may carry reducers (`Annotated[list, operator.add]`);
        without one any key may be written.
    input: schema of the keys that a case must bring.
    resources: factory called once in each process; nodes find what it returns in `ctx.resources`.
    params: what nodes find in `ctx.params`; a sweep may override them.
    max_steps: how many steps an execution may take before it fails (a guard for loops).
    """

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
    ) -> None:
        self.name = name
        self.description = description
        self.version = version
        self.params = dict(params or {})
        self.resources = resources
        self.max_steps = max_steps
        self.schema = Schema.of(state)
        self.input = Schema.of(input) if input is not None else None
        self.nodes: dict[str, Node] = {}
        self.entries: list[str] = []
        self.edges: list[Edge] = []
        self.branches: list[Branch] = []
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
        self.problems += _rule_problems(called, kept)
        self.nodes[called] = node
        return node

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
            plain.nodes[node.name] = Node(node.name, node.rules, replace(chosen, name=DEFAULT, active=True))
        return plain

    def copy(self) -> Workflow:
        """A workflow whose variants can be added to without touching this one; graph and schema are shared."""
        twin = object.__new__(Workflow)
        twin.__dict__.update(self.__dict__)
        twin.nodes = {}
        for node in self.nodes.values():
            twin.nodes[node.name] = Node(node.name, node.rules, node.variants[node.default])
            twin.nodes[node.name].variants = dict(node.variants)
            twin.nodes[node.name].problems = list(node.problems)
        return twin

    def validate(self) -> None:
        """Check the whole graph. Raises WorkflowError with all problems at once."""
        from wtb.graph import problems

        found = [*self.problems, *(p for node in self.nodes.values() for p in node.problems)]
        found += [p for node in self.nodes.values() for v in node.variants.values() for p in v.problems()]
        found += problems(self)
        if found:
            raise WorkflowError(*(f"workflow {self.name!r}: {problem}" for problem in found))


def _name(node: NodeLike) -> str:
    return node.name if isinstance(node, Node) else node


def _rule_problems(node: str, rules: Rules) -> Iterable[str]:
    if rules.retries < 0:
        yield f"node {node!r}: retries is {rules.retries}; expected 0 or more"
    for rule in ("timeout", "limit", "rate"):
        value = getattr(rules, rule)
        if value is not None and value <= 0:
            yield f"node {node!r}: {rule} is {value}; expected more than 0"
    if rules.on_error not in ("fail", "skip"):
        yield f"node {node!r}: on_error is {rules.on_error!r}; expected 'fail' or 'skip'"
