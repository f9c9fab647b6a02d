"""Dataclasses whose instances never change, made in a fifth of the time that `dataclass(frozen=True)` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")


class _Unset:
    """Stands for the argument of a field with a factory, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET: Final = _Unset()


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def frozen(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def frozen(*, slots: bool) -> Callable[[type[T]], type[T]]: ...
def frozen(cls: type[Any] | None = None, /, *, slots: bool = False) -> Any:
    """Make a class a dataclass whose instances never change, as `dataclass(frozen=True)` does.

    That decorator compiles six methods for each class, which takes a quarter of the start of a command: these classes
    share all methods except `__init__`. A class cannot derive from one that `dataclass(frozen=True)` made, nor the
    other way.

    Args:
        cls: A class with annotated fields.
        slots: Give it slots. Its bases need them, too.

    Returns:
        The class; with slots a new one, as `dataclass` makes it.
    """
    if cls is None:
        return partial(_frozen, slots=slots)
    return _frozen(cls, slots=slots)


def _frozen(cls: type[Any], *, slots: bool) -> type[Any]:
    cls = dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    if "__init__" not in vars(cls):
        cls.__init__ = _initializer(cls, slots)
    for name, method in (_SHARED | _OF_SLOTS if slots else _SHARED).items():
        # The hash is None if the class has an `__eq__` of its own.
        if getattr(cls, name, None) in (None, getattr(object, name, None)):
            setattr(cls, name, method)
    return cls


def _initializer(cls: type, slots: bool) -> Callable[..., None]:
    """Compile the `__init__` of a class."""
    names: dict[str, Any] = {"_UNSET": _UNSET}
    positional: list[str] = []
    by_name: list[str] = []
    # Assigning goes past `__setattr__`, which raises an error: to the instance's dict, or to the descriptors of slots.
    lines = ["pass" if slots else "_fields_of_self = self.__dict__"]

    def assign(name: str, expression: str) -> None:
        if slots:
            names[f"_set_{name}"] = getattr(cls, name).__set__
        lines.append(f"_set_{name}(self, {expression})" if slots else f"_fields_of_self[{name!r}] = {expression}")

    for place in fields(cls):
        name, has_factory = place.name, place.default_factory is not MISSING
        if has_factory:
            names[f"_make_{name}"] = place.default_factory
        if not place.init:
            if has_factory:
                assign(name, f"_make_{name}()")
            continue
        parameter = name
        if has_factory:
            parameter = f"{name}=_UNSET"
            assign(name, f"_make_{name}() if {name} is _UNSET else {name}")
        else:
            if place.default is not MISSING:
                names[f"_default_{name}"] = place.default
                parameter = f"{name}=_default_{name}"
            assign(name, name)
        (by_name if place.kw_only else positional).append(parameter)
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines), names)
    initializer: Callable[..., None] = names["__init__"]
    initializer.__annotations__ = {place.name: place.type for place in fields(cls) if place.init} | {"return": None}
    initializer.__qualname__, initializer.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return initializer


_keys: dict[type, Callable[[Any], Any]] = {}


def _key_of(instance: Any) -> Callable[[Any], Any]:
    """Return a function that reads the fields of an instance that are compared."""
    cls = type(instance)
    # Made at the first comparison: most classes are never compared, and making it takes time at import.
    if cls not in _keys:
        names = [place.name for place in fields(cls) if place.compare]
        _keys[cls] = attrgetter(*names) if names else lambda _: ()
    return _keys[cls]


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    key = _key_of(self)
    return key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(_key_of(self)(self))


def _repr(self: Any) -> str:
    fields_text = ", ".join(f"{place.name}={getattr(self, place.name)!r}" for place in fields(self) if place.repr)
    return f"{type(self).__qualname__}({fields_text})"


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, place.name) for place in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for place, content in zip(fields(self), state, strict=True):
        object.__setattr__(self, place.name, content)


_SHARED: Final = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}
_OF_SLOTS: Final = {
    "__getstate__": _get_state,
    "__setstate__": _set_state,
}  # for copies and pickles, which would otherwise assign to fields
