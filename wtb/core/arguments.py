"""Checks of arguments: bad arguments are rejected here, according to the annotations of functions."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.units import LONGEST_S, MOST_SLOTS

MAX_ROWS = 2**31 - 1  # rows: fewer than what either database can count


class Kind(Protocol):
    """A kind of argument."""

    @property
    def expected(self) -> str:
        """The kind in words."""

    def matches(self, argument: object) -> bool:
        """Return whether a value has the type."""

    def problem(self, name: str, argument: Any) -> str | None:
        """Return the problem with a value of the type; None if there is none."""


@frozen
class Text:
    """Text that a database can keep."""

    longest: int = 1_000
    may_be_empty: bool = False
    expected: str = "text"

    def matches(self, argument: object) -> bool:
        return isinstance(argument, str)

    def problem(self, name: str, argument: str) -> str | None:
        if not (argument or self.may_be_empty):
            return f"{name} is empty; expected text"
        if len(argument) > self.longest:
            return f"{name} has {len(argument):,} characters; expected at most {self.longest:,}"
        if "\0" in argument:
            return f"{name} has a NUL character; expected text without"
        try:
            argument.encode()
        except UnicodeEncodeError:
            return f"{name} has half of a surrogate pair; expected text that UTF-8 can encode"
        return None


@frozen
class Number:
    """A number, whole or not, from one bound to another."""

    at_least: float = -math.inf
    at_most: float = math.inf
    whole: bool = False
    above: float = -math.inf

    @property
    def expected(self) -> str:
        what = "a whole number" if self.whole else "a finite number"
        if self.above > -math.inf:
            return f"{what} above {self.above:,.15g}"
        if self.at_least == -math.inf:
            return what
        if self.at_most >= MAX_ROWS:
            return f"{what} of at least {self.at_least:,.15g}"
        return f"{what} from {self.at_least:,.15g} to {self.at_most:,.15g}"

    def matches(self, argument: object) -> bool:
        # A bool is an int in Python, and no number here.
        return isinstance(argument, int if self.whole else int | float) and not isinstance(argument, bool)

    def problem(self, name: str, argument: float) -> str | None:
        if math.isfinite(argument) and self.above < argument and self.at_least <= argument <= self.at_most:
            return None
        argument = int(argument) if argument == argument // 1 else argument  # -1.0 was typed as -1
        is_too_large = MAX_ROWS <= self.at_most < argument
        expected = f"at most {int(self.at_most):,}" if is_too_large else self.expected
        return f"{name} is {describe(argument)}; expected {expected}"


@frozen
class Moment:
    """A time with its zone, because a time without one would mean another time on another machine."""

    expected: str = "a datetime with a time zone"

    def matches(self, argument: object) -> bool:
        return isinstance(argument, datetime)

    def problem(self, name: str, argument: datetime) -> str | None:
        if argument.utcoffset() is None:
            return f"{name} has no time zone; expected one, as datetime.now(UTC) has"
        return None


@frozen
class FilePath:
    """The path of a file or directory, which may be text if the function makes a Path of it."""

    expected: str = "a path"
    may_be_text: bool = False

    def matches(self, argument: object) -> bool:
        return isinstance(argument, Path) or (self.may_be_text and isinstance(argument, str))

    def problem(self, name: str, argument: str | Path) -> str | None:
        return Text(longest=4_096).problem(name, str(argument))


@frozen
class OneOf:
    """One of some values."""

    values: tuple[object, ...]

    @property
    def expected(self) -> str:
        return f"one of: {', '.join(map(str, self.values))}" if len(self.values) > 1 else str(self.values[0])

    def matches(self, argument: object) -> bool:
        # Types are compared, too, because True equals 1 and 1.0 in Python.
        return any(
            argument is choice or (type(argument) is type(choice) and argument == choice) for choice in self.values
        )

    def problem(self, name: str, argument: object) -> str | None:
        return None


@frozen
class Instance:
    """An object of a class."""

    type: type

    @property
    def expected(self) -> str:
        return "true or false" if self.type is bool else f"a {self.type.__name__}"

    def matches(self, argument: object) -> bool:
        return isinstance(argument, self.type)

    def problem(self, name: str, argument: object) -> str | None:
        return None


@frozen
class Listed:
    """Several values; a text counts as one value."""

    items: Kinds | None

    @property
    def expected(self) -> str:
        return "a list"

    def matches(self, argument: object) -> bool:
        return isinstance(argument, Collection) and not isinstance(argument, str | bytes | Mapping)

    def problem(self, name: str, argument: Iterable[object]) -> str | None:
        named = ((f"{name}[{number}]", member) for number, member in enumerate(argument))
        return _first_problem(self.items, named)


@frozen
class Mapped:
    """Values by name."""

    values: Kinds | None

    @property
    def expected(self) -> str:
        return "a mapping"

    def matches(self, argument: object) -> bool:
        return isinstance(argument, Mapping)

    def problem(self, name: str, argument: Mapping[object, object]) -> str | None:
        wrong = _first_problem(Kinds((Text(),)), ((f"a key of {name}", key) for key in argument))
        return wrong or _first_problem(self.values, ((f"{name}[{key!r}]", part) for key, part in argument.items()))


@frozen
class Kinds:
    """All kinds that an argument may have."""

    kinds: tuple[Kind, ...]

    def problem(self, name: str, argument: object) -> str | None:
        """Return the problem with an argument; None if there is none."""
        matching = [kind for kind in self.kinds if kind.matches(argument)]
        if matching:
            return matching[0].problem(name, argument)
        expected = " or ".join(dict.fromkeys(kind.expected for kind in self.kinds if kind != NOTHING))
        return f"{name} is {describe(argument)}; expected {expected}"


def _first_problem(kinds: Kinds | None, named: Iterable[tuple[str, object]]) -> str | None:
    if kinds is None:
        return None
    return next((text for name, argument in named if (text := kinds.problem(name, argument)) is not None), None)


NOTHING = OneOf((None,))  # an argument that need not be given

Count = Annotated[int, Number(1, MAX_ROWS, whole=True)]
FromZero = Annotated[int, Number(0, MAX_ROWS, whole=True)]
Whole = Annotated[int, Number(1, 2**63 - 1, whole=True)]
Slots = Annotated[int, Number(1, MOST_SLOTS, whole=True)]
Seconds = Annotated[float, Number(0, LONGEST_S)]
Interval = Annotated[float, Number(0.05, LONGEST_S)]
AtLeastZero = Annotated[float, Number(0)]
Money = Annotated[float, Number(above=0, at_most=1e18)]
# Amounts by kind; the kind decides which values are valid. Whole numbers stay whole, even if they come as JSON.
Amounts = Annotated[Mapping[str, int | float | None], Mapped(None)]
Texts = Annotated[Mapping[str, str | None], Mapped(Kinds((Text(1_000, may_be_empty=True), NOTHING)))]
Reason = Annotated[str, Text(10_000, may_be_empty=True)]
AnyPath = Annotated[str | Path, FilePath(may_be_text=True)]
Title = Annotated[str, Text(200)]  # a name that people give
LongText = Annotated[str, Text(10_000)]
AnyText = Annotated[str, Text(100_000_000, may_be_empty=True)]


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
    """Make a function reject arguments that do not match their annotations, before it begins.

    Args:
        function: `Annotated` types of this module bound numbers and texts. Arguments that are annotated with `Any`, a
            protocol or a function are not checked.

    Returns:
        The function. It raises InputError with the argument's name, the found and the expected value. Its context, if
        it has one, authorizes the call as well, and raises an error if a policy forbids it.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def check_first(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        kinds = kinds_of(function)
        for name, argument in arguments.items():
            check(name, argument, kinds.get(name))
        # After the checks, because policies read the arguments and may rely on their types.
        if (authorize := getattr(arguments.get("context"), "authorize", None)) is not None:
            authorize(function, arguments)
        return function(*args, **kwargs)

    return check_first


def check_fields(record: Any) -> None:
    """Reject a dataclass of arguments with a field that does not match its annotation. Raises InputError."""
    kinds = kinds_of(record.__class__)
    for field in fields(record):
        check(field.name, getattr(record, field.name), kinds.get(field.name))


def check(name: str, argument: object, kinds: Kinds | None) -> None:
    """Reject the value of an argument that is of none of its kinds; None allows anything. Raises InputError."""
    wrong = None if kinds is None else kinds.problem(name, argument)
    if wrong is not None:
        raise InputError(wrong, argument=name)


def as_path(name: str, argument: object, expected: str = "a path") -> Path:
    """Return the path of an argument. Raises InputError if it is none."""
    if not isinstance(argument, str | Path):
        raise InputError(f"{name} is {describe(argument)}; expected {expected}", argument=name)
    check(name, Path(argument), Kinds((FilePath(),)))
    return Path(argument)


@cache
def kinds_of(annotated: Callable[..., Any]) -> Mapping[str, Kinds | None]:
    """Return the kinds of each annotated name of a function or class; None allows anything."""
    # Without extras the bounds in `Annotated` would be lost.
    hints = get_type_hints(annotated, include_extras=True)
    return {name: _kinds(hint) for name, hint in hints.items() if name != "return"}


def _kinds(hint: Any) -> Kinds | None:
    """Return the kinds that an annotation allows; None allows anything."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [_kind(alternative) for alternative in alternatives]
    known_kinds = tuple(kind for kind in kinds if kind is not None)
    # One alternative that cannot be checked makes the whole annotation uncheckable.
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
