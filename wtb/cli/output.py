"""Output of commands that read: a JSON document for scripts, or text for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.cli import options
from wtb.cli.console import put, say, width, write_result
from wtb.core.texts import printable
from wtb.display.json_text import as_json, cells_as_json

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import CellDocument


D = TypeVar("D")


def present(document: D, render: Callable[[D, int, bool], str], form: options.Form) -> None:
    """A document as JSON, or as the text that `render(document, width, color)` makes of it."""
    put(as_json(document) if form.is_json else render(document, width(), in_color(form.output)), form.output)


def present_all(
    key: str, rows: Sequence[Any], render: Callable[[Any, int, bool], str], form: options.Form, nothing: str
) -> None:
    """Present a list under `key` of a document; to people, the sentence `nothing` if it is empty."""
    if rows or form.is_json:
        present({key: rows}, render, form)
    else:
        say(nothing)


def put_as(document: Any, text: str, form: options.Form) -> None:
    """Write a document as JSON, or its text."""
    put(as_json(document) if form.is_json else text, form.output)


def in_color(output: Path | None) -> bool:
    """Return whether the result goes to a terminal that shows colours."""
    # NO_COLOR counts if it is not empty, as no-color.org defines it.
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def put_cells(cells: Iterable[CellDocument], output: Path | None) -> None:
    """The document of cells, written piece by piece: it may be larger than memory."""
    put_lines(cells_as_json(cells), output)


def put_lines(lines: Iterable[str], output: Path | None) -> None:
    """Write text piece by piece: it may be larger than memory."""
    if output is None:
        write_result(lines)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    print(f"written to {output}", file=sys.stderr)


def put_value(pieces: Iterable[bytes], output: Path | None) -> None:
    """Write a value in full. On a terminal, which would obey them, control characters of it are replaced."""
    text = b"".join(pieces).decode()
    if output is None and sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    put(text, output)
