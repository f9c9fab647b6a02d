"""The rows of a file of cases: JSON lines, CSV or one JSON list, with the place of each.

JSON lines and CSV are streamed. A row that cannot be read is given as a Wrong in its place, so that reading
goes on where it can. In a CSV file the columns `id`, `expected`, `cluster`, `tags` (parted by spaces or semicolons)
and `files` (parted by semicolons) mean these keys of a case; every other column, with or without
`input.` before its name, is a key of the input; `expected.x` is a key of what is expected; every value
stays text. A blank cell of `expected` expects nothing, and a row of blank cells is no case. JSON has no NaN. Files are
UTF-8, with or without a byte order mark; blank lines are skipped.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from wtb.core.errors import InputError, describe
from wtb.core.values import Json

MAX_LINE = 64 * 1024 * 1024


class Wrong(Exception):
    """What is wrong with one case, found and expected; its reader puts the place before it."""


class BlankRow:
    """A row of a table in which every cell is blank."""


# A place such as FILE:LINE, and what stands there; a Wrong if it could not be read.
Row = tuple[str, Any]
CsvCase = dict[str, str | list[str] | dict[str, str]]  # a text, the entries of a list, or the columns below a key


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a file of cases") from None


def _lines(path: Path) -> Iterator[tuple[int, str | Wrong]]:
    """The lines of a text file with their numbers, line ends included; one is never over the cap."""
    with _open(path) as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                yield number, Wrong(f"a line of more than {MAX_LINE:,} bytes; expected a shorter one")
                return
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                yield number, Wrong(f"byte 0x{line[error.start]:02x} is not UTF-8; expected text in UTF-8")


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        if isinstance(line, Wrong) or line.strip():
            yield f"{path}:{number}", line if isinstance(line, Wrong) else loads(line.rstrip("\r\n"))


def _json(path: Path) -> Iterator[Row]:
    """One list in a file, which is small enough to be in memory while it is read."""
    with _open(path) as file:
        content = file.read(MAX_LINE + 1)
    if len(content) > MAX_LINE:
        yield f"{path}:1", Wrong(f"more than {MAX_LINE:,} bytes; expected a smaller file, or a .jsonl file")
        return
    try:
        rows = loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        rows = Wrong(f"byte 0x{content[error.start]:02x} is not UTF-8; expected text in UTF-8")
    if not isinstance(rows, list | Wrong):
        rows = Wrong(f"{describe(rows)}; expected a list of cases")
    if isinstance(rows, Wrong):
        yield str(path), rows
        return
    for position, row in enumerate(rows, start=1):
        yield f"{path}: case {position}", row


def _read_csv(path: Path) -> Iterator[Row]:
    """Read a CSV file. Reading ends at the first row that is no CSV."""
    line = 0

    def text() -> Iterator[str]:
        nonlocal line
        for number, content in _lines(path):
            line = number
            if isinstance(content, Wrong):
                raise content
            yield content

    # The limit is one for the whole process and far too low for documents; it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader(text(), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_separator(header)
        columns = [_column(name) for name in header]
        _check_columns(columns)
        start = line + 1
        for values in reader:
            if values:
                yield f"{path}:{start}", _row(columns, values)
            start = line + 1
    except Wrong as wrong:
        yield f"{path}:{line}", wrong
    except csv.Error as error:
        yield f"{path}:{line}", Wrong(f"not CSV: {error}; expected one row of values")


def _column(name: str) -> tuple[str, str | None]:
    """The key of a case that a column belongs to, and the key within it."""
    if name in ("id", "expected", "cluster", "tags", "files"):
        return name, None
    key, dot, inner = name.partition(".")
    if dot and key in ("input", "expected"):
        return key, inner
    return "input", name


_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars"}


def _check_separator(header: list[str]) -> None:
    """Raise Wrong if another character than a comma separates the columns."""
    for separator, plural in _SEPARATORS.items():
        name = next((name for name in header if separator in name), None)
        if name is not None and (separator != "|" or len(header) == 1):
            raise Wrong(f"column {describe(name)}, so {plural} seem to separate the columns; expected commas")


def _check_columns(columns: list[tuple[str, str | None]]) -> None:
    """Raise Wrong for a column without a name, or one that comes twice."""
    whole = {key for key, inner in columns if inner is None}
    seen: set[tuple[str, str | None]] = set()
    for column in columns:
        key, inner = column
        name = key if inner is None else inner if key == "input" else f"{key}.{inner}"
        if inner == "":
            raise Wrong("a column without a name; expected a name for each column")
        if column in seen or (inner and key in whole):
            raise Wrong(f"column {describe(name)} a second time; expected each column once")
        seen.add(column)


def _row(columns: list[tuple[str, str | None]], values: list[str]) -> CsvCase | BlankRow | Wrong:
    """The case of a CSV row, or what is wrong with it."""
    if not any(value.strip() for value in values):
        return BlankRow()
    if len(values) != len(columns):
        return Wrong(f"{len(values)} values; expected {len(columns)}, one for each column")
    nested: dict[str, dict[str, str]] = {"input": {}}
    row: CsvCase = {}
    for (key, inner), value in zip(columns, values, strict=True):
        if key == "expected" and not value.strip():
            continue
        if inner is not None:
            nested.setdefault(key, {})[inner] = value
        elif key == "tags":
            row["tags"] = re.split(r"[\s;]+", value.strip(" ;")) if value.strip(" ;") else []
        elif key == "files":
            row["files"] = [name.strip() for name in value.split(";") if name.strip()]
        elif key == "expected":
            row[key] = value
        elif value.strip():  # of `id` and `cluster`
            row[key] = value.strip()
    return {**nested, **row}


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Make a JSON object. Raises Wrong for a key that comes twice."""
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise Wrong(f"key {describe(name)} a second time; expected each key once")
        found[name] = value
    return found


class _Constant(Exception):
    """A number that JSON does not have; the decoder does not say where."""


def _constant(name: str) -> NoReturn:
    raise _Constant(name)


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise Wrong(f"{text[:40]} is too large for a number; expected a smaller one")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)', re.DOTALL)  # what stands in a text is passed over


def loads(text: str) -> Any:
    """What a JSON text says, or what is wrong with it; nothing is changed silently on the way."""
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:  # half of a surrogate pair can be written, but not stored
            json.dumps(value, ensure_ascii=False).encode()
    except Wrong as wrong:
        return wrong
    except _Constant as constant:
        at = next(one.start(1) for one in _CONSTANTS.finditer(text) if one[1])
        return Wrong(f"{constant} is not JSON ({_place(text, at)}); expected a number or null")
    except json.JSONDecodeError as error:
        return Wrong(f"not JSON: {error.msg} ({_place(text, error.pos)}); expected one JSON value")
    except UnicodeEncodeError:
        return Wrong("half of a surrogate pair in text; expected whole characters")
    except RecursionError:
        return Wrong("JSON nested too deeply; expected a flatter value")
    except ValueError:  # Python converts at most 4,300 digits
        return Wrong("a number of too many digits; expected a shorter one, or text in quotes")
    return value


def _place(text: str, at: int) -> str:
    """Where a character of a JSON text stands, with its line if there are several."""
    before = text[:at].split("\n")
    return (f"line {len(before)}, " if "\n" in text.strip() else "") + f"column {len(before[-1]) + 1}"


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {".jsonl": _jsonl, ".csv": _read_csv, ".json": _json}
