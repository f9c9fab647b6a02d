"""A JSON value for people: keys and what they hold below each other, and texts as they read.

What is not nested and fits on a line stands on one. Other texts have a bar before each of their lines, so that no text
looks like a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from wtb.core.texts import printable
from wtb.display.tables import wrapped

if TYPE_CHECKING:
    from pydantic import JsonValue

_LEAST = 24  # columns; what is nested so deeply that less is left is JSON
_QUOTED = re.compile(r"[\[{\"\d\s-]|(true|false|null)$|.*\s$")  # texts that look like other values, or end unseen


def nested(value: Any, width: int) -> list[str]:
    """The lines of a value, each of at most `width` columns."""
    short = _on_a_line(value)
    if short is not None and cell_len(short) <= width:
        return [short]
    if isinstance(value, str):
        return [f"│ {line}".rstrip() for line in wrapped(value, width - 2)]
    if not isinstance(value, dict | list) or width < _LEAST:
        return wrapped(json.dumps(value, ensure_ascii=False, default=str), width)
    return list(_keys(value, width) if isinstance(value, dict) else _items(value, width))


def _keys(value: dict[str, JsonValue], width: int) -> Iterator[str]:
    for key, inner in value.items():
        name = f"{printable(key)}:"
        short = _on_a_line(inner)
        if short is not None and cell_len(name) + 1 + cell_len(short) <= width:
            yield f"{name} {short}"
            continue
        yield from wrapped(name, width)
        for line in nested(inner, width - 2):
            yield f"  {line}"


def _items(value: list[Any], width: int) -> Iterator[str]:
    for inner in value:
        first, *others = nested(inner, width - 2)
        yield f"- {first}"
        for line in others:
            yield f"  {line}"


def _on_a_line(value: Any) -> str | None:
    """A value on one line, however long; None where that would hide the lines of a text or what a value is made of."""
    if isinstance(value, str) and "\n" not in value and value and not _QUOTED.match(value):
        return printable(value)
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        if any(isinstance(one, dict | list) and one for one in inner):
            return None
    text = json.dumps(value, ensure_ascii=False, default=str)
    return None if "\\n" in text else printable(text)
