"""Operations as methods of clients, with their parameters, types and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from wtb.operations.context import Backend, Context
from wtb.operations.handles.documentation import documented_by

P = ParamSpec("P")
R = TypeVar("R")


class AsyncBackend(Protocol):
    """What carries operations out and does not have its caller wait."""

    async def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Carry out an operation; see `Backend`."""
        ...


def method(operation: Callable[Concatenate[Context, P], R]) -> Callable[Concatenate[Backend, P], R]:
    """Return an operation as a method.

    Args:
        operation: A function of the registry, which a server carries out.

    Returns:
        A method that takes what the operation takes after the context.
    """

    def call(self: Backend, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(operation, *args, **kwargs)

    _describe(call, operation)
    return call


def async_method(
    operation: Callable[Concatenate[Context, P], R],
) -> Callable[Concatenate[AsyncBackend, P], Coroutine[Any, Any, R]]:
    """Return an operation as a method to be awaited; see `method`."""

    async def call(self: AsyncBackend, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.call(operation, *args, **kwargs)

    _describe(call, operation)
    return call


def _describe(call: Callable[..., Any], operation: Callable[..., Any]) -> None:
    """Give a method the name, the signature and the docstring of its operation, as a method has them."""
    signature = inspect.signature(operation)
    _, *parameters = signature.parameters.values()
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__ = operation.__name__
    call.__signature__ = signature.replace(parameters=[self, *parameters])  # type: ignore[attr-defined]
    call.__doc__ = (operation.__doc__ or "").partition("\n\n")[0]
    documented_by(operation)(call)
