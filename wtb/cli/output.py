"""How commands that look show what they found: as a document for scripts, or as text for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.cli import options
from wtb.cli.console import as_json, put, say, width

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import CellDocument


def present(
    document: Mapping[str, Any],
    render: Callable[[Any, int, bool], str],
    format: options.Format,
    output: Path | None,
) -> None:
    """A document as JSON, or as the text that `render(document, width, color)` makes of it."""
    put(as_json(document) if format is options.Format.json else render(document, width(), in_color(output)), output)


def present_all(
    key: str,
    found: Sequence[Any],
    render: Callable[[Any, int, bool], str],
    format: options.Format,
    output: Path | None,
    nothing: str,
) -> None:
    """Present a list under `key` of a document; to people, the sentence `nothing` if it is empty."""
    if found or format is options.Format.json:
        present({key: found}, render, format, output)
    else:
        say(nothing)


def put_as(document: Any, text: str, format: options.Format, output: Path | None = None) -> None:
    """Write a document as JSON, or its text."""
    put(as_json(document) if format is options.Format.json else text, output)


def in_color(output: Path | None) -> bool:
    """Return whether the result goes to a terminal that shows colours."""
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def put_cells(cells: Iterable[CellDocument], output: Path | None) -> None:
    """The document of cells, written piece by piece: it may be larger than memory."""
    if output is None:
        sys.stdout.writelines(_pieces(cells))
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as file:
        file.writelines(_pieces(cells))
    print(f"written to {output}", file=sys.stderr)


def _pieces(cells: Iterable[CellDocument]) -> Iterator[str]:
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
    except orjson.JSONEncodeError:  # integers of more than 64 bits, keys that are not text, deep nesting
        state = {key: _plain(value) for key, value in cell["state"].items()}
        plain = {**cell, "state": state, "expected": _plain(cell["expected"])}
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), default=str)


def _plain(value: Any) -> Any:
    from wtb.core.serialization.codec import encode
    from wtb.core.serialization.plain_json import readable

    return readable(encode(value))
