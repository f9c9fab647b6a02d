"""The tags of enums, and of objects that are stored by their attributes: dataclasses, pydantic models, listed types.

A class is stored by its name, which must lead to it. No `__init__` runs when an object is loaded, and one whose class
has gained fields since is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
import types
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, NotRequired, TypedDict, TypeVar

from wtb.core.serialization.type_tags import LISTED, Refused, Tag, refusal_of
from wtb.core.serialization.user_modules import barred


def _member(module: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        module = getattr(module, name, None)
    return module


def _class_name(kind: type) -> str:
    """The name under which a class is stored. Raises Refused if the name does not lead back to it."""
    if _member(sys.modules.get(kind.__module__), kind.__qualname__) is not kind:
        where = "inside a function" if "<locals>" in kind.__qualname__ else "where its name does not lead to it"
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise Refused(f"found {name}, a class defined {where}; define it at the top of a module")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str, accepts: Callable[[type], bool]) -> Any:
    """Import the class of a stored name. Raises Refused if it is gone or of another kind."""
    module, _, qualname = name.partition(":")
    member = _member(sys.modules.get(module), qualname)
    if member is None and (process := barred()) is not None:
        raise Refused(f"{name} is a class of user code, which {process} does not import")
    if member is None:  # not imported yet, or another thread is about to
        member = _member(importlib.import_module(module), qualname)
    if not (isinstance(member, type) and accepts(member)):
        raise Refused(f"{name} is gone, or is no longer the kind of class that it was")
    return member


NamesT = TypeVar("NamesT", bound=Collection[str])


class Payload(TypedDict):
    """What is stored of an object: its class and its attributes, and of a pydantic model what else it keeps."""

    type: str
    fields: dict[str, Any]
    set: NotRequired[set[str] | None]
    extra: NotRequired[object]
    private: NotRequired[object]


def _complete(kind: type, names: Collection[str], payload: NamesT) -> NamesT:
    """`payload`, the attributes of an object of the class `kind`, which must have all of `names`."""
    if missing := ", ".join([name for name in names if name not in payload]):
        raise Refused(f"{kind.__module__}.{kind.__qualname__} has no value for {missing}; give it one")
    return payload


def _enum(value: enum.Enum) -> Any:
    named = type(value).__members__.get(value.name) is value  # else it is flags combined
    return {"type": _class_name(type(value)), **({"name": value.name} if named else {"value": value.value})}


def _enum_of(payload: Any) -> Any:
    kind = _class_of(payload["type"], lambda member: issubclass(member, enum.Enum))
    return kind[payload["name"]] if "name" in payload else kind(payload["value"])


def _dataclass(kind: Any) -> Callable[[Any], Payload]:
    """Return the encoder for a dataclass; it takes attributes that are no fields, too."""
    try:
        object.__new__(kind)  # what decoding will do; Python refuses it for subclasses of built-in types
    except TypeError:
        raise refusal_of(kind) from None
    name, names = _class_name(kind), tuple(f.name for f in dataclasses.fields(kind))

    def payload(value: Any) -> Payload:
        own = getattr(value, "__dict__", {})
        if tuple(own) == names:
            return {"type": name, "fields": own}
        fields = {key: getattr(value, key) for key in names if hasattr(value, key)}
        fields |= own  # attributes that are no fields
        return {"type": name, "fields": _complete(kind, names, fields)}

    return payload


def _dataclass_of(payload: Any) -> Any:
    """Make a dataclass object of stored fields, without calling `__init__`."""
    kind = _class_of(payload["type"], dataclasses.is_dataclass)
    value = object.__new__(kind)
    for name, item in _complete(kind, [f.name for f in dataclasses.fields(kind)], payload["fields"]).items():
        object.__setattr__(value, name, item)  # past frozen=True
    return value


def is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic.main")  # which whoever has a model has imported
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _pydantic(kind: Any) -> Callable[[Any], Payload]:
    """Return the encoder for a pydantic model."""
    name, names, unset = _class_name(kind), kind.__pydantic_fields__, sys.modules["pydantic_core"].PydanticUndefined

    def is_cached(key: str) -> bool:  # what a model only remembers: `cached_property` makes that again
        return key not in names and isinstance(getattr(kind, key, None), cached_property)

    def payload(value: Any) -> Payload:
        fields, private = value.__dict__, value.__pydantic_private__
        if fields.keys() != names.keys():
            fields = _complete(kind, names, {key: item for key, item in fields.items() if not is_cached(key)})
        return {
            "type": name,
            "fields": fields,
            "set": value.__pydantic_fields_set__,
            "extra": value.__pydantic_extra__,
            "private": private and {key: item for key, item in private.items() if item is not unset},
        }

    return payload


def _pydantic_of(payload: Any) -> Any:
    """Make an object of a pydantic model of stored fields, without validation."""
    kind, fields = _class_of(payload["type"], is_model), payload["fields"]
    names = kind.__pydantic_fields__
    if fields.keys() != names.keys():
        _complete(kind, names, fields)
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", fields)
    object.__setattr__(value, "__pydantic_fields_set__", payload["set"])
    if not kind.__pydantic_root_model__:  # which has these two on the class, or else among its attributes
        object.__setattr__(value, "__pydantic_extra__", payload["extra"])
        object.__setattr__(value, "__pydantic_private__", payload["private"])
    return value


def is_listed(kind: type) -> bool:
    return LISTED.get().kinds.get(f"{kind.__module__}:{kind.__qualname__}") is kind


def _names(kind: Any) -> list[str]:
    """What objects of a listed class always have: the fields of a named tuple, or slots."""
    if issubclass(kind, tuple):
        return list(kind._fields)
    members = [item for base in kind.__mro__ for item in vars(base).items()]
    return [name for name, member in members if isinstance(member, types.MemberDescriptorType)]


def _object(value: Any) -> Any:
    """Encode an object of a listed class by its attributes; a named tuple by its fields."""
    kind = type(value)
    if isinstance(value, tuple):
        names = _names(kind)
        if len(names) != len(value) or getattr(value, "__dict__", None):
            raise refusal_of(kind)
        return {"type": _class_name(kind), "fields": dict(zip(names, value, strict=True))}
    state = object.__getstate__(value)  # attributes, or attributes and slots
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {"type": _class_name(kind), "fields": _complete(kind, _names(kind), {**(plain or {}), **(slots or {})})}


def _object_of(payload: Any) -> Any:
    """Make an object of a listed class of stored attributes, without calling `__init__`."""
    kind = LISTED.get().kinds.get(payload["type"])
    if kind is None:
        raise Refused(f"{payload['type']} is not among the types that may be loaded{LISTED.get().advice}")
    names, is_tuple = _names(kind), issubclass(kind, tuple)
    fields = _complete(kind, names, payload["fields"])
    value: Any = tuple.__new__(kind, map(fields.get, names)) if is_tuple else object.__new__(kind)
    unknown_names = ", ".join(name for name in fields if name not in names)
    if unknown_names and (is_tuple or not hasattr(value, "__dict__")):
        raise Refused(
            f"{payload['type']} no longer has {unknown_names}; load it with the class that it was stored with"
        )
    for name, item in () if is_tuple else fields.items():
        object.__setattr__(value, name, item)
    return value


OBJECT_TAGS: dict[str, Tag] = {
    # As TAGS; for those in BY_CLASS the second is the class to a function of the value.
    "$enum": (None, _enum, dict, _enum_of),
    "$dataclass": (None, _dataclass, dict, _dataclass_of),
    "$pydantic": (None, _pydantic, dict, _pydantic_of),
    "$object": (None, _object, dict, _object_of),
}
BY_CLASS = {"$dataclass", "$pydantic"}
