"""Operations as methods: their arguments, types and docstrings are those of the operation, and are written once.

A method is a plain function whose type is generic in the parameters of its operation, so that type checkers, `help` and
`inspect.signature` see them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from wtb.operations.context import Backend, Context

Function = TypeVar("Function", bound=Callable[..., Any])

_SECTIONS = ("Args", "Returns", "Raises")
_HEADING = re.compile(r"(?m)^(Args|Returns|Raises|Example):\n")
_ENTRY = re.compile(r"(?m)^    (?=\S)")


def documented_by(operation: Callable[..., Any]) -> Callable[[Function], Function]:
    """Complete the docstring of a method from that of the operation that it calls.

    Args:
        operation: Its docstring has the sections that the method's own lacks; arguments that the method does not take
            are left out, and those that only the method describes come first.

    Returns:
        A decorator of the method.
    """

    def complete(method: Function) -> Function:
        own, inherited = _sections(method), _sections(operation)
        parameters = set(inspect.signature(method).parameters) - {"self"}
        args = {**_entries(own.pop("Args", "")), **_entries(inherited.pop("Args", ""))}
        args |= _entries(_sections(method).get("Args", ""))
        summary = own.pop("") or inherited[""]
        if listed := "".join(f"    {text}" for name, text in args.items() if name in parameters):
            own["Args"] = listed
        sections = {name: own.get(name) or inherited.get(name) for name in _SECTIONS}
        sections["Example"] = own.get("Example") or inherited.get("Example")
        parts = [f"{name}:\n{text.rstrip()}" for name, text in sections.items() if text]
        method.__doc__ = "\n\n".join([summary.rstrip(), *parts]) + "\n"
        return method

    return complete


def returns_of(function: Callable[..., Any] | None) -> str:
    """Return the section `Returns` of a docstring; nothing if there is no function."""
    section = None if function is None else _sections(function).get("Returns")
    return f"\nReturns:\n{section.rstrip()}\n" if section else ""


def arguments_described(operation: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of an operation's arguments from its docstring, one line each.

    Args:
        operation: Any function.
    """
    entries = _entries(_sections(operation).get("Args", ""))
    return {name: " ".join(text.partition(":")[2].split()) for name, text in entries.items()}


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """Return the sections of a docstring by name; the text before them has an empty name."""
    summary, *rest = _HEADING.split(inspect.getdoc(function) or "")
    return {"": summary, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _entries(section: str) -> dict[str, str]:
    """Return the arguments of a section by name."""
    texts = [text.rstrip() + "\n" for text in _ENTRY.split(section) if text.strip()]
    return {text.partition(":")[0].lstrip("*"): text for text in texts}


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class HasBackend(Protocol):
    """An object whose backend executes operations."""

    @property
    def backend(self) -> Backend:
        """Backend of its operations."""


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
    return _made(operation, convert, takes_id=False)


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
    return _made(operation, convert, takes_id=True)


def _made(operation: Callable[..., Any], convert: Callable[..., Any] | None, *, takes_id: bool) -> Callable[..., Any]:
    """Return a method with the name, the signature and the docstring of its operation."""

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(inspect.signature(call).bind(self, *args, **kwargs).arguments)
        del arguments["self"]
        reply = self.backend.call(operation, *([self.id] if takes_id else []), **arguments)
        return reply if convert is None else convert(reply)

    signature = inspect.signature(operation)
    returned = signature if convert is None else inspect.signature(convert)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # The object provides the context, and its id where the operation takes one.
    parameters = [self, *list(signature.parameters.values())[2 if takes_id else 1 :]]
    call.__name__ = operation.__name__
    call.__signature__ = returned.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__doc__ = returns_of(convert)
    # The documentation and its tests find the operation of a method by this attribute.
    call.operation = operation  # type: ignore[attr-defined]
    return documented_by(operation)(call)
