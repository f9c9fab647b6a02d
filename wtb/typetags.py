"""The typed extensions of stored JSON: what each tag holds, and how a value is made from that again.

The codec knows how values nest; this is what it knows of single types. A tag's value is itself plain JSON or holds
other tags, so `$dataclass` need not know what its fields are.
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
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cached_property, partial
from math import inf, nan
from operator import attrgetter
from typing import Any, NamedTuple

MAX_BYTES = 64 * 1024 * 1024
"""The largest encoded value, in bytes."""


class Listed(NamedTuple):
    """Classes whose objects may be stored by their attributes, by `module:qualname`, and how to add one to them."""

    kinds: Mapping[str, type]
    advice: str


_NOTHING = Listed({}, "")
LISTED: ContextVar[Listed] = ContextVar("LISTED", default=_NOTHING)
"""Nothing, but for a caller that has a list of its own: LangGraph's types, which are neither dataclasses nor models."""


class Refused(Exception):
    """Why a value cannot be stored; the containers around it add their parts of the path, innermost first."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.parts: list[str] = []

    def __str__(self) -> str:
        path = "".join(self.parts[::-1][:9]).removeprefix(".") + ("..." if len(self.parts) > 9 else "")
        return f"{path or 'the value'} cannot be stored: {self.reason}"


class Room:
    """Bytes left for one value, so that a huge one, or one that repeats itself, is refused uncopied."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            advice = "write it to a file in ctx.workspace and store the path"
            raise Refused(f"it is larger than {self.most:,} bytes; {advice}")


def found(kind: type) -> Refused:
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


# Each tag has two functions: a value to what its tag holds, and what the tag held to the value.


def _base64(value: bytes) -> str:
    Room(MAX_BYTES).take(len(value))
    return b2a_base64(value, newline=False).decode("ascii")


def _arguments(value: Any) -> Any:
    return list(value.__reduce__()[1])


def _zone_of(held: Any) -> Any:
    return importlib.import_module("zoneinfo").ZoneInfo(held)


def _clock(value: Any) -> Any:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, value.tzinfo]


def _clock_of(kind: Any, held: Any) -> Any:
    text, fold, zone = held
    return kind.fromisoformat(text).replace(fold=fold, tzinfo=zone)


def _array(value: Any) -> Any:
    Room(MAX_BYTES).take(value.nbytes)  # before tobytes copies it
    if not value.dtype.hasobject:
        numpy_format = sys.modules["numpy"].lib.format
        held = numpy_format.dtype_to_descr(value.dtype)
        if numpy_format.descr_to_dtype(held) == value.dtype:
            return [held, list(value.shape), value.tobytes()]
    raise Refused(f"found a numpy array of dtype {value.dtype}; store it as a list, or with another dtype")


def _array_of(held: Any) -> Any:
    numpy = importlib.import_module("numpy")
    descr, shape, data = held
    dtype = numpy.lib.format.descr_to_dtype(descr)
    array = numpy.ndarray(shape, dtype, bytearray(data))
    if dtype.hasobject or array.nbytes != len(data):
        raise ValueError(f"an array of {dtype} and shape {shape} in {len(data)} bytes")
    return array


def _scalar(value: Any) -> Any:
    held = _array(sys.modules["numpy"].asarray(value))
    again = _array_of(held)[()]
    # numpy drops trailing NULs of its strings, and has several C types for one dtype.
    if type(again) is not type(value) or again.tobytes() != value.tobytes():
        raise found(type(value))
    return held


def _member(module: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        module = getattr(module, name, None)
    return module


def _class_name(kind: type) -> str:
    if _member(sys.modules.get(kind.__module__), kind.__qualname__) is not kind:
        where = "inside a function" if "<locals>" in kind.__qualname__ else "where its name does not lead to it"
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise Refused(f"found {name}, a class defined {where}; define it at the top of a module")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str, accepts: Callable[[type], bool]) -> Any:
    module, _, qualname = name.partition(":")
    found = _member(importlib.import_module(module), qualname)
    if not (isinstance(found, type) and accepts(found)):
        raise Refused(f"{name} is gone, or is no longer the kind of class that it was")
    return found


def _complete(kind: Any, held: dict[str, Any]) -> dict[str, Any]:
    """`held`, the attributes of an object, which must have all fields of the dataclass or pydantic model."""
    names = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind.model_fields
    if missing := ", ".join(name for name in names if name not in held):
        raise Refused(f"{kind.__module__}.{kind.__qualname__} has no value for {missing}; give it one")
    return held


def _enum(value: enum.Enum) -> Any:
    named = type(value).__members__.get(value.name) is value  # else it is flags combined
    return {"type": _class_name(type(value)), **({"name": value.name} if named else {"value": value.value})}


def _enum_of(held: Any) -> Any:
    kind = _class_of(held["type"], lambda found: issubclass(found, enum.Enum))
    return kind[held["name"]] if "name" in held else kind(held["value"])


def _dataclass(value: Any) -> Any:
    kind = type(value)
    try:
        object.__new__(kind)  # what decoding will do; Python refuses it for subclasses of built-in types
    except TypeError:
        raise found(kind) from None
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(kind) if hasattr(value, f.name)}
    fields |= getattr(value, "__dict__", {})  # attributes that are no fields
    return {"type": _class_name(kind), "fields": _complete(kind, fields)}


def _dataclass_of(held: Any) -> Any:
    kind = _class_of(held["type"], dataclasses.is_dataclass)
    value = object.__new__(kind)
    for name, item in _complete(kind, held["fields"]).items():
        object.__setattr__(value, name, item)  # past frozen=True
    return value


def is_text(kind: type) -> bool:
    """Whether it is what LangChain gives for the text of a message: text that can be called, as it could be once."""
    module = sys.modules.get("langchain_core.messages.base")
    return module is not None and kind is getattr(module, "TextAccessor", None)


def _own(value: Any) -> dict[str, Any]:
    """The attributes of a pydantic model, without what it only remembers: `cached_property` makes that again."""
    kind, held = type(value), value.__dict__
    known = kind.model_fields
    cached = [name for name in held if name not in known and isinstance(getattr(kind, name, None), cached_property)]
    return {name: item for name, item in held.items() if name not in cached} if cached else held


def _pydantic(value: Any) -> Any:
    unset, private = sys.modules["pydantic_core"].PydanticUndefined, value.__pydantic_private__
    return {
        "type": _class_name(type(value)),
        "fields": _complete(type(value), _own(value)),
        "set": value.__pydantic_fields_set__,
        "extra": value.__pydantic_extra__,
        "private": private and {key: item for key, item in private.items() if item is not unset},
    }


def _pydantic_of(held: Any) -> Any:
    base = importlib.import_module("pydantic").BaseModel
    kind = _class_of(held["type"], lambda found: issubclass(found, base))
    value = object.__new__(kind)
    object.__setattr__(value, "__dict__", _complete(kind, held["fields"]))
    object.__setattr__(value, "__pydantic_fields_set__", held["set"])
    if not kind.__pydantic_root_model__:  # which has these two on the class, or else among its attributes
        object.__setattr__(value, "__pydantic_extra__", held["extra"])
        object.__setattr__(value, "__pydantic_private__", held["private"])
    return value


def is_listed(kind: type) -> bool:
    return LISTED.get().kinds.get(f"{kind.__module__}:{kind.__qualname__}") is kind


def _object(value: Any) -> Any:
    if isinstance(value, tuple):  # a named one
        return {"type": _class_name(type(value)), "fields": list(value)}
    state = object.__getstate__(value)  # attributes, or attributes and slots
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {"type": _class_name(type(value)), "fields": {**(plain or {}), **(slots or {})}}


def _object_of(held: Any) -> Any:
    kind = LISTED.get().kinds.get(held["type"])
    if kind is None:
        raise Refused(f"{held['type']} is not among the types that may be loaded{LISTED.get().advice}")
    if issubclass(kind, tuple):
        return tuple.__new__(kind, held["fields"])
    value = object.__new__(kind)
    for name, item in held["fields"].items():
        object.__setattr__(value, name, item)
    return value


_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
TAGS: dict[str, tuple[type | None, Callable[[Any], Any], type, Callable[[Any], Any]]] = {
    # tag: (exact type, value to what the tag holds, type of what it holds, and back)
    "$tuple": (tuple, list, list, tuple),
    "$set": (set, list, list, set),
    "$frozenset": (frozenset, list, list, frozenset),
    "$map": (None, list, list, dict),
    # Hexadecimal, since Python neither writes nor reads more than 4300 decimal digits.
    "$int": (None, hex, str, lambda held: int(held, 16)),
    "$float": (None, str, str, {"nan": nan, "inf": inf, "-inf": -inf}.__getitem__),
    "$bytes": (bytes, _base64, str, partial(a2b_base64, strict_mode=True)),
    "$datetime": (datetime.datetime, _clock, list, partial(_clock_of, datetime.datetime)),
    "$date": (datetime.date, datetime.date.isoformat, str, datetime.date.fromisoformat),
    "$time": (datetime.time, _clock, list, partial(_clock_of, datetime.time)),
    "$timedelta": (datetime.timedelta, _arguments, list, lambda held: datetime.timedelta(*held)),
    "$timezone": (datetime.timezone, _arguments, list, lambda held: datetime.timezone(*held)),
    "$zoneinfo": (None, attrgetter("key"), str, _zone_of),
    "$decimal": (decimal.Decimal, str, str, decimal.Decimal),
    "$uuid": (uuid.UUID, str, str, uuid.UUID),
    **{f"${kind.__name__}": (kind, str, str, kind) for kind in _PATHS},
    "$ndarray": (None, _array, list, _array_of),
    "$npscalar": (None, _scalar, list, lambda held: _array_of(held)[()]),
    "$enum": (None, _enum, dict, _enum_of),
    "$dataclass": (None, _dataclass, dict, _dataclass_of),
    "$pydantic": (None, _pydantic, dict, _pydantic_of),
    "$object": (None, _object, dict, _object_of),
}
SEQUENCES = {"$tuple": False, "$set": True, "$frozenset": True}  # is it stored sorted?
TAG_OF = {row[0]: tag for tag, row in TAGS.items() if row[0] is not None}
"""Exact type -> tag, of types that are told by their class alone."""

_PLAIN = (dict, list, str, int, float, bool, type(None))
