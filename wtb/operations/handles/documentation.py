"""Docstrings of methods that call an operation: what they share with its docstring is written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

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
    """Return what the docstring of an operation says of each argument, in one line.

    Args:
        operation: Any function.
    """
    entries = _entries(_sections(operation).get("Args", ""))
    return {name: " ".join(text.partition(":")[2].split()) for name, text in entries.items()}


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """The sections of a docstring by name; what is before them has the name of nothing."""
    summary, *rest = _HEADING.split(inspect.getdoc(function) or "")
    return {"": summary, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _entries(section: str) -> dict[str, str]:
    """The arguments of a section by name."""
    texts = [text.rstrip() + "\n" for text in _ENTRY.split(section) if text.strip()]
    return {text.partition(":")[0].lstrip("*"): text for text in texts}
