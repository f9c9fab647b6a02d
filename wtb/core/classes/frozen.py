"""Dataclasses whose instances never change, made in a fifth of the time that `dataclass(frozen=True)` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


class _Unset:
    """Stands for the argument of a field with a factory, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET: Final = _Unset()


@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass whose instances never change, as `dataclass(frozen=True)` does.

    That compiles six methods for each class, which takes a quarter of the start of a command: these classes share all
    methods but `__init__`. A class cannot be derived from one that `dataclass(frozen=True)` made, nor the other way.

    Args:
        cls: A class with annotated fields, without slots.

    Returns:
        The class.
    """
    dataclass(init=False, repr=False, eq=False)(cls)
    if "__init__" not in vars(cls):
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
    for name, method in _SHARED.items():
        if getattr(cls, name) in (None, getattr(object, name)):  # None: the hash of a class with an __eq__ of its own
            setattr(cls, name, method)
    return cls


def _initializer(cls: type) -> Callable[..., None]:
    """Compile the `__init__` of a class."""
    names: dict[str, Any] = {"_UNSET": _UNSET}
    positional: list[str] = []
    by_name: list[str] = []
    lines = ["_fields_of_self = self.__dict__"]
    for place in fields(cls):
        name, has_factory = place.name, place.default_factory is not MISSING
        if has_factory:
            names[f"_make_{name}"] = place.default_factory
        if not place.init:
            lines += [f"_fields_of_self[{name!r}] = _make_{name}()"] if has_factory else []
            continue
        parameter = name
        if has_factory:
            parameter = f"{name}=_UNSET"
            lines.append(f"_fields_of_self[{name!r}] = _make_{name}() if {name} is _UNSET else {name}")
        else:
            if place.default is not MISSING:
                names[f"_default_{name}"] = place.default
                parameter = f"{name}=_default_{name}"
            lines.append(f"_fields_of_self[{name!r}] = {name}")
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
    """Return what reads the fields of an instance that make it equal to another."""
    cls = type(instance)
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
    shown = ", ".join(f"{place.name}={getattr(self, place.name)!r}" for place in fields(self) if place.repr)
    return f"{type(self).__qualname__}({shown})"


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED: Final = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}
