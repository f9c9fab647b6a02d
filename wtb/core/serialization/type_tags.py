"""The typed extensions of stored JSON: the payload of each tag, and how a value is restored from it.

The codec handles the nesting of values, and this module single types. A tag's payload is plain JSON or contains other
tags, so `$dataclass` does not depend on the types of fields. Tags for classes of users are in `object_tags`.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import importlib
import io
import pathlib
import sys
import types
import uuid
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from functools import cached_property, partial
from math import inf, nan
from operator import attrgetter
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

from wtb.core.serialization.user_modules import barred

MAX_BYTES = 64 * 1024 * 1024
"""The largest encoded value, in bytes."""


class Listed(NamedTuple):
    """Classes whose objects may be stored by their attributes, by `module:qualname`.

    Attributes:
        kinds: The classes.
        advice: How to add a class to them.
        instead: What to do with a value that is too large.
    """

    kinds: Mapping[str, type]
    advice: str
    instead: str


_NOTHING = Listed({}, "", "write it to a file in ctx.workspace and store the path")
LISTED: ContextVar[Listed] = ContextVar("LISTED", default=_NOTHING)
"""Nothing, but for a caller that has a list of its own: LangGraph's types, which are neither dataclasses nor models."""


class Refused(Exception):
    """The reason why a value cannot be stored; the containers around it add their parts of the path, innermost
    first.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.parts: list[str] = []

    def __str__(self) -> str:
        path = "".join(self.parts[::-1][:9]).removeprefix(".") + ("..." if len(self.parts) > 9 else "")
        return f"{path or 'the value'} cannot be stored: {self.reason}"


class Room:
    """The bytes left for one value, so that a huge or self-repeating value is rejected before it is copied.

    It also caches the encoders of classes in the value, so that each class is examined once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self.remaining = limit
        self.encoders: dict[type, Callable[[Any, Room], Any]] = {}

    def take(self, size: int) -> None:
        self.remaining -= size
        if self.remaining < 0:
            raise Refused(f"it is larger than {self.limit:,} bytes as JSON; {LISTED.get().instead}")


def refusal_of(kind: type) -> Refused:
    builtin = next((base.__name__ for base in kind.__mro__ if base in _PLAIN or base in TAG_OF), None)
    if issubclass(kind, types.FunctionType | types.BuiltinFunctionType | types.MethodType | partial | type):
        advice = "store its import path as text and import it in the node that needs it"
    elif issubclass(kind, io.IOBase):
        advice = "write a file in ctx.workspace and store its path"
    elif builtin:
        advice = f"it would come back as another type: convert it with {builtin}(...)"
    else:
        advice = "store plain data, or make it a dataclass or pydantic model at the top of a module"
        advice += LISTED.get().advice
    return Refused(f"found {kind.__module__}.{kind.__qualname__}; {advice}")


# Each tag has two functions: from a value to its payload, and from the payload back to the value.


def _base64(content: bytes) -> str:
    Room(MAX_BYTES).take(len(content))
    return b2a_base64(content, newline=False).decode("ascii")


def _arguments(value: Any) -> Any:
    return list(value.__reduce__()[1])


def _zone_of(payload: Any) -> Any:
    return importlib.import_module("zoneinfo").ZoneInfo(payload)


def _clock(moment: Any) -> Any:
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, moment.tzinfo]


def _clock_of(kind: Any, payload: Any) -> Any:
    text, fold, zone = payload
    return kind.fromisoformat(text).replace(fold=fold, tzinfo=zone)


def _array(array: Any) -> Any:
    """Encode a numpy array: dtype, shape and bytes. Refuses arrays of objects."""
    Room(MAX_BYTES).take(array.nbytes)  # before tobytes copies it
    if not array.dtype.hasobject:
        numpy_format = sys.modules["numpy"].lib.format
        payload = numpy_format.dtype_to_descr(array.dtype)
        if numpy_format.descr_to_dtype(payload) == array.dtype:
            return [payload, list(array.shape), array.tobytes()]
    raise Refused(f"found a numpy array of dtype {array.dtype}; store it as a list, or with another dtype")


def _array_of(payload: Any) -> Any:
    numpy = importlib.import_module("numpy")
    # Stored data is untrusted: numpy reads no pickle here, and dtypes of objects are rejected below.
    descr, shape, content = payload
    dtype = numpy.lib.format.descr_to_dtype(descr)
    array = numpy.ndarray(shape, dtype, bytearray(content))
    if dtype.hasobject or array.nbytes != len(content):
        raise ValueError(f"an array of {dtype} and shape {shape} in {len(content)} bytes")
    return array


def _scalar(scalar: Any) -> Any:
    """Encode a numpy scalar, if it comes back equal and of the same type."""
    payload = _array(sys.modules["numpy"].asarray(scalar))
    decoded = _array_of(payload)[()]
    # numpy drops trailing NULs of its strings, and has several C types for one dtype.
    if type(decoded) is not type(scalar) or decoded.tobytes() != scalar.tobytes():
        raise refusal_of(type(scalar))
    return payload


def is_text(kind: type) -> bool:
    """Return whether a class is LangChain's for the text of a message, which can be called, as in earlier versions."""
    module = sys.modules.get("langchain_core.messages.base")
    return module is not None and kind is getattr(module, "TextAccessor", None)


_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
Tag = tuple[type | None, Callable[[Any], Any], type, Callable[[Any], Any]]
TAGS: dict[str, Tag] = {
    # tag: (exact type, value to what the tag holds, type of what it holds, and back)
    "$tuple": (tuple, list, list, tuple),
    "$set": (set, list, list, set),
    "$frozenset": (frozenset, list, list, frozenset),
    "$map": (None, list, list, dict),
    # Hexadecimal, because Python neither writes nor reads more than 4300 decimal digits.
    "$int": (None, hex, str, lambda payload: int(payload, 16)),
    "$float": (None, str, str, {"nan": nan, "inf": inf, "-inf": -inf}.__getitem__),
    "$bytes": (bytes, _base64, str, partial(a2b_base64, strict_mode=True)),
    "$datetime": (datetime.datetime, _clock, list, partial(_clock_of, datetime.datetime)),
    "$date": (datetime.date, datetime.date.isoformat, str, datetime.date.fromisoformat),
    "$time": (datetime.time, _clock, list, partial(_clock_of, datetime.time)),
    "$timedelta": (datetime.timedelta, _arguments, list, lambda payload: datetime.timedelta(*payload)),
    "$timezone": (datetime.timezone, _arguments, list, lambda payload: datetime.timezone(*payload)),
    "$zoneinfo": (None, attrgetter("key"), str, _zone_of),
    "$decimal": (decimal.Decimal, str, str, decimal.Decimal),
    "$uuid": (uuid.UUID, str, str, uuid.UUID),
    **{f"${kind.__name__}": (kind, str, str, kind) for kind in _PATHS},
    "$ndarray": (None, _array, list, _array_of),
    "$npscalar": (None, _scalar, list, lambda payload: _array_of(payload)[()]),
}
SEQUENCES = {"$tuple": False, "$set": True, "$frozenset": True}  # whether it is stored sorted
TAG_OF = {row[0]: tag for tag, row in TAGS.items() if row[0] is not None}
"""Exact type -> tag, of types that their class alone identifies."""

_PLAIN = (dict, list, str, int, float, bool, type(None))


def _member(module: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        module = getattr(module, name, None)
    return module


def _class_name(kind: type) -> str:
    """Return the name under which a class is stored. Raises Refused if the name does not lead back to it."""
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
        raise Refused(f"{name} was removed, or is another kind of class now")
    return member


NamesT = TypeVar("NamesT", bound=Collection[str])


class Payload(TypedDict):
    """The stored form of an object: its class and its attributes, and the internal state of a pydantic model."""

    type: str
    fields: dict[str, Any]
    set: NotRequired[set[str] | None]
    extra: NotRequired[object]
    private: NotRequired[object]


def _complete(kind: type, names: Collection[str], payload: NamesT) -> NamesT:
    """Return `payload`, the attributes of an object of the class `kind`, which must have all of `names`."""
    if missing := ", ".join([name for name in names if name not in payload]):
        raise Refused(f"{kind.__module__}.{kind.__qualname__} has no value for {missing}; give it one")
    return payload


def _enum(member: enum.Enum) -> Any:
    named = type(member).__members__.get(member.name) is member  # otherwise it combines several flags
    return {"type": _class_name(type(member)), **({"name": member.name} if named else {"value": member.value})}


def _enum_of(payload: Any) -> Any:
    kind = _class_of(payload["type"], lambda member: issubclass(member, enum.Enum))
    return kind[payload["name"]] if "name" in payload else kind(payload["value"])


def _dataclass(kind: Any) -> Callable[[Any], Payload]:
    """Return the encoder for a dataclass, which also encodes attributes that are no fields."""
    try:
        object.__new__(kind)  # as in decoding; Python rejects it for subclasses of built-in types
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
    """Make a dataclass object from stored fields, without calling `__init__`."""
    kind = _class_of(payload["type"], dataclasses.is_dataclass)
    value = object.__new__(kind)
    for name, content in _complete(kind, [f.name for f in dataclasses.fields(kind)], payload["fields"]).items():
        object.__setattr__(value, name, content)  # past frozen=True
    return value


def is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic.main")  # imported if there is any model
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _pydantic(kind: Any) -> Callable[[Any], Payload]:
    """Return the encoder for a pydantic model."""
    name, names, unset = _class_name(kind), kind.__pydantic_fields__, sys.modules["pydantic_core"].PydanticUndefined

    def is_cached(key: str) -> bool:  # a cached value, which `cached_property` computes again
        return key not in names and isinstance(getattr(kind, key, None), cached_property)

    def payload(value: Any) -> Payload:
        fields, private = value.__dict__, value.__pydantic_private__
        if fields.keys() != names.keys():
            fields = _complete(kind, names, {key: content for key, content in fields.items() if not is_cached(key)})
        return {
            "type": name,
            "fields": fields,
            "set": value.__pydantic_fields_set__,
            "extra": value.__pydantic_extra__,
            "private": private and {key: content for key, content in private.items() if content is not unset},
        }

    return payload


def _pydantic_of(payload: Any) -> Any:
    """Make an object of a pydantic model from stored fields, without validation."""
    kind, fields = _class_of(payload["type"], is_model), payload["fields"]
    names = kind.__pydantic_fields__
    if fields.keys() != names.keys():
        _complete(kind, names, fields)
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", fields)
    object.__setattr__(value, "__pydantic_fields_set__", payload["set"])
    if not kind.__pydantic_root_model__:  # a root model has these two on the class
        object.__setattr__(value, "__pydantic_extra__", payload["extra"])
        object.__setattr__(value, "__pydantic_private__", payload["private"])
    return value


def is_listed(kind: type) -> bool:
    return LISTED.get().kinds.get(f"{kind.__module__}:{kind.__qualname__}") is kind


def _names(kind: Any) -> list[str]:
    """Return the names that objects of a listed class always have: the fields of a named tuple, or slots."""
    if issubclass(kind, tuple):
        return list(kind._fields)
    members = [pair for base in kind.__mro__ for pair in vars(base).items()]
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
    """Make an object of a listed class from stored attributes, without calling `__init__`."""
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
    for name, content in () if is_tuple else fields.items():
        object.__setattr__(value, name, content)
    return value


OBJECT_TAGS: dict[str, Tag] = {
    # As TAGS; for those in BY_CLASS the second is the class to a function of the value.
    "$enum": (None, _enum, dict, _enum_of),
    "$dataclass": (None, _dataclass, dict, _dataclass_of),
    "$pydantic": (None, _pydantic, dict, _pydantic_of),
    "$object": (None, _object, dict, _object_of),
}
BY_CLASS = {"$dataclass", "$pydantic"}
