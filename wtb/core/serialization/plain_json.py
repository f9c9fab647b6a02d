"""Stored values as plain JSON, for looking at: reading them needs no class of the user's. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, overload

import orjson

_MORE = 40  # characters that say how much was cut


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: None) -> None: ...
@overload
def iso(seconds: float | None) -> str | None: ...
def iso(seconds: float | None) -> str | None:
    """A time in seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def storable(text: str, most: int = 100_000) -> str:
    """Text as every database takes it: without NUL, with halves of characters written out, of at most `most`."""
    text = str.__str__(text)  # of a subclass, whose methods may do anything
    shortened = text[: most + 1].replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()
    if len(shortened) <= most:
        return shortened
    kept = max(0, most - _MORE)
    return f"{shortened[:kept]} ... {max(1, len(text) - kept):,} more characters"[:most]


def readable(data: bytes) -> Any:
    """A stored value as plain JSON, for looking at: no class of the user's is needed to read it."""
    return _without_tags(orjson.loads(data))


def _without_tags(value: Any) -> Any:
    """Replace each tagged value by plain JSON that is readable."""
    if isinstance(value, list):
        return [_without_tags(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, payload),) = value.items()
        if tag.startswith("$"):
            return _untagged(tag, payload)
    return {key: _without_tags(item) for key, item in value.items()}


def _untagged(tag: str, payload: Any) -> Any:
    """The readable form of one tagged value."""
    if tag == "$dict":
        return {key: _without_tags(item) for key, item in payload.items()}
    if tag == "$map":
        pairs = [(_without_tags(key), _without_tags(item)) for key, item in payload]
        return {key if isinstance(key, str) else json.dumps(key, default=str): item for key, item in pairs}
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
