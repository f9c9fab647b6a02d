"""Rows of a file of cases: JSON lines, CSV, XLSX or one JSON list, with the place of each.

JSON lines, CSV and XLSX are streamed. A row that cannot be read is returned as a Wrong at its place, so that reading
can continue. Rows of CSV and XLSX are TableRows: `wtb.planning.case_columns` converts them to cases. Columns of a
CSV file are separated by commas, semicolons or tabs; every value stays text, and XLSX is read as text. JSON has no NaN.
Text files are UTF-8, with or without a byte order mark; blank lines are skipped.
"""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn
from zipfile import BadZipFile, ZipFile

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.texts import listed_names
from wtb.core.values import Json

if TYPE_CHECKING:
    from openpyxl import Workbook

MOST_UNPACKED_BYTES = 200_000_000
MOST_CELLS = 10_000_000  # blank cells of formatted rows included
MOST_COLUMNS = 1_000
_ERRORS = frozenset({"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"})  # of formulas
_MOST_NAMED = 5
_BROKEN = (
    *(ArithmeticError, AssertionError, AttributeError, BadZipFile, EOFError, LookupError, NotImplementedError, OSError),
    *(RuntimeError, SyntaxError, TypeError, ValueError, zlib.error),
)  # what readers of broken workbooks raise


class BadTable(Exception):
    """A problem of a table, with the number of the row, or of the line, if it concerns one."""

    def __init__(self, text: str, row: int | None = None) -> None:
        super().__init__(text)
        self.row = row


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the first visible sheet with their numbers, without empty cells at their ends.

    Args:
        path: An XLSX file.

    Raises:
        InputError: If openpyxl is not installed.
        BadTable: If it is no workbook, is too large, or a cell has the error of a formula.
    """
    workbook = _open_workbook(path)
    try:
        sheets = [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
        if not sheets:
            raise BadTable("a workbook without a visible sheet; expected the cases on its first sheet")
        # A wrong dimension makes openpyxl skip rows that exist.
        sheets[0].reset_dimensions()  # which programs write wrongly
        yield from _texts(sheets[0].iter_rows(values_only=True), sheets[0].title, [sheet.title for sheet in sheets[1:]])
    finally:
        workbook.close()


def _open_workbook(path: Path) -> Workbook:
    """Open a workbook. Raises InputError, BadTable."""
    if find_spec("openpyxl") is None:
        raise InputError(f"{path.name}: reading XLSX needs openpyxl: {pip_install('sheets')}; or save the sheet as CSV")
    from openpyxl import load_workbook

    _check_archive(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # about styles and the like
            return load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except _BROKEN as error:
        raise BadTable(f"not an XLSX workbook ({_why(error)}); expected one, or the sheet as CSV") from None


def _check_archive(path: Path) -> None:
    """Check a workbook before anything is unpacked. Raises BadTable."""
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
    except (BadZipFile, OSError, ValueError) as error:
        text = f"not an XLSX workbook ({_why(error)}); expected one without a password, or the sheet as CSV"
        raise BadTable(text) from None
    if "xl/workbook.xml" not in {member.filename for member in members}:
        raise BadTable("a ZIP archive that is no XLSX workbook; expected one, or the sheet as CSV")
    # The sizes come from the archive's directory, so a decompression bomb is rejected before it unpacks.
    unpacked = sum(member.file_size for member in members)
    if unpacked > MOST_UNPACKED_BYTES:
        raise BadTable(f"{unpacked:,} bytes once unpacked; expected at most {MOST_UNPACKED_BYTES:,}: save it as CSV")


def _texts(rows: Iterator[tuple[Any, ...]], title: str, other_titles: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield rows as texts.

    Args:
        rows: The values of each row.
        title: The title of the sheet.
        other_titles: The titles of further sheets.

    Raises:
        BadTable: The sheet is too large or empty, or a cell has an error.
    """
    number = cells = 0
    is_empty = True
    for number, row in enumerate(_unbroken(rows), start=1):
        cells += len(row)
        if cells > MOST_CELLS:
            raise BadTable(f"more than {MOST_CELLS:,} cells; expected fewer: save the sheet as CSV", number)
        texts = [_text(cell, number) for cell in row]
        while texts and not texts[-1]:
            texts.pop()
        if len(texts) > MOST_COLUMNS:
            raise BadTable(f"{len(texts):,} columns; expected at most {MOST_COLUMNS:,}", number)
        is_empty = is_empty and not texts
        yield number, texts
    if is_empty and other_titles:
        named = listed_names([repr(other_title) for other_title in other_titles[:_MOST_NAMED]])
        raise BadTable(f"its first sheet, {title!r}, is empty; expected the cases there; its other sheets: {named}")


def _unbroken(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows until one cannot be read. Raises BadTable."""
    number = 1
    try:
        for row in rows:
            yield row
            number += 1
    except _BROKEN as error:
        raise BadTable(f"cannot be read ({_why(error)}); expected a whole XLSX workbook", number) from None


def _text(cell: object, row: int) -> str:
    """Return a value as text: numbers without formatting, dates in ISO format. Raises BadTable."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        # Spreadsheets store every number as a float: 3 must not become "3.0", which is no id that anybody wrote.
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(" ")
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    text = str(cell)
    if text in _ERRORS:
        raise BadTable(f"a formula that gives {text}; expected a value", row)
    return text


def _why(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


MAX_LINE = 64 * 1024 * 1024


class Wrong(Exception):
    """A problem of one case, with expectation; its reader adds the place."""


@frozen
class Headings:
    """The first row of a table and its place, such as FILE:1."""

    names: Sequence[str]
    place: str


@frozen(slots=True)
class TableRow:
    """Another row of a table."""

    headings: Headings
    values: Sequence[str]


# A place such as FILE:LINE, and what stands there; a Wrong if it could not be read.
Row = tuple[str, Any]


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a file of cases") from None


def _lines(path: Path) -> Iterator[tuple[int, str | Wrong]]:
    """Yield the lines of a text file with their numbers, line ends included; none exceeds the cap."""
    with _open(path) as file:
        number = 0
        # `readline` with a limit: a file without line ends would otherwise be read into memory as one line.
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
    """Yield the cases of one list in a file, which must be small enough for memory."""
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
    # The limit is one for the whole process and far too low for documents; it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    headings: Headings | None = None
    place = f"{path}:1"
    try:
        for place, values in _csv_rows(path, *_separator(path)):
            if headings is not None:
                yield place, TableRow(headings, values)
            elif any(cell.strip() for cell in values):  # rows above the headings may be blank
                headings = Headings(values, place)
    except BadTable as bad:
        yield f"{path}:{bad.row}", Wrong(str(bad))


def _read_xlsx(path: Path) -> Iterator[Row]:
    """Read the first sheet of an XLSX workbook. Reading ends at the first row that cannot be read."""
    kind = kind_of(path)
    if kind is not None and kind != _ZIP:
        yield str(path), Wrong(f"{kind}; expected an XLSX workbook without a password")
        return
    headings: Headings | None = None
    try:
        for number, values in sheet_rows(path):
            if headings is not None:
                blank = [""] * (len(headings.names) - len(values))  # cells that the row does not have
                yield f"{path}:{number}", TableRow(headings, values + blank)
            elif values:
                headings = Headings(values, f"{path}:{number}")
    except BadTable as bad:
        yield str(path) if bad.row is None else f"{path}:{bad.row}", Wrong(str(bad))


def _csv_rows(path: Path, separator: str, begin: int = 1) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a CSV file from a line on, with their places. Raises BadTable."""
    line = 0

    def text() -> Iterator[str]:
        nonlocal line
        for number, content in _lines(path):
            line = number
            if isinstance(content, Wrong):
                raise BadTable(str(content), number)
            if number >= begin:
                yield content

    start = begin
    try:
        for values in csv.reader(text(), delimiter=separator, strict=True):
            if values:
                yield f"{path}:{start}", values
            start = line + 1
    except csv.Error as error:
        raise BadTable(f"not CSV: {error}; expected one row of values", line) from None


_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_DECLARED = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # the first line of a file that Excel is told the separator with
_COMPARED_ROWS = 20


def _separator(path: Path) -> tuple[str, int]:
    """Return the character that separates the columns of a file, and the line at which the table begins.

    It is the separator in the headings. If there are several, it is the one by which all first rows have as many values
    as there are headings.

    Raises:
        BadTable: The separator is ambiguous or unknown.
    """
    first = next((line for _, line in _lines(path)), "")
    declared = None if isinstance(first, Wrong) else _DECLARED.fullmatch(first)
    if declared is not None:
        return declared[1], 2
    candidates = {separator: _widths(path, separator) for separator in _SEPARATORS}
    possible = [separator for separator, widths in candidates.items() if widths and widths[0] > 1]
    if len(possible) > 1:
        even = [separator for separator in possible if len(set(candidates[separator])) == 1]
        if len(even) != 1:
            names = listed_names([_SEPARATORS[separator] for separator in possible])
            raise BadTable(f"{names} may separate the columns; expected one of them: put texts with it in quotes", 1)
        possible = even
    if not possible and isinstance(first, str) and "|" in first:
        raise BadTable("vertical bars seem to separate the columns; expected commas, semicolons or tabs", 1)
    return (possible[0] if possible else ","), 1


def _widths(path: Path, separator: str) -> list[int]:
    """Return the number of values in the first rows by a separator, up to a row that is not CSV with it."""
    widths: list[int] = []
    with suppress(BadTable):
        for _, values in _csv_rows(path, separator):
            if any(cell.strip() for cell in values):
                widths.append(len(values))
            if len(widths) == _COMPARED_ROWS:
                break
    return widths


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Build a JSON object. Raises Wrong for a repeated key."""
    members: dict[str, Json] = {}
    for name, member in pairs:
        if name in members:
            raise Wrong(f"key {describe(name)} a second time; expected each key once")
        members[name] = member
    return members


class _Constant(Exception):
    """A number that JSON does not have; the decoder does not report its place."""


def _constant(name: str) -> NoReturn:
    raise _Constant(name)


def _float(text: str) -> float:
    # Python reads 1e999 as infinity, which would be stored as a value that nobody wrote.
    if math.isinf(number := float(text)):
        raise Wrong(f"{text[:40]} is too large for a number; expected a smaller one")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)', re.DOTALL)  # what stands in a text is passed over


def loads(text: str) -> Any:
    """Return the value of a JSON text, or its problem; nothing is changed silently."""
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:  # half of a surrogate pair can be written, but not stored
            json.dumps(value, ensure_ascii=False).encode()
    except Wrong as wrong:
        return wrong
    except _Constant as constant:
        at = next(match.start(1) for match in _CONSTANTS.finditer(text) if match[1])
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
    """Return the position of a character in a JSON text, with its line if there are several."""
    before = text[:at].split("\n")
    return (f"line {len(before)}, " if "\n" in text.strip() else "") + f"column {len(before[-1]) + 1}"


# How files of other kinds begin, which are often dropped or named wrongly.
_ZIP = "a ZIP archive, as XLSX workbooks are"
_KINDS = {
    b"PK\x03\x04": _ZIP,
    b"%PDF": "a PDF document",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"\xd0\xcf\x11\xe0": "an old or protected Office document",
    b"\x1f\x8b": "a file that gzip compressed",
    b"PAR1": "a Parquet file",
    b"SQLite format 3\0": "an SQLite database",
}


def kind_of(path: Path) -> str | None:
    """Return the kind of a binary file by its first bytes, if it is known."""
    with _open(path) as file:
        begin = file.read(16)
    return next((kind for magic, kind in _KINDS.items() if begin.startswith(magic)), None)


def _text_reader(read: Callable[[Path], Iterator[Row]], kind: str) -> Callable[[Path], Iterator[Row]]:
    """Return a reader that names a binary file as what it is."""

    def rows(path: Path) -> Iterator[Row]:
        other = kind_of(path)
        if other is None:
            yield from read(path)
        else:
            yield str(path), Wrong(f"{other}; expected {kind}")

    return rows


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _text_reader(_jsonl, "text in UTF-8, one case in JSON a line"),
    ".ndjson": _text_reader(_jsonl, "text in UTF-8, one case in JSON a line"),
    ".csv": _text_reader(_read_csv, "a table as text in UTF-8"),
    ".tsv": _text_reader(_read_csv, "a table as text in UTF-8"),
    ".json": _text_reader(_json, "text in UTF-8, a list of cases in JSON"),
    ".xlsx": _read_xlsx,
}
TABLES = frozenset({".csv", ".tsv", ".xlsx"})  # those of them whose rows are TableRows
FILE_KINDS = "a .jsonl, .csv, .json or .xlsx file"
