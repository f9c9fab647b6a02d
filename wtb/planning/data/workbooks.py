"""The rows of the first sheet of an XLSX workbook, as the texts that a CSV file of it would have.

A workbook is a ZIP archive of XML, so a small file can hold very much: what it may hold is bounded before it is read.
"""

from __future__ import annotations

import datetime
import warnings
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.texts import listed_names

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


class BadSheet(Exception):
    """What is wrong with a workbook, and the number of the row, if it is one row."""

    def __init__(self, text: str, row: int | None = None) -> None:
        super().__init__(text)
        self.row = row


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the first visible sheet with their numbers, without empty cells at their ends.

    Args:
        path: An XLSX file.

    Raises:
        InputError: If openpyxl is not installed.
        BadSheet: If it is no workbook, is too large, or a cell has the error of a formula.
    """
    workbook = _open_workbook(path)
    try:
        sheets = [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
        if not sheets:
            raise BadSheet("a workbook without a visible sheet; expected the cases on its first sheet")
        sheets[0].reset_dimensions()  # which programs write wrongly
        yield from _texts(sheets[0].iter_rows(values_only=True), sheets[0].title, [sheet.title for sheet in sheets[1:]])
    finally:
        workbook.close()


def _open_workbook(path: Path) -> Workbook:
    """Open a workbook. Raises InputError, BadSheet."""
    if find_spec("openpyxl") is None:
        raise InputError(f"{path.name}: reading XLSX needs openpyxl: {pip_install('sheets')}; or save the sheet as CSV")
    from openpyxl import load_workbook

    _check_archive(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # about styles and the like
            return load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except _BROKEN as error:
        raise BadSheet(f"not an XLSX workbook ({_why(error)}); expected one, or the sheet as CSV") from None


def _check_archive(path: Path) -> None:
    """Check a workbook before anything of it is unpacked. Raises BadSheet."""
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
    except (BadZipFile, OSError, ValueError) as error:
        text = f"not an XLSX workbook ({_why(error)}); expected one without a password, or the sheet as CSV"
        raise BadSheet(text) from None
    if "xl/workbook.xml" not in {member.filename for member in members}:
        raise BadSheet("a ZIP archive that is no XLSX workbook; expected one, or the sheet as CSV")
    unpacked = sum(member.file_size for member in members)
    if unpacked > MOST_UNPACKED_BYTES:
        raise BadSheet(f"{unpacked:,} bytes once unpacked; expected at most {MOST_UNPACKED_BYTES:,}: save it as CSV")


def _texts(rows: Iterator[tuple[Any, ...]], title: str, other_titles: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield rows as texts. title: of the sheet. others: the titles of further sheets. Raises BadSheet."""
    number = cells = 0
    is_empty = True
    for number, row in enumerate(_unbroken(rows), start=1):
        cells += len(row)
        if cells > MOST_CELLS:
            raise BadSheet(f"more than {MOST_CELLS:,} cells; expected fewer: save the sheet as CSV", number)
        texts = [_text(value, number) for value in row]
        while texts and not texts[-1]:
            texts.pop()
        if len(texts) > MOST_COLUMNS:
            raise BadSheet(f"{len(texts):,} columns; expected at most {MOST_COLUMNS:,}", number)
        is_empty = is_empty and not texts
        yield number, texts
    if is_empty and other_titles:
        named = listed_names([repr(other_title) for other_title in other_titles[:_MOST_NAMED]])
        raise BadSheet(f"its first sheet, {title!r}, is empty; expected the cases there; its other sheets: {named}")


def _unbroken(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows until one cannot be read. Raises BadSheet."""
    number = 1
    try:
        for row in rows:
            yield row
            number += 1
    except _BROKEN as error:
        raise BadSheet(f"cannot be read ({_why(error)}); expected a whole XLSX workbook", number) from None


def _text(value: object, row: int) -> str:
    """Return a value as text: numbers without what their format adds, dates as ISO has them. Raises BadSheet."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    text = str(value)
    if text in _ERRORS:
        raise BadSheet(f"a formula that gives {text}; expected a value", row)
    return text


def _why(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
