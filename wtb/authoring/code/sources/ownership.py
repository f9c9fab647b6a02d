"""Whose code an object is, and under which name: the user's own, Python's, or that of an installed distribution."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from wtb.authoring.code.langchain_parts import is_foreign, parts_of
from wtb.authoring.code.sources.distributions import distribution_of
from wtb.authoring.code.sources.modules import is_own


def is_own_code(value: Any) -> bool:
    """Return whether a value is a function or a class of the user's, or an object of such a class."""
    named = value if isinstance(value, type | FunctionType | MethodType) else type(value)
    return isinstance(value, functools.partial) or is_own(module_name_of(named))


def packages_looked_into(root: Any) -> Iterator[str]:
    """Yield the packages of others that are looked into: those of a node that is an object of theirs itself."""
    roots, seen = [(root, False)], {id(root)}
    for thing, is_captured in roots:  # grows; what is wrapped or captured shows whose code it is
        package = package_of(thing)
        own = is_own(module_name_of(thing))
        if package != "None" and not own and not (is_captured or _is_known(package) or is_foreign(package)):
            yield package
        for part, is_part in _wrapped(thing):
            counts = callable(part) or isinstance(part, list | tuple | dict) or parts_of(part) is not None
            if counts and id(part) not in seen:
                seen.add(id(part))
                roots.append((part, is_captured or is_part))


def _wrapped(value: Any) -> Iterator[tuple[Any, bool]]:
    """Yield what shows whose code a value is, if not the user's itself: what it wraps, and (True) what it holds."""
    if isinstance(value, functools.partial):
        yield value.func, False
    elif isinstance(value, MethodType):
        yield from ((part, False) for part in (value.__func__, value.__self__))
    elif hasattr(value, "__wrapped__"):
        yield value.__wrapped__, False
    if isinstance(value, list | tuple):
        yield from ((part, False) for part in value)
    elif isinstance(value, dict):
        yield from ((part, False) for part in value.values())
    elif (captured := parts_of(value)) is not None:
        yield from ((part, True) for part in captured.values())
    elif isinstance(value, FunctionType):
        if not is_own(module_name_of(value)):
            yield from ((part, True) for part in inspect.getclosurevars(value).nonlocals.values())
    elif package_of(value) == "wtb" and not isinstance(value, type):
        yield from ((part, True) for part in getattr(value, "__dict__", {}).values() if callable(part))


def held_by(thing: Any) -> Iterable[Any]:
    """Return what a container, a partial, a method or an object of the user's holds."""
    if isinstance(thing, list | tuple):
        return thing
    if isinstance(thing, dict):
        return thing.values()
    if isinstance(thing, functools.partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if isinstance(thing, MethodType):
        return (thing.__func__, thing.__self__)
    attributes = getattr(thing, "__dict__", {}) if is_own(module_name_of(type(thing))) else {}
    return [attributes[name] for name in sorted(attributes, key=str)]


def module_name_of(value: Any) -> str:
    return str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None))


def package_of(value: Any) -> str:
    return module_name_of(value).partition(".")[0]


def _is_known(package: str) -> bool:
    return package == "wtb" or package in sys.stdlib_module_names


def name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}{version_of(value)}"


def version_of(value: Any) -> str:
    """The distribution that something is from, where it is not the project's own."""
    package = package_of(value)
    distribution = None if _is_known(package) else distribution_of(package)
    return "" if distribution is None else f" of {distribution}"
