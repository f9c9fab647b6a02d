"""State values as bytes and back: JSON with an explicit set of typed extensions, and no pickle.

Plain JSON values are stored as they are; other values become an object whose one key is its tag, for example
`{"$tuple": [1, 2]}`. A dict that looks like that by itself is wrapped in `{"$dict": ...}`. Values that would come back
as another type are rejected with a `StateError` that names the place in the value.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from math import isfinite
from typing import Any

import orjson

from wtb.core.errors import StateError
from wtb.core.serialization.type_tags import (
    BY_CLASS,
    MAX_BYTES,
    OBJECT_TAGS,
    SEQUENCES,
    TAG_OF,
    TAGS,
    Payload,
    Refused,
    Room,
    is_listed,
    is_model,
    is_text,
    refusal_of,
)

_INT_LOW, _INT_HIGH = -(2**63), 2**64 - 1  # what orjson writes and reads back as an int
_TAGS = TAGS | OBJECT_TAGS
_CONSTANTS: tuple[type, ...] = (bool, type(None))
_TOO_DEEP = "it contains itself or is nested deeper than JSON's 254 levels; store it flat, with ids"


def encode(value: object) -> bytes:
    """Encode a value as canonical typed JSON: dicts in their own order, sets sorted.

    Raises:
        StateError: For a value that `decode` could not restore equal and of the same types.
    """
    try:
        encoded = _dumps(_encode_value(value, Room(MAX_BYTES)))
        if len(encoded) > MAX_BYTES:
            Room(MAX_BYTES).take(len(encoded))
    except (Refused, RecursionError) as error:
        raise StateError(str(_within(error, ""))) from None
    return encoded


def decode(data: bytes) -> Any:
    """Decode a new value from the bytes that `encode` returned.

    Modules that the data names are imported, but only their enums, dataclasses and pydantic models are used, and no
    `__init__` runs.

    Raises:
        StateError: For damaged data, and for classes that are gone or have gained fields.
    """
    try:
        value = orjson.loads(data)
        return _build(value) if b'"$' in data else value
    except Refused as refused:
        raise StateError(f"a stored value no longer fits: {refused.reason}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, SyntaxError) as error:
        raise StateError(f"a stored value is damaged: {type(error).__name__}: {error}") from error
    except ImportError as error:
        raise StateError(f"a stored value needs a package that is not installed: {error}") from error


def digest(data: bytes) -> str:
    """Return the SHA-256 of encoded data in hex, the name under which a value is stored once."""
    return hashlib.sha256(data).hexdigest()


# Encoding. An encoder returns its argument itself when nothing in it needs a tag.


def _encode_value(value: Any, room: Room) -> Any:
    kind = type(value)
    return (_ENCODERS.get(kind) or room.encoders.get(kind) or _encoder_of_class(kind, room))(value, room)


# Every value of every state passes here, so values that need no tag are recognized without a call.
def _walk(value: Any, pairs: Iterable[tuple[Any, Any]], room: Room) -> Any:  # noqa: C901
    """Return `value`, or a copy with its items (by index or key) replaced that need a tag."""
    size = 2 * len(value)
    encoded = value
    for key, member in pairs:
        kind = type(member)
        if kind is str:
            if member.isascii():
                size += len(member)
                continue
        elif kind is int:
            if _INT_LOW <= member <= _INT_HIGH:
                continue
        elif kind is float:
            if isfinite(member):
                continue
        elif kind in _CONSTANTS or ((kind is dict or kind is list) and not member):
            continue
        try:
            plain = _encode_value(member, room)
        except (Refused, RecursionError) as error:
            raise _within(error, _part(key)) from None
        if plain is not member:
            if encoded is value:
                encoded = value.copy()
            encoded[key] = plain
    room.take(size)
    return encoded


def _list(value: list[Any], room: Room) -> Any:
    return _walk(value, enumerate(value), room)


def _encode_dict(value: dict[Any, Any], room: Room) -> Any:
    """Encode a dict; one with other keys than text becomes a `$map`, one that looks like a tag a `$dict`."""
    size = 0
    for key in value:
        if type(key) is not str:
            return _encode_map(value, room)
        if key.isascii():
            size += len(key)
        else:
            _encode_text(key, room)
    room.take(size)
    plain = _walk(value, value.items(), room)
    # `key` is the last key of the loop above, and so the only one of a dict that could be taken for a tag.
    return {"$dict": plain} if len(value) == 1 and key.startswith("$") else plain


def _encode_map(value: dict[Any, Any], room: Room) -> Any:
    """Encode a dict with keys of any type as a list of pairs."""
    members = _walk(value, value.items(), room).values()
    try:
        keys = _list(list(value), room)
    except Refused as refused:
        raise _within(refused, ".keys()") from None
    return {"$map": [list(pair) for pair in zip(keys, members, strict=True)]}


def _encode_text(value: str, room: Room) -> str:
    room.take(len(value))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            reason = f"found text with the lone surrogate {value[error.start]!a}"
            raise Refused(f"{reason}; decode it with errors='replace', or store bytes") from None
    return value


def _encode_tagged(tag: str, value: Any, room: Room) -> Any:
    """Encode a value under its tag. Elements of sets are sorted, so that equal sets are stored alike."""
    try:
        payload = _TAGS[tag][1](value)
        if type(payload) is not _TAGS[tag][2]:
            raise refusal_of(type(value))
        plain = _encode_value(payload, room)
    except Refused as refused:
        if tag not in SEQUENCES:
            del refused.parts[-1:]  # a place in what the tag holds, which the user does not know
        raise
    return {tag: sorted(plain, key=_dumps) if SEQUENCES.get(tag) else plain}


def _dumps(plain: Any) -> bytes:
    try:
        return orjson.dumps(plain)
    except orjson.JSONEncodeError:  # everything else that orjson rejects was rejected before
        raise Refused(_TOO_DEEP) from None


def _within(error: Refused | RecursionError, part: str) -> Refused:
    refused = error if isinstance(error, Refused) else Refused(_TOO_DEEP)
    refused.parts.append(part)
    return refused


def _part(key: object) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    short = type(key) is str or (type(key) is int and _INT_LOW <= key <= _INT_HIGH)
    return f"[{key!r:.40}]" if short else f"[<{type(key).__qualname__}>]"


def _object(
    tag: str,
    payload_of: Callable[[Any], Payload],
    encoded_sets: dict[frozenset[str], tuple[Any, int]],
    value: Any,
    room: Room,
) -> Any:
    """Encode an object of a class of BY_CLASS. `encoded_sets` caches encoded sets of field names, which are few and
    repeat.
    """
    payload = payload_of(value)
    names = payload.get("set")
    if type(names) is set:
        key, room_before = frozenset(names), room.remaining
        if key in encoded_sets:
            room.take(encoded_sets[key][1])
        else:
            encoded_sets[key] = _encode_tagged("$set", names, room), room_before - room.remaining
        payload["set"] = None
    try:
        plain = _walk(payload, payload.items(), room)
    except Refused as refused:
        del refused.parts[-1:]  # "fields", which the user does not know
        raise
    if type(names) is set:
        plain["set"] = encoded_sets[key][0]
    return {tag: plain}


def _encoder_of_class(kind: type, room: Room) -> Callable[[Any, Room], Any]:
    """Return the encoder of a type that is not in the table, and cache it in `room`."""
    if is_text(kind):
        return lambda value, room: _encode_text(str(value), room)
    tag = _tag_of_class(kind)
    if tag in BY_CLASS:
        room.encoders[kind] = partial(_object, tag, _TAGS[tag][1](kind), {})
    else:
        room.encoders[kind] = partial(_encode_tagged, tag)
    return room.encoders[kind]


def _tag_of_class(kind: type) -> str:
    """Return the tag of a type that is not in the table. A library that is not imported cannot have made the value."""
    if issubclass(kind, enum.Enum):
        return "$enum"
    numpy, zoneinfo = map(sys.modules.get, ("numpy", "zoneinfo"))
    if is_model(kind):
        return "$pydantic"
    if dataclasses.is_dataclass(kind):
        return "$dataclass"
    if numpy and (kind is numpy.ndarray or issubclass(kind, numpy.generic)):
        return "$ndarray" if kind is numpy.ndarray else "$npscalar"
    if zoneinfo and kind is zoneinfo.ZoneInfo:
        return "$zoneinfo"
    if is_listed(kind):
        return "$object"
    raise refusal_of(kind)


_ENCODERS: dict[type, Callable[[Any, Room], Any]] = {
    dict: _encode_dict,
    list: _list,
    str: _encode_text,
    int: lambda value, room: value if _INT_LOW <= value <= _INT_HIGH else {"$int": hex(value)},
    float: lambda value, room: value if isfinite(value) else {"$float": str(value)},
    **dict.fromkeys(_CONSTANTS, lambda value, room: value),
    **{kind: partial(_encode_tagged, tag) for kind, tag in TAG_OF.items()},
}


# Decoding. Parsed containers belong to nobody else, so they are filled in place.


def _build(value: Any) -> Any:
    """Make the value of parsed JSON. Containers are reused, and filled in place."""
    if type(value) is list:
        return _fill(value, enumerate(value))
    if type(value) is not dict:
        return value
    if len(value) == 1:
        tag, payload = next(iter(value.items()))
        if tag == "$dict":
            return _fill(payload, payload.items())
        if tag[:1] == "$":
            _, _, kind, back = _TAGS[tag]
            if type(payload) is not kind:  # constructors would take other types in silence
                raise TypeError(f"{tag} holds {type(payload).__name__}, expected {kind.__name__}")
            if type(payload) is dict:
                _fill(payload, payload.items())
            elif type(payload) is list:
                _fill(payload, enumerate(payload))
            return back(payload)
    return _fill(value, value.items())


def _fill(container: Any, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """Replace the tagged items of a container, in place, at any depth."""
    for key, member in pairs:
        kind = type(member)
        if kind is dict:
            if len(member) == 1:
                container[key] = _build(member)
            elif member:
                _fill(member, member.items())
        elif kind is list and member:
            _fill(member, enumerate(member))
    return container
