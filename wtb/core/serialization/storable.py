"""What a database keeps as it is, of the plain data of a sweep: parameters, options, tags, names of keys.

PostgreSQL has no NUL in text and JSON no NaN; integers beyond 64 bits come back as other numbers from most readers of
JSON. What cannot be kept is refused with its place, on every database alike. (Values of a state are kept as typed
JSON, which takes more: see `codec`.)
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping

Place = tuple[str | int, ...]  # of keys and positions
MAX_DEPTH = 100
_LEAST, _MOST = -(2**63), 2**64 - 1


def unstorable(value: object) -> tuple[Place, str] | None:
    """The place of the first thing in plain data that is not kept as it is, and what is wrong with it."""
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
    """Why no database keeps a text; None where all do."""
    if "\0" in text:
        return "a NUL character; expected text without it"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair; expected whole characters"
    return None


def _wrong_scalar(value: object) -> str | None:
    """What is wrong with a value that is no container; None if nothing is."""
    if isinstance(value, str):
        return wrong_text(value)
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return "a whole number of more than 64 bits; expected a smaller one, or text in quotes"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}; expected a finite number"
    if not isinstance(value, str | int | float | None | datetime.date):
        kind = type(value)
        return (
            f"an object of {kind.__module__}.{kind.__qualname__}; expected text, a number, true, false, null, a list "
            f"or a mapping, from which the node makes the object"
        )
    return None
