"""The typed extensions of stored JSON: what each tag holds, and how a value is made from that again.

The codec knows how values nest; this is what it knows of single types. A tag's value is itself plain JSON or holds
other tags, so `$dataclass` need not know what its fields are. Those of classes that users write are in `object_tags`.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import io
import pathlib
import sys
import types
import uuid
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from math import inf, nan
from operator import attrgetter
from typing import Any, NamedTuple

MAX_BYTES = 64 * 1024 * 1024
"""The largest encoded value, in bytes."""


class Listed(NamedTuple):
    """Classes whose objects may be stored by their attributes, by `module:qualname`.

    advice: how to add one to them. instead: what to do with a value that is too large.
    """

    kinds: Mapping[str, type]
    advice: str
    instead: str


_NOTHING = Listed({}, "", "write it to a file in ctx.workspace and store the path")
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
    """Bytes left for one value, so that a huge one, or one that repeats itself, is refused uncopied.

    It also keeps how classes in the value are encoded, so that each is looked at once.
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


def _base64(value: bytes) -> str:
    Room(MAX_BYTES).take(len(value))
    return b2a_base64(value, newline=False).decode("ascii")


def _arguments(value: Any) -> Any:
    return list(value.__reduce__()[1])


def _zone_of(payload: Any) -> Any:
    return importlib.import_module("zoneinfo").ZoneInfo(payload)


def _clock(value: Any) -> Any:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, value.tzinfo]


def _clock_of(kind: Any, payload: Any) -> Any:
    text, fold, zone = payload
    return kind.fromisoformat(text).replace(fold=fold, tzinfo=zone)


def _array(value: Any) -> Any:
    """Encode a numpy array: dtype, shape and bytes. Refuses arrays of objects."""
    Room(MAX_BYTES).take(value.nbytes)  # before tobytes copies it
    if not value.dtype.hasobject:
        numpy_format = sys.modules["numpy"].lib.format
        payload = numpy_format.dtype_to_descr(value.dtype)
        if numpy_format.descr_to_dtype(payload) == value.dtype:
            return [payload, list(value.shape), value.tobytes()]
    raise Refused(f"found a numpy array of dtype {value.dtype}; store it as a list, or with another dtype")


def _array_of(payload: Any) -> Any:
    numpy = importlib.import_module("numpy")
    descr, shape, data = payload
    dtype = numpy.lib.format.descr_to_dtype(descr)
    array = numpy.ndarray(shape, dtype, bytearray(data))
    if dtype.hasobject or array.nbytes != len(data):
        raise ValueError(f"an array of {dtype} and shape {shape} in {len(data)} bytes")
    return array


def _scalar(value: Any) -> Any:
    """Encode a numpy scalar, if it comes back equal and of the same type."""
    payload = _array(sys.modules["numpy"].asarray(value))
    decoded = _array_of(payload)[()]
    # numpy drops trailing NULs of its strings, and has several C types for one dtype.
    if type(decoded) is not type(value) or decoded.tobytes() != value.tobytes():
        raise refusal_of(type(value))
    return payload


def is_text(kind: type) -> bool:
    """Whether it is what LangChain gives for the text of a message: text that can be called, as it could be once."""
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
    # Hexadecimal, since Python neither writes nor reads more than 4300 decimal digits.
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
SEQUENCES = {"$tuple": False, "$set": True, "$frozenset": True}  # is it stored sorted?
TAG_OF = {row[0]: tag for tag, row in TAGS.items() if row[0] is not None}
"""Exact type -> tag, of types that their class alone identifies."""

_PLAIN = (dict, list, str, int, float, bool, type(None))
