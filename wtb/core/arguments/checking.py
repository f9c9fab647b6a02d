"""The one place where bad arguments are refused: by what functions say that their arguments may be."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from wtb.core.arguments.kinds import (
    NOTHING,
    FilePath,
    Instance,
    Kind,
    Kinds,
    Listed,
    Mapped,
    Moment,
    Number,
    OneOf,
    Text,
)
from wtb.core.errors import InputError, describe

P = ParamSpec("P")
R = TypeVar("R")

_KINDS: Mapping[Any, Kind] = {
    str: Text(),
    int: Number(whole=True),
    float: Number(),
    bool: Instance(bool),
    datetime: Moment(),
    Path: FilePath(),
    type(None): NOTHING,
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function refuse arguments that are not what their annotations say, before it begins.

    Args:
        function: `Annotated` types of `kinds` bound numbers and texts. What is annotated with `Any`, a protocol or a
            function is not checked.

    Returns:
        The function. It raises InputError with the argument's name, what was found and what is expected. An operation
        is asked about by its context, too, whose `authorize` raises where a policy forbids it.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def check_first(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        kinds = kinds_of(function)
        for name, value in arguments.items():
            check(name, value, kinds.get(name))
        if (authorize := getattr(arguments.get("context"), "authorize", None)) is not None:
            authorize(function, arguments)
        return function(*args, **kwargs)

    return check_first


def check_fields(record: Any) -> None:
    """Refuse a dataclass of arguments that has one that is not what its annotation says. Raises InputError."""
    kinds = kinds_of(record.__class__)
    for field in fields(record):
        check(field.name, getattr(record, field.name), kinds.get(field.name))


def check(name: str, value: object, kinds: Kinds | None) -> None:
    """Refuse the value of an argument that is of none of its kinds; None is for anything. Raises InputError."""
    wrong = None if kinds is None else kinds.problem(name, value)
    if wrong is not None:
        raise InputError(wrong, argument=name)


def as_path(name: str, argument: object, expected: str = "a path") -> Path:
    """Return the path that an argument is. Raises InputError if it is none."""
    if not isinstance(argument, str | Path):
        raise InputError(f"{name} is {describe(argument)}; expected {expected}", argument=name)
    check(name, Path(argument), Kinds((FilePath(),)))
    return Path(argument)


@cache
def kinds_of(annotated: Callable[..., Any]) -> Mapping[str, Kinds | None]:
    """Return what may be given for each annotated name of a function or class; None is anything."""
    hints = get_type_hints(annotated, include_extras=True)
    return {name: _kinds(hint) for name, hint in hints.items() if name != "return"}


def _kinds(hint: Any) -> Kinds | None:
    """What an annotation allows; None is anything."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [_kind(alternative) for alternative in alternatives]
    known_kinds = tuple(kind for kind in kinds if kind is not None)
    return Kinds(known_kinds) if len(known_kinds) == len(kinds) else None


def _kind(hint: Any) -> Kind | None:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind: Kind = args[1]
        return kind
    if origin is Literal:
        return OneOf(args)
    if is_typeddict(hint):
        return Mapped(None)
    if origin is Mapping:
        return Mapped(_kinds(args[1]))
    if origin in (Sequence, Collection, Iterable):
        return Listed(_kinds(args[0]))
    if hint in _KINDS:
        return _KINDS[hint]
    is_checkable = isinstance(hint, type) and not getattr(hint, "_is_protocol", False) and hint not in (object, Any)
    return Instance(hint) if is_checkable else None
