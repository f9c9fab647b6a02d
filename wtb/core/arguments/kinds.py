"""Kinds of arguments, and what is wrong with a value that is none of its kind."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

from wtb.core.classes.frozen import frozen
from wtb.core.errors import describe
from wtb.core.units import LONGEST_S, MOST_SLOTS

MAX_ROWS = 2**31 - 1  # rows: fewer than what either database can count


class Kind(Protocol):
    """What an argument may be."""

    @property
    def expected(self) -> str:
        """What it is, in words."""

    def matches(self, value: object) -> bool:
        """Return whether a value has the type."""

    def problem(self, name: str, value: Any) -> str | None:
        """Return what is wrong with a value of the type; None if nothing is."""


@frozen
class Text:
    """Text that a database can keep."""

    longest: int = 1_000
    may_be_empty: bool = False
    expected: str = "text"

    def matches(self, value: object) -> bool:
        return isinstance(value, str)

    def problem(self, name: str, value: str) -> str | None:
        if not (value or self.may_be_empty):
            return f"{name} is empty; expected text"
        if len(value) > self.longest:
            return f"{name} has {len(value):,} characters; expected at most {self.longest:,}"
        if "\0" in value:
            return f"{name} has a NUL character; expected text without"
        try:
            value.encode()
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

    def matches(self, value: object) -> bool:
        return isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)

    def problem(self, name: str, value: float) -> str | None:
        if math.isfinite(value) and self.above < value and self.at_least <= value <= self.at_most:
            return None
        value = int(value) if value == value // 1 else value  # -1.0 was typed as -1
        is_too_large = MAX_ROWS <= self.at_most < value
        expected = f"at most {int(self.at_most):,}" if is_too_large else self.expected
        return f"{name} is {describe(value)}; expected {expected}"


@frozen
class Moment:
    """A time with its zone: without one it would mean another time on another machine."""

    expected: str = "a datetime with a time zone"

    def matches(self, value: object) -> bool:
        return isinstance(value, datetime)

    def problem(self, name: str, value: datetime) -> str | None:
        if value.utcoffset() is None:
            return f"{name} has no time zone; expected one, as datetime.now(UTC) has"
        return None


@frozen
class FilePath:
    """The path of a file or directory, which may be text if the function makes a Path of it."""

    expected: str = "a path"
    may_be_text: bool = False

    def matches(self, value: object) -> bool:
        return isinstance(value, Path) or (self.may_be_text and isinstance(value, str))

    def problem(self, name: str, value: str | Path) -> str | None:
        return Text(longest=4_096).problem(name, str(value))


@frozen
class OneOf:
    """One of some values."""

    values: tuple[object, ...]

    @property
    def expected(self) -> str:
        return f"one of: {', '.join(map(str, self.values))}" if len(self.values) > 1 else str(self.values[0])

    def matches(self, value: object) -> bool:
        return any(value is choice or (type(value) is type(choice) and value == choice) for choice in self.values)

    def problem(self, name: str, value: object) -> str | None:
        return None


@frozen
class Instance:
    """An object of a class."""

    type: type

    @property
    def expected(self) -> str:
        return "true or false" if self.type is bool else f"a {self.type.__name__}"

    def matches(self, value: object) -> bool:
        return isinstance(value, self.type)

    def problem(self, name: str, value: object) -> str | None:
        return None


@frozen
class Listed:
    """Several values; text is one value, and not several."""

    items: Kinds | None

    @property
    def expected(self) -> str:
        return "a list"

    def matches(self, value: object) -> bool:
        return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)

    def problem(self, name: str, value: Iterable[object]) -> str | None:
        named = ((f"{name}[{number}]", item) for number, item in enumerate(value))
        return _first_problem(self.items, named)


@frozen
class Mapped:
    """Values by name."""

    values: Kinds | None

    @property
    def expected(self) -> str:
        return "a mapping"

    def matches(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def problem(self, name: str, value: Mapping[object, object]) -> str | None:
        wrong = _first_problem(Kinds((Text(),)), ((f"a key of {name}", key) for key in value))
        return wrong or _first_problem(self.values, ((f"{name}[{key!r}]", part) for key, part in value.items()))


@frozen
class Kinds:
    """All that an argument may be."""

    kinds: tuple[Kind, ...]

    def problem(self, name: str, value: object) -> str | None:
        """Return what is wrong with an argument; None if nothing is."""
        matching = [kind for kind in self.kinds if kind.matches(value)]
        if matching:
            return matching[0].problem(name, value)
        expected = " or ".join(dict.fromkeys(kind.expected for kind in self.kinds if kind != NOTHING))
        return f"{name} is {describe(value)}; expected {expected}"


def _first_problem(kinds: Kinds | None, named: Iterable[tuple[str, object]]) -> str | None:
    if kinds is None:
        return None
    return next((text for name, value in named if (text := kinds.problem(name, value)) is not None), None)


NOTHING = OneOf((None,))  # an argument that need not be given

Count = Annotated[int, Number(1, MAX_ROWS, whole=True)]
FromZero = Annotated[int, Number(0, MAX_ROWS, whole=True)]
Whole = Annotated[int, Number(1, 2**63 - 1, whole=True)]
Slots = Annotated[int, Number(1, MOST_SLOTS, whole=True)]
Seconds = Annotated[float, Number(0, LONGEST_S)]
Interval = Annotated[float, Number(0.05, LONGEST_S)]
AtLeastZero = Annotated[float, Number(0)]
Money = Annotated[float, Number(above=0, at_most=1e18)]
# By kind; what each may be, depends on the kind: whole numbers stay whole, also where they come as JSON.
Amounts = Annotated[Mapping[str, int | float | None], Mapped(None)]
Texts = Annotated[Mapping[str, str | None], Mapped(Kinds((Text(1_000, may_be_empty=True), NOTHING)))]
Reason = Annotated[str, Text(10_000, may_be_empty=True)]
AnyPath = Annotated[str | Path, FilePath(may_be_text=True)]
Title = Annotated[str, Text(200)]  # a name that people give
LongText = Annotated[str, Text(10_000)]
AnyText = Annotated[str, Text(100_000_000, may_be_empty=True)]
