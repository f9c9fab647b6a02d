"""Nodes, which are the steps of a workflow, and their variants."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, overload

from wtb.core.errors import InputError, did_you_mean, nearest_names
from wtb.core.frozen import frozen
from wtb.core.values import Params

Fn = TypeVar("Fn", bound=Callable[..., Any])


@frozen
class Backoff:
    """The wait before a node is retried: `initial * factor ** (n - 1)` seconds before attempt n + 1.

    Args:
        initial: Seconds before the second attempt.
        factor: The factor of each further wait.
        maximum: The longest wait in seconds.

    Example:
        >>> from wtb import Backoff
        >>> [Backoff(initial=1, factor=3, maximum=5).seconds(attempt) for attempt in (1, 2, 3)]
        [1, 3, 5]
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 60.0

    def seconds(self, attempt: int) -> float:
        """Compute a wait.

        Args:
            attempt: The number of the attempt that failed, from 1.

        Returns:
            Seconds to wait before the next one.
        """
        try:
            return min(self.maximum, self.initial * self.factor ** (attempt - 1))
        except OverflowError:  # after about a thousand attempts
            return self.maximum if self.initial else 0.0


@frozen
class Rules:
    """The rules by which a node runs. `timeout` is in seconds, `rate` in starts a second, `limit` in runs at a time.

    `max_usd` and `max_tokens` limit one attempt. `threads` runs of a sync node share a node process.
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
    threads: int = 1

    def problems(self, node: str) -> Iterable[str]:
        """Yield the problems of the rules of a node, as messages."""
        if self.retries < 0:
            yield f"node {node!r}: retries is {self.retries}; expected 0 or more"
        if self.threads < 1:
            yield f"node {node!r}: threads is {self.threads}; expected 1 or more"
        for rule in ("timeout", "limit", "rate", "max_usd", "max_tokens"):
            limit = getattr(self, rule)
            if limit is not None and not limit > 0:
                yield f"node {node!r}: {rule} is {limit}; expected more than 0"
        if self.on_error not in ("fail", "skip"):
            yield f"node {node!r}: on_error is {self.on_error!r}; expected 'fail' or 'skip'"


@frozen
class Variant:
    """One way to do a node: a function with parameters. `Node.variant` makes it.

    Attributes:
        node: The node's name.
        name: The variant's name.
        fn: The function.
        params: Values of its parameters by name, unless they have their defaults.
        description: One line for people.
        active: Whether `all` in a sweep includes it.

    Example:
        >>> from wtb import Workflow
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, *, word: str = "Hello"):
        ...     return {"text": word}
        >>> greet.variant("curt", word="Hi").params
        {'word': 'Hi'}
    """

    node: str
    name: str
    fn: Callable[..., Any]
    params: Params = field(default_factory=dict)
    description: str = ""
    active: bool = True

    @cached_property
    def takes_context(self) -> bool:
        """True if the function has a second positional parameter for the context."""
        parameters = inspect.signature(self.fn).parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(positional) >= 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)

    @property
    def parameters(self) -> tuple[Mapping[str, inspect.Parameter], bool]:
        """Its parameters by name, and whether it takes any others.

        Raises InputError if it cannot have parameters.
        """
        every = inspect.signature(self.fn).parameters.values()
        return {p.name: p for p in every if p.kind is p.KEYWORD_ONLY}, any(p.kind is p.VAR_KEYWORD for p in every)

    def parameter_problems(self, where: str, name: str, values: Sequence[Any]) -> list[tuple[int | None, str]]:
        """Check values of one of its parameters.

        Args:
            where: The beginning of messages.
            name: The parameter's name.
            values: The values to check.

        Returns:
            The problems: the position of the value (None for all values), and a message.
        """
        try:
            parameters, takes_any = self.parameters
        except InputError as error:
            return [(None, f"{where}: {text}") for text in error.problems]
        if name not in parameters:
            takes = ", ".join(parameters) or "none"
            text = f"{where}: takes no parameter {name!r}{did_you_mean(name, parameters)} (it takes: {takes})"
            return [] if takes_any else [(None, text)]
        return [
            (number, text)
            for number, argument in enumerate(values)
            for text in _type_problem(where, self.fn, name, argument)
        ]

    def problems(self) -> list[str]:
        """Check the function and its parameters.

        Returns:
            What is wrong, one line each.
        """
        where = f"node {self.node!r}, variant {self.name!r}"
        signature = inspect.signature(self.fn)
        parameters = self.parameters[0]
        problems_found = []
        if not any(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
            for p in signature.parameters.values()
        ):
            problems_found.append(f"{where}: takes no state; expected (state) or (state, ctx) before any parameters")
        positional = [
            p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        misplaced = positional[2:]
        if len(positional) > 1 and positional[1].default not in (inspect.Parameter.empty, None):
            # A second positional parameter gets the context, although this one has a default of its own.
            misplaced.insert(0, positional[1])
        for parameter in misplaced:
            problems_found.append(f"{where}: {parameter.name!r} must be keyword-only: put a * before the parameters")
        for name, parameter in parameters.items():
            if parameter.default is parameter.empty and name not in self.params:
                problems_found.append(f"{where}: parameter {name!r} has neither a default nor a value")
        for name, argument in self.params.items():
            problems_found += [text for _, text in self.parameter_problems(where, name, [argument])]
        return problems_found


def _type_problem(where: str, fn: Callable[..., Any], name: str, argument: Any) -> list[str]:
    import typing

    # Imported late, because node processes run code that was checked before, and would wait for pydantic.
    import pydantic

    try:
        annotation = typing.get_type_hints(fn).get(name, Any)
        pydantic.TypeAdapter(annotation).validate_python(argument, strict=True)
    except pydantic.ValidationError as error:
        expected = getattr(annotation, "__name__", None) or str(annotation)
        return [f"{where}: parameter {name!r} is {argument!r}; expected {expected} ({error.errors()[0]['msg']})"]
    except (NameError, TypeError, pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError):
        return []  # an annotation that cannot be resolved or checked excludes no value
    return []


class NodeOptions(TypedDict, total=False):
    """The options of `Workflow.node`.

    Attributes:
        name: The name of the node; by default the function's `__name__`.
        variant: The name of the node's own callable among its variants.
        description: One line for people.
        retries: The number of further attempts after a failed one.
        timeout: Seconds that one attempt may take.
        backoff: A Backoff, or its initial seconds.
        final: Errors that are not retried.
        on_error: `skip` continues without the node's writes when its last attempt has failed.
        durable: Whether to commit before it starts and right after it ends.
        queue: The queue of the workers that run it.
        limit: The maximum number of runs at a time.
        rate: The maximum number of starts a second.
        max_usd: US dollars that one attempt may spend. Budgets reserve them before it starts, and `ctx.cost` raises.
        max_tokens: Model tokens that one attempt may spend, likewise.
        threads: The number of runs of a sync node that share a node process, each on a thread; for nodes that wait.
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
    threads: int


class Node:
    """One step of a workflow, with the variants of it. `Workflow.node` makes it.

    Calling it calls its own function, so that it can be tested by itself.

    Attributes:
        name: Its name in the workflow.
        rules: The rules by which it runs: retries, deadline, limits.
        default: The name of its default variant.
        variants: Its variants by name.
        problems: The problems of its variants, one line each; `Workflow.validate` raises them.

    Example:
        >>> from wtb import Workflow
        >>> wf = Workflow("greeting")
        >>> @wf.node
        ... def greet(state, *, word: str = "Hello"):
        ...     return {"text": f"{word}, {state['name']}!"}
        >>> greet({"name": "Ana"}, word="Hi")
        {'text': 'Hi, Ana!'}
        >>> wf["greet"].active()
        ['default']
    """

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
                f" (it has: {nearest_names(variant, self.variants)})"
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
        """Add a variant: another function, or the same one with other parameters.

        Args:
            name: The variant's name.
            fn: Another function with the node's signature. Without it and without parameters this is a decorator.
            of: The variant that this one derives from; by default the node's default.
            description: One line for people.
            **params: Values of keyword-only parameters of the function, by name.

        Returns:
            The variant; as a decorator, the decorated function.

        Raises:
            InputError: If there is no variant `of`.

        Example:
            >>> from wtb import Workflow
            >>> wf = Workflow("search")
            >>> @wf.node
            ... def retrieve(state, *, k: int = 5):
            ...     return {"docs": list(range(k))}
            >>> deep = retrieve.variant("deep", k=50)
            >>> @retrieve.variant("none")
            ... def _(state):
            ...     return {"docs": []}
            >>> retrieve
            <node retrieve: default, deep, none>
        """
        if fn is None and of is None and not params:

            def register(decorated: Fn) -> Fn:
                self._add(self.variant_type(self.name, name, decorated, {}, description))
                return decorated

            return register
        parent = self[of or self.default]
        # Another function need not have the parameters of the parent's.
        merged = dict(params) if fn is not None and of is None else {**parent.params, **params}
        added = self.variant_type(self.name, name, fn or parent.fn, merged, description)
        self._add(added)
        return added

    def _add(self, variant: Variant) -> None:
        if variant.name in self.variants:
            # Not raised here, so that `Workflow.validate` reports all problems at once.
            self.problems.append(f"node {self.name!r} has two variants named {variant.name!r}")
            return
        self.variants[variant.name] = variant

    def copy(self) -> Self:
        """Copy the node, so that variants can be added without touching this one.

        Returns:
            The copy.
        """
        twin = copy.copy(self)
        twin.variants, twin.problems = dict(self.variants), list(self.problems)
        return twin

    def code(self, variant: Variant) -> Any:
        """Return the code of a variant for fingerprints.

        Args:
            variant: One of this node's variants.

        Returns:
            A function, or a list of the parts of the code.
        """
        return variant.fn

    def variant_problems(self, names: Sequence[str]) -> list[str]:
        """Check the variants that a sweep chooses.

        Args:
            names: Names of variants of this node.

        Returns:
            The reasons why they cannot run as chosen, one line each.
        """
        return []

    def deactivate(self, variant: str) -> None:
        """Exclude a variant from `all`; a sweep can still name it.

        Args:
            variant: Its name.

        Raises:
            InputError: For an unknown variant.
        """
        self.variants[variant] = replace(self[variant], active=False)

    def activate(self, variant: str) -> None:
        """Include a variant in `all` again.

        Args:
            variant: Its name.

        Raises:
            InputError: For an unknown variant.
        """
        self.variants[variant] = replace(self[variant], active=True)

    def active(self) -> list[str]:
        """List the variants that `all` means in a sweep.

        Returns:
            Names of variants, in the order in which they were added.
        """
        return [name for name, variant in self.variants.items() if variant.active]
