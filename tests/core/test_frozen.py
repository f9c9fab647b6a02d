"""Classes of `frozen` are dataclasses as `dataclass(frozen=True)` makes them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from wtb.core.frozen import frozen


@frozen
class Point:
    """A place."""

    x: int
    y: int = 0
    values: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)
    cache: dict[str, int] = field(default_factory=dict, init=False, compare=False)
    unit: str = field(default="cm", kw_only=True)

    @cached_property
    def length(self) -> int:
        """Its distance, in steps."""
        return self.x + self.y


def declared(decorator: Callable[[Any], Any]) -> Any:
    """The same class as `Point`, made by a decorator."""

    class Place:
        x: int
        y: int = 0
        values: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        cache: dict[str, int] = field(default_factory=dict, init=False, compare=False)
        unit: str = field(default="cm", kw_only=True)

    return decorator(Place)


@pytest.mark.parametrize("slots", [False, True])
def test_its_signature_fields_and_texts_are_those_of_a_dataclass(slots: bool) -> None:
    ours, theirs = declared(frozen(slots=slots)), declared(dataclass(frozen=True, slots=slots))
    assert hasattr(ours(1), "__dict__") is not slots
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [place.name for place in fields(ours)] == [place.name for place in fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((1,), {}), ((1, 2, ["a"], "b"), {"unit": "m"})]
    for positional, named in calls:
        assert repr(ours(*positional, **named)) == repr(theirs(*positional, **named))
        assert asdict(ours(*positional, **named)) == asdict(theirs(*positional, **named))


@pytest.mark.parametrize("wrong", [{}, {"x": 1, "z": 2}, {"x": 1, "cache": {}}])
def test_arguments_that_it_does_not_have_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Point(**wrong)


def test_factories_make_a_value_for_each_instance() -> None:
    assert Point(1).values is not Point(1).values
    assert Point(1).cache == {}


def test_instances_are_equal_by_the_fields_that_are_compared() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1) != Point(2)
    assert Point(1) != (1, 0, [], "cm")
    assert hash(Single(1)) == hash(Single(1))
    assert {Single(1): "found"}[Single(1)] == "found"
    assert len({Empty(), Empty()}) == 1


def test_instances_never_change() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'other'"):
        point.other = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del point.x
    assert point.length == 1
    assert replace(point, y=3).length == 4


@pytest.mark.parametrize("slots", [False, True])
def test_instances_can_be_copied(slots: bool) -> None:
    point = declared(frozen(slots=slots))(1, 2, ["a"])
    assert copy.deepcopy(point) == copy.copy(point) == point


@frozen(slots=True)
class Narrow:
    """Two fields in slots."""

    x: int
    y: int = 0


@frozen(slots=True)
class Wider(Narrow):
    """Another field."""

    z: int = 0


def test_instances_with_slots_never_change_and_are_equal_by_their_fields() -> None:
    assert Wider(1, z=2) == Wider(1, 0, 2) != Wider(1)
    assert Narrow(1) != Wider(1)
    assert hash(Wider(1)) == hash(Wider(1))
    assert replace(Wider(1), y=3) == Wider(1, 3)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        Wider(1).x = 2  # type: ignore[misc]


@frozen
class Single:
    """One field."""

    x: int


@frozen
class Empty:
    """No field."""


@frozen
class Named(Single):
    """A class with methods of its own."""

    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.upper())

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@frozen
class Sorted(Named):
    """A class that derives from it."""

    place: int = 0


def test_methods_of_the_class_or_its_bases_are_kept() -> None:
    assert repr(Named(1, "a")) == "<A>"
    assert repr(Sorted(1, "a", 3)) == "<A>"
    assert Named(1, "a") == Sorted(2, "a")
    assert hash(Named(1, "a")) == hash(Sorted(2, "a"))
