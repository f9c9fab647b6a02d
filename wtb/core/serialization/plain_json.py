"""Plain JSON: stored values for display, and plain data of a sweep that every database stores unchanged. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, overload

import orjson

_MORE = 40  # characters for the note on how much was cut


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: None) -> None: ...
@overload
def iso(seconds: float | None) -> str | None: ...
def iso(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def storable(text: str, limit: int = 100_000) -> str:
    """Return text as every database stores it: without NUL, with lone surrogates escaped, of at most `limit`
    characters.
    """
    text = str.__str__(text)  # not the method of a subclass, which may do anything
    shortened = text[: limit + 1].replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()
    if len(shortened) <= limit:
        return shortened
    length = max(0, limit - _MORE)
    return f"{shortened[:length]} ... {max(1, len(text) - length):,} more characters"[:limit]


def readable(data: bytes) -> Any:
    """Return a stored value as plain JSON for display, for which no class of the user's is needed."""
    return _without_tags(orjson.loads(data))


def _without_tags(value: Any) -> Any:
    """Replace each tagged value by plain JSON that is readable."""
    if isinstance(value, list):
        return [_without_tags(member) for member in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, payload),) = value.items()
        if tag.startswith("$"):
            return _untagged(tag, payload)
    return {key: _without_tags(member) for key, member in value.items()}


def _untagged(tag: str, payload: Any) -> Any:
    """Return the readable form of one tagged value."""
    if tag == "$dict":
        return {key: _without_tags(member) for key, member in payload.items()}
    if tag == "$map":
        pairs = [(_without_tags(key), _without_tags(member)) for key, member in payload]
        return {key if isinstance(key, str) else json.dumps(key, default=str): member for key, member in pairs}
    if tag == "$int":
        return (
            str(int(payload, 16)) if len(payload) < 1000 else payload
        )  # as text: it is too large for most readers of JSON
    if tag == "$bytes":
        return f"<{len(payload) * 3 // 4 - payload.count('='):,} bytes>"
    if tag in ("$dataclass", "$pydantic"):
        return _without_tags(payload["fields"])
    if tag == "$enum":
        return payload.get("name", payload.get("value"))
    if tag in ("$ndarray", "$npscalar"):
        return f"<array of {payload[0]}, {'x'.join(map(str, payload[1])) or 'one number'}>"
    if tag in ("$datetime", "$time"):
        return payload[0]
    if tag == "$timedelta":
        days, seconds, micros = payload
        return f"{days * 86400 + seconds + micros / 1e6:g} s"
    return _without_tags(payload)


Place = tuple[str | int, ...]  # of keys and positions
MAX_DEPTH = 100
_LEAST, _MOST = -(2**63), 2**64 - 1


def unstorable(value: object) -> tuple[Place, str] | None:
    """Return the place of the first part of plain data that is not stored unchanged, and the problem with it."""
    # A list of work and no recursion: untrusted data may be nested deeper than Python's stack.
    todo: list[tuple[Place, object]] = [((), value)]
    while todo:
        place, part = todo.pop()
        if len(place) > MAX_DEPTH:
            return place[:3], f"values nested more than {MAX_DEPTH} deep; expected flatter ones"
        if isinstance(part, Mapping):
            for key in part:
                if isinstance(key, str) and (wrong := wrong_text(key)):
                    return place, f"a key with {wrong}"
            todo += [((*place, str(key)), part[key]) for key in reversed(part)]
        elif isinstance(part, list | tuple):
            todo += [((*place, index), part[index]) for index in reversed(range(len(part)))]
        elif wrong := _wrong_scalar(part):
            return place, wrong
    return None


def wrong_text(text: str) -> str | None:
    """Return why databases cannot store a text; None if they can."""
    if "\0" in text:
        return "a NUL character; expected text without it"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair; expected whole characters"
    return None


def _wrong_scalar(value: object) -> str | None:
    """Return the problem of a value that is no container; None if there is none."""
    if isinstance(value, str):
        return wrong_text(value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return "a whole number of more than 64 bits; expected a smaller one, or text in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}; expected a finite number"
    if not isinstance(value, str | int | float | None | date):
        kind = type(value)
        return (
            f"an object of {kind.__module__}.{kind.__qualname__}; expected text, a number, true, false, null, a list "
            f"or a mapping, from which the node makes the object"
        )
    return None
