"""Operations as methods: their arguments, types and docstrings are those of the operation, and are written once.

A method is a plain function whose type is generic in the parameters of its operation, so that type checkers, `help` and
`inspect.signature` see them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from wtb.core.mappings import Arguments
from wtb.operations.context import Backend, Context
from wtb.operations.handles.documentation import documented_by, returns_of

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class HasBackend(Protocol):
    """An object whose backend carries operations out."""

    @property
    def backend(self) -> Backend:
        """Where its operations are carried out."""


class HasTarget(HasBackend, Protocol):
    """An object that stands for a sweep or an execution, on which its operations act."""

    id: str


@overload
def method(operation: Callable[Concatenate[Context, P], R]) -> Callable[Concatenate[HasBackend, P], R]: ...


@overload
def method(
    operation: Callable[Concatenate[Context, P], R], convert: Callable[[R], S]
) -> Callable[Concatenate[HasBackend, P], S]: ...


def method(operation: Callable[..., Any], convert: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Return an operation as a method.

    Args:
        operation: A function of the registry, or a preview.
        convert: Makes the result of the method from that of the operation, and documents it under `Returns`.
    """

    def call(self: HasBackend, /, *args: Any, **kwargs: Any) -> Any:
        result = self.backend.call(operation, **_by_name(call, self, args, kwargs))
        return result if convert is None else convert(result)

    return _described(call, operation, convert, implied=1)


@overload
def target_method(operation: Callable[Concatenate[Context, str, P], R]) -> Callable[Concatenate[HasTarget, P], R]: ...


@overload
def target_method(
    operation: Callable[Concatenate[Context, str, P], R], convert: Callable[[R], S]
) -> Callable[Concatenate[HasTarget, P], S]: ...


def target_method(operation: Callable[..., Any], convert: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """Return an operation that acts on a sweep or an execution as a method of its handle, which gives its id.

    Args:
        operation: A function of the registry, or a preview; it takes the id after the context.
        convert: Makes the result of the method from that of the operation, and documents it under `Returns`.
    """

    def call(self: HasTarget, /, *args: Any, **kwargs: Any) -> Any:
        result = self.backend.call(operation, self.id, **_by_name(call, self, args, kwargs))
        return result if convert is None else convert(result)

    return _described(call, operation, convert, implied=2)


def _by_name(call: Callable[..., Any], self: object, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
    """Return the arguments of a method by name. Raises TypeError."""
    arguments = dict(inspect.signature(call).bind(self, *args, **kwargs).arguments)
    del arguments["self"]
    return arguments


def _described(
    call: Callable[..., Any], operation: Callable[..., Any], convert: Callable[..., Any] | None, implied: int
) -> Callable[..., Any]:
    """Give a method the name, the signature and the docstring of its operation.

    implied: how many arguments of the operation the object gives.
    """
    signature = inspect.signature(operation)
    returned = signature if convert is None else inspect.signature(convert)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [self, *list(signature.parameters.values())[implied:]]
    call.__name__ = operation.__name__
    call.__signature__ = returned.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__doc__ = returns_of(convert)
    call.operation = operation  # type: ignore[attr-defined]
    return documented_by(operation)(call)
