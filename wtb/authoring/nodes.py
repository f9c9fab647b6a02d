"""Nodes and their variants: what one step of a workflow is, and the ways to do it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, overload

from wtb.core.errors import InputError, did_you_mean

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
    """How a node is run. `timeout` in seconds, `rate` in starts a second, `limit` in runs at a time.

    max_usd, max_tokens: what one attempt may spend.
    """

    retries: int = 0
    timeout: float | None = None
    backoff: Backoff = field(default_factory=Backoff)
    final: tuple[type[BaseException], ...] = ()
    on_error: Literal["fail", "skip"] = "fail"
    durable: bool = False
    queue: str | None = None
    limit: int | None = None
    rate: float | None = None
    max_usd: float | None = None
    max_tokens: int | None = None

    def problems(self, node: str) -> Iterable[str]:
        """What is wrong with the rules of a node, in words."""
        if self.retries < 0:
            yield f"node {node!r}: retries is {self.retries}; expected 0 or more"
        for rule in ("timeout", "limit", "rate", "max_usd", "max_tokens"):
            value = getattr(self, rule)
            if value is not None and not value > 0:
                yield f"node {node!r}: {rule} is {value}; expected more than 0"
        if self.on_error not in ("fail", "skip"):
            yield f"node {node!r}: on_error is {self.on_error!r}; expected 'fail' or 'skip'"


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
    max_usd, max_tokens: what one attempt may spend; budgets reserve it before it starts, and `ctx.cost` raises beyond.
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
    max_usd: float | None
    max_tokens: int | None


class Node:
    """One step of a workflow. Calling it calls its own function, so that it can be tested by itself."""

    variant_type: ClassVar[type[Variant]] = Variant

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
                self._add(self.variant_type(self.name, name, decorated, {}, description))
                return decorated

            return register
        parent = self[of or self.default]
        merged = dict(params) if fn is not None and of is None else {**parent.params, **params}
        added = self.variant_type(self.name, name, fn or parent.fn, merged, description)
        self._add(added)
        return added

    def _add(self, variant: Variant) -> None:
        if variant.name in self.variants:
            self.problems.append(f"node {self.name!r} has two variants named {variant.name!r}")
            return
        self.variants[variant.name] = variant

    def copy(self) -> Self:
        """A node whose variants can be added to without touching this one."""
        twin = copy.copy(self)
        twin.variants, twin.problems = dict(self.variants), list(self.problems)
        return twin

    def code(self, variant: Variant) -> Any:
        """What stands for a variant's code, for fingerprints: a callable, or a list of what there is of it."""
        return variant.fn

    def variant_problems(self, names: Sequence[str]) -> list[str]:
        """Why variants cannot run as a sweep chooses them, in words."""
        return []

    def deactivate(self, variant: str) -> None:
        """Leave a variant out of `all`; it can still be named."""
        self.variants[variant] = replace(self[variant], active=False)

    def activate(self, variant: str) -> None:
        self.variants[variant] = replace(self[variant], active=True)

    def active(self) -> list[str]:
        """Names of the variants that `all` means."""
        return [name for name, variant in self.variants.items() if variant.active]
