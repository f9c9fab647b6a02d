"""State values as bytes and back: JSON with an explicit set of typed extensions, and no pickle.

Plain JSON values are stored as they are; anything else is an object whose one key is its tag, such as
`{"$tuple": [1, 2]}`. A dict that looks like that by itself is wrapped in `{"$dict": ...}`. What would
come back as another type is refused with a `StateError` that says where in the value it is.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import hashlib
import importlib
import io
import pathlib
import sys
import types
import uuid
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable
from functools import partial
from math import inf, isfinite, nan
from operator import attrgetter
from typing import Any

import orjson

from wtb.errors import StateError

MAX_BYTES = 64 * 1024 * 1024
"""The largest encoded value, in bytes."""

_INT_LOW, _INT_HIGH = -(2**63), 2**64 - 1  # what orjson writes and reads back as an int
_CONSTANTS: tuple[type, ...] = (bool, type(None))
_TOO_DEEP = "it contains itself or is nested deeper than JSON's 254 levels; store it flat, with ids"


def encode(value: object) -> bytes:
    """`value` as canonical typed JSON: dicts in their own order, sets sorted.

    Raises StateError for what `decode` could not bring back equal and of the same types.
    """
    try:
        data = _dumps(_plain(value, _Room(MAX_BYTES)))
        _Room(MAX_BYTES).take(len(data))
    except (_Refused, RecursionError) as error:
        raise StateError(str(_within(error, ""))) from None
    return data


def decode(data: bytes) -> Any:
    """A fresh value from what `encode` returned.

    Modules that `data` names are imported, but only their enums, dataclasses and pydantic models are
    used, and no `__init__` runs. Raises StateError for damaged data, and for classes that have gone or
    gained fields.
    """
    try:
        value = orjson.loads(data)
        return _built(value) if b'"$' in data else value
    except _Refused as refused:
        raise StateError(f"a stored value no longer fits: {refused.reason}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise StateError(f"a stored value is damaged: {type(error).__name__}: {error}") from error
    except ImportError as error:
        raise StateError(f"a stored value needs what is not installed here: {error}") from error


def digest(data: bytes) -> str:
    """The SHA-256 of `data` in hex: the name under which an encoded value is stored once."""
    return hashlib.sha256(data).hexdigest()


class _Refused(Exception):
    """Why a value cannot be stored; the containers around it add their parts of the path, innermost first."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.parts: list[str] = []

    def __str__(self) -> str:
        path = "".join(self.parts[::-1][:9]).removeprefix(".") + ("..." if len(self.parts) > 9 else "")
        return f"{path or 'the value'} cannot be stored: {self.reason}"


class _Room:
    """Bytes left for one value, so that a huge one, or one that repeats itself, is refused uncopied."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            advice = "write it to a file in ctx.workspace and store the path"
            raise _Refused(f"it is larger than {MAX_BYTES:,} bytes; {advice}")


# Encoding. An encoder returns its argument itself when nothing in it needs a tag.


def _plain(value: Any, room: _Room) -> Any:
    kind = type(value)
    return (_ENCODERS.get(kind) or partial(_tagged, _tag_of_class(kind)))(value, room)


def _walk(value: Any, items: Iterable[tuple[Any, Any]], room: _Room) -> Any:
    """`value`, or a copy in which those of its items (by index or key) are replaced that need a tag."""
    size = 2 * len(value)
    result = value
    for key, item in items:
        kind = type(item)
        if kind is str:
            if item.isascii():
                size += len(item)
                continue
        elif kind is int:
            if _INT_LOW <= item <= _INT_HIGH:
                continue
        elif kind is float:
            if isfinite(item):
                continue
        elif kind in _CONSTANTS:
            continue
        try:
            plain = _plain(item, room)
        except (_Refused, RecursionError) as error:
            raise _within(error, _part(key)) from None
        if plain is not item:
            if result is value:
                result = value.copy()
            result[key] = plain
    room.take(size)
    return result


def _list(value: list[Any], room: _Room) -> Any:
    return _walk(value, enumerate(value), room)


def _dict(value: dict[Any, Any], room: _Room) -> Any:
    size = 0
    for key in value:
        if type(key) is not str:
            return _map(value, room)
        if key.isascii():
            size += len(key)
        else:
            _str(key, room)
    room.take(size)
    plain = _walk(value, value.items(), room)
    return {"$dict": plain} if len(value) == 1 and key.startswith("$") else plain


def _map(value: dict[Any, Any], room: _Room) -> Any:
    items = _walk(value, value.items(), room).values()
    try:
        keys = _list(list(value), room)
    except _Refused as refused:
        raise _within(refused, ".keys()") from None
    return {"$map": [list(pair) for pair in zip(keys, items, strict=True)]}


def _str(value: str, room: _Room) -> str:
    room.take(len(value))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            reason = f"found text with the lone surrogate {value[error.start]!a}"
            raise _Refused(f"{reason}; decode it with errors='replace', or store bytes") from None
    return value


def _tagged(tag: str, value: Any, room: _Room) -> Any:
    try:
        held = _TAGS[tag][1](value)
        if type(held) is not _TAGS[tag][2]:
            raise _found(type(value))
        plain = _plain(held, room)
    except _Refused as refused:
        if tag not in _SEQUENCES:
            del refused.parts[-1:]  # a place in what the tag holds, which the user does not know
        raise
    return {tag: sorted(plain, key=_dumps) if _SEQUENCES.get(tag) else plain}


def _dumps(plain: Any) -> bytes:
    try:
        return orjson.dumps(plain)
    except orjson.JSONEncodeError:  # all else that orjson refuses has been refused before
        raise _Refused(_TOO_DEEP) from None


def _within(error: _Refused | RecursionError, part: str) -> _Refused:
    refused = error if isinstance(error, _Refused) else _Refused(_TOO_DEEP)
    refused.parts.append(part)
    return refused


def _part(key: object) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    short = type(key) is str or (type(key) is int and _INT_LOW <= key <= _INT_HIGH)
    return f"[{key!r:.40}]" if short else f"[<{type(key).__qualname__}>]"


def _found(kind: type) -> _Refused:
    builtin = next((base.__name__ for base in kind.__mro__ if base in _ENCODERS), None)
    if issubclass(kind, types.FunctionType | types.BuiltinFunctionType | types.MethodType | partial | type):
        advice = "store its import path as text and import it in the node that needs it"
    elif issubclass(kind, io.IOBase):
        advice = "write a file in ctx.workspace and store its path"
    elif builtin:
        advice = f"it would come back as another type: convert it with {builtin}(...)"
    else:
        advice = "store plain data, or make it a dataclass or pydantic model at the top of a module"
    return _Refused(f"found {kind.__module__}.{kind.__qualname__}; {advice}")


def _tag_of_class(kind: type) -> str:
    """The tag of a type that is not in the table; a library that nobody has imported is not imported here."""
    if issubclass(kind, enum.Enum):
        return "$enum"
    pydantic, numpy, zoneinfo = map(sys.modules.get, ("pydantic.main", "numpy", "zoneinfo"))
    if pydantic and issubclass(kind, pydantic.BaseModel):
        return "$pydantic"
    if dataclasses.is_dataclass(kind):
        return "$dataclass"
    if numpy and (kind is numpy.ndarray or issubclass(kind, numpy.generic)):
        return "$ndarray" if kind is numpy.ndarray else "$npscalar"
    if zoneinfo and kind is zoneinfo.ZoneInfo:
        return "$zoneinfo"
    raise _found(kind)


# Each tag has two functions: a value to what its tag holds, and what the tag held to the value.


def _base64(value: bytes) -> str:
    _Room(MAX_BYTES).take(len(value))
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
    _Room(MAX_BYTES).take(value.nbytes)  # before tobytes copies it
    if not value.dtype.hasobject:
        numpy_format = sys.modules["numpy"].lib.format
        held = numpy_format.dtype_to_descr(value.dtype)
        if numpy_format.descr_to_dtype(held) == value.dtype:
            return [held, list(value.shape), value.tobytes()]
    raise _Refused(f"found a numpy array of dtype {value.dtype}; store it as a list, or with another dtype")


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
        raise _found(type(value))
    return held


def _member(module: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        module = getattr(module, name, None)
    return module


def _class_name(kind: type) -> str:
    if _member(sys.modules.get(kind.__module__), kind.__qualname__) is not kind:
        where = "inside a function" if "<locals>" in kind.__qualname__ else "where its name does not lead to it"
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise _Refused(f"found {name}, a class defined {where}; define it at the top of a module")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str, accepts: Callable[[type], bool]) -> Any:
    module, _, qualname = name.partition(":")
    found = _member(importlib.import_module(module), qualname)
    if not (isinstance(found, type) and accepts(found)):
        raise _Refused(f"{name} is gone, or is no longer the kind of class that it was")
    return found


def _complete(kind: Any, held: dict[str, Any]) -> dict[str, Any]:
    """`held`, the attributes of an object, which must have all fields of the dataclass or pydantic model."""
    names = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind.model_fields
    if missing := ", ".join(name for name in names if name not in held):
        raise _Refused(f"{kind.__module__}.{kind.__qualname__} has no value for {missing}; give it one")
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
        raise _found(kind) from None
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(kind) if hasattr(value, f.name)}
    fields |= getattr(value, "__dict__", {})  # attributes that are no fields
    return {"type": _class_name(kind), "fields": _complete(kind, fields)}


def _dataclass_of(held: Any) -> Any:
    kind = _class_of(held["type"], dataclasses.is_dataclass)
    value = object.__new__(kind)
    for name, item in _complete(kind, held["fields"]).items():
        object.__setattr__(value, name, item)  # past frozen=True
    return value


def _pydantic(value: Any) -> Any:
    unset, private = sys.modules["pydantic_core"].PydanticUndefined, value.__pydantic_private__
    return {
        "type": _class_name(type(value)),
        "fields": _complete(type(value), value.__dict__),
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


_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
_TAGS: dict[str, tuple[type | None, Callable[[Any], Any], type, Callable[[Any], Any]]] = {
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
}
_SEQUENCES = {"$tuple": False, "$set": True, "$frozenset": True}  # is it stored sorted?
_ENCODERS: dict[type, Callable[[Any, _Room], Any]] = {
    dict: _dict,
    list: _list,
    str: _str,
    int: lambda value, room: value if _INT_LOW <= value <= _INT_HIGH else {"$int": hex(value)},
    float: lambda value, room: value if isfinite(value) else {"$float": str(value)},
    **dict.fromkeys(_CONSTANTS, lambda value, room: value),
    **{row[0]: partial(_tagged, tag) for tag, row in _TAGS.items() if row[0]},
}


# Decoding. What JSON made is fresh, so containers are rebuilt in place.


def _built(value: Any) -> Any:
    if type(value) is list:
        return _filled(value, enumerate(value))
    if type(value) is not dict:
        return value
    if len(value) == 1:
        tag, held = next(iter(value.items()))
        if tag == "$dict":
            return _filled(held, held.items())
        if tag.startswith("$"):
            _, _, kind, back = _TAGS[tag]
            if type(held) is not kind:  # constructors would take other types in silence
                raise TypeError(f"{tag} holds {type(held).__name__}, expected {kind.__name__}")
            return back(_built(held))
    return _filled(value, value.items())


def _filled(container: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    for key, item in items:
        if type(item) is dict or type(item) is list:
            container[key] = _built(item)
    return container
