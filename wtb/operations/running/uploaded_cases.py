"""The cases of a sweep that was sent with the digest of an upload in place of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wtb.core.errors import InputError, describe
from wtb.planning.case_files import FILE_KINDS, READERS, Row, TableRow, Wrong
from wtb.planning.data.case_problems import CaseProblems
from wtb.store.database import Database
from wtb.store.files.uploads import find_upload, read_upload

MOST_CASES = 200_000  # of an upload, whose bytes alone would allow for millions

_EXPECTED = f"expected a list of cases, or {{upload: SHA-256, name: FILE}} of {FILE_KINDS} that was uploaded"


def with_uploaded_cases(database: Database, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a sweep with its cases as a list, or as a table.

    Args:
        database: Which has the upload.
        keys: As they were sent: `cases` is a list, a table, or names an upload.

    Raises:
        InputError: If there is no such upload, or it cannot be read.
        ConflictError: If it is removed while it is read.
    """
    cases = keys.get("cases")
    if not isinstance(cases, Mapping) or cases.keys() & {"headings", "rows"}:
        return dict(keys)
    with TemporaryDirectory(prefix="wtb-upload-") as folder:
        file, name = write_upload(database, cases, Path(folder), "keys")
        rows = _checked(READERS[file.suffix](file), str(file), name)
    return {**keys, "cases": rows}


def sent_cases(database: Database, cases: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    """Return cases that were sent with a call as a list of them, or of a table alone.

    Args:
        database: Which has the upload.
        cases: A list of cases, or what names an upload.

    Raises:
        InputError: If there is no such upload, or it cannot be read.
        ConflictError: If it is removed while it is read.
    """
    rows = with_uploaded_cases(database, {"cases": cases})["cases"]
    return [rows] if isinstance(rows, Mapping) else list(rows)


def write_upload(
    database: Database, cases: Mapping[str, Any], folder: Path, argument: str = "cases"
) -> tuple[Path, str]:
    """Write an upload to a file, and return that and the name that it was sent as.

    Args:
        database: Which has the upload.
        cases: `{upload: SHA-256, name: FILE}`.
        folder: Where the file is written.
        argument: The argument of the operation that has it.

    Raises:
        InputError: If there is no such upload, or its name is not that of a file of cases.
        ConflictError: If it is removed while it is read.
    """
    digest, name = cases.get("upload"), cases.get("name")
    if cases.keys() != {"upload", "name"} or not isinstance(digest, str) or not isinstance(name, str):
        raise InputError(f"cases: {describe(dict(cases))}; {_EXPECTED}", argument=argument)
    suffix = Path(name).suffix.lower()
    if suffix not in READERS:
        raise InputError(f"cases: the name is {describe(name)}; {_EXPECTED}", argument=argument)
    upload = find_upload(database, digest)
    if upload is None:
        raise InputError(
            f"cases: there is no upload {digest!r:.80}; send the file with PUT /uploads/SHA-256, it is kept for a day",
            argument=argument,
        )
    file = folder / f"cases{suffix}"
    with file.open("wb") as written:
        for part in read_upload(database, upload):
            written.write(part)
    return file, name


def _checked(rows: Iterator[Row], file: str, name: str) -> list[Any] | dict[str, Any]:
    """Return the cases of a file: a list, or a table by its headings and rows.

    Raises InputError with places by the name it was sent as, or if there are too many.
    """
    cases: list[Any] = []
    headings: Sequence[str] | None = None
    problems = CaseProblems()
    for place, row in rows:
        if isinstance(row, Wrong):
            problems.add(place.replace(file, name, 1), [str(row)])
        elif isinstance(row, TableRow):
            headings = row.headings.names
            cases.append(row.values)
        else:
            cases.append(row)
        if len(cases) > MOST_CASES:
            raise InputError(f"cases: {name} has more than {MOST_CASES:,} cases, which is the limit", argument="keys")
    if problems:
        raise InputError(*problems.texts(), argument="keys")
    return cases if headings is None else {"headings": list(headings), "rows": cases}
