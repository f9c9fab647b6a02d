"""Documents as JSON text, for commands and for the API alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import CellDocument


def as_json(document: Any, *, compact: bool = False) -> str:
    """Return a document as JSON, indented unless it is to be compact."""
    import orjson

    try:
        return orjson.dumps(document, option=0 if compact else orjson.OPT_INDENT_2, default=str).decode() + "\n"
    except TypeError:
        # Values may be nested as deeply as orjson allows, and the document adds a few levels.
        return json.dumps(document, indent=None if compact else 2, ensure_ascii=False, default=str) + "\n"


def cells_as_json(cells: Iterable[CellDocument]) -> Iterator[str]:
    """Yield the document of cells piece by piece: it may be larger than memory."""
    separator = '{"cells": [\n'
    for cell in cells:
        yield separator + _one_line(cell)
        separator = ",\n"
    yield '{"cells": []}\n' if separator.startswith("{") else "\n]}\n"


def _one_line(cell: CellDocument) -> str:
    """States hold more than JSON knows: what it does not know is shown as plain data."""
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(cell, default=_plain, option=options).decode()
    except orjson.JSONEncodeError:
        # orjson rejects integers of more than 64 bits, keys that are not text, and deep nesting.
        state = {key: _plain(value) for key, value in cell["state"].items()}
        plain = {**cell, "state": state, "expected": _plain(cell["expected"])}
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), default=str)


def value_as_json(value: Any) -> str:
    """Return a value of a state on one line; what JSON does not know is shown as plain data."""
    import orjson

    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except orjson.JSONEncodeError:
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), default=str)


def _plain(value: Any) -> Any:
    from wtb.core.serialization.codec import encode
    from wtb.core.serialization.plain_json import readable

    return readable(encode(value))
