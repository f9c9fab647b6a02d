"""The cases of a sweep: an iterable that is read as often as needed, and never in memory as a whole.

A source is a `.jsonl`, `.csv`, `.json` or `.xlsx` file (see `case_files` beside it), a list, or an import path to a
callable that returns an iterable. A case is a mapping of `id`, `input`, `expected`, `tags`, `cluster` and `files`;
nothing is guessed: the state's values are under `input`. A case without an id is identified by its position, from 1.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from wtb.authoring.code.import_paths import exits_as_errors, own_frames
from wtb.authoring.evaluation.fields import ASSERT
from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.failures import check_interrupt
from wtb.core.frozen import frozen
from wtb.core.ids import plain_id
from wtb.core.serialization.plain_json import wrong_text
from wtb.core.serialization.type_tags import is_model
from wtb.core.values import Json, State
from wtb.planning.case_columns import BlankRow, CaseProblems, CaseTable, ColumnKeys, case_of
from wtb.planning.case_files import FILE_KINDS, READERS, TABLES, Headings, Row, TableRow, Wrong

AT_ONCE = 100  # cases that user code makes before they are looked at
_SPREADSHEETS = frozenset({".xls", ".xlsb", ".ods"})
KEYS = ("id", "input", "assert", "expected", "tags", "cluster", "files")


@frozen
class Case:
    """One input with its expected value.

    Attributes:
        id: Its id.
        input: The input.
        expected: The expected value.
        tags: Its tags.
        files: Path in the workspace -> absolute path of the source.
        cluster: The common origin of several cases, such as the document that several questions are about: such cases
            are not independent of each other.
    """

    id: str
    input: State
    expected: Any = None
    tags: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)
    cluster: str | None = None


def case_row(case: Case) -> dict[str, Any]:
    """Return a case as a row of a source, which reads back as the same case."""
    files = {name: str(path) for name, path in case.files.items()}
    row = {"id": case.id, "input": case.input, "expected": case.expected, "tags": list(case.tags)}
    return row | ({"files": files} if files else {}) | ({"cluster": case.cluster} if case.cluster else {})


class CaseCount(NamedTuple):
    """Number of cases of a source, and of skipped blank rows."""

    cases: int
    blank_rows: int


class ExaminedCases(NamedTuple):
    """The cases of a source: the number of readable ones, skipped blank rows, problems, and the first cases."""

    cases: int
    blank_rows: int
    problems: CaseProblems
    first: list[Case]


@frozen
class CaseSource:
    """Cases that can be iterated any number of times; each time the source is read from its start."""

    name: str
    _folder: Path
    _rows: Callable[[], Iterator[Row]]
    _within: tuple[Path, ...] | None = None
    state_key: str | None = None
    """For workflows whose state is a single value: its key, which inputs need not name."""
    _keeps: Callable[[Case], bool] | None = None
    """Filter of the cases that are iterated; None for all."""
    columns: ColumnKeys = field(default_factory=ColumnKeys)
    """Rules by which columns become keys, for a table."""
    no_files: str | None = None
    """Reason why cases must not name files; None if they may."""

    def __iter__(self) -> Iterator[Case]:
        """Yield the cases in order. Raises InputError at the first invalid one; `check` finds more of them."""
        filled = ((place, row) for place, row in self._read() if not isinstance(row, BlankRow))
        for position, (place, row) in enumerate(filled, start=1):
            try:
                case = self._case(row, position)
            except Wrong as wrong:
                raise InputError(f"{place}: {wrong}") from None
            if self._keeps is None or self._keeps(case):
                yield case

    def check(self) -> CaseCount:
        """Read all cases once and count them. Memory use is 16 bytes per id.

        Raises:
            InputError: Up to 10 problems, each once: unreadable lines, wrong keys and types, missing files, repeated
                ids, or no cases at all.
        """
        read = self.examine()
        if read.problems:
            raise InputError(*read.problems.texts())
        return CaseCount(read.cases, read.blank_rows)

    def examine(self, fits: Callable[[Case], Iterable[str]] = lambda case: (), first: int = 0) -> ExaminedCases:
        """Read all cases once, and return their number, problems and first cases.

        Args:
            fits: Returns further problems of a case.
            first: How many of the first cases to return.
        """
        problems, first_cases = CaseProblems(), list[Case]()
        seen: set[bytes] = set()
        count = blank = unreadable = 0
        for place, row in self._read():
            if isinstance(row, BlankRow):
                blank += 1
                continue
            count += 1
            try:
                case = self._case(row, count)
                if len(first_cases) < first:
                    first_cases.append(case)
                _must_exist(case.files)
                # Digests instead of ids: a million ids of any length take the same, bounded memory.
                digest = hashlib.blake2b(case.id.encode(), digest_size=16).digest()
                if digest in seen:
                    raise Wrong(f"id {describe(case.id)} a second time; expected each id once")
                seen.add(digest)
                problems.add(place, fits(case))
            except Wrong as wrong:
                # A row that its reader could not read is no case; one with a wrong key is a case with a problem.
                unreadable += wrong is row
                problems.add(place, [str(wrong)])
        if not count:
            problems.add(self.name, ["no cases; expected at least one"])
        return ExaminedCases(count - unreadable, blank, problems, first_cases)

    def head(self, rows: int) -> tuple[Headings | None, list[TableRow]]:
        """Return the headings of a table and its first non-blank rows; None for any other source."""
        tables = (row for _, row in self._rows() if isinstance(row, TableRow))
        table_rows = list(islice((row for row in tables if any(cell.strip() for cell in row.values)), rows))
        return (table_rows[0].headings if table_rows else None), table_rows

    def table(self) -> dict[str, Json] | None:
        """Return a table as `cases` of a sweep accepts it; None for a source that is no table, or has no rows."""
        rows = [row for _, row in self._rows()]
        tables = [row for row in rows if isinstance(row, TableRow)]
        if not tables:
            return None
        return {"headings": list(tables[0].headings.names), "rows": [list(row.values) for row in tables]}

    def _read(self) -> Iterator[Row]:
        """Yield the rows, those of tables as cases. Raises InputError for columns that are not keys."""
        headings, meanings = None, []
        for place, row in self._rows():
            if not isinstance(row, TableRow):
                yield place, row
                continue
            # Headings are one object for a whole table, so columns are interpreted once and not for each row.
            if row.headings is not headings:
                headings, meanings = row.headings, self.columns.read(row.headings)
            yield place, case_of(meanings, row.values)

    def _case(self, row: Any, position: int) -> Case:
        if self.no_files is not None and isinstance(row, Mapping) and row.get("files"):
            raise Wrong(self.no_files)
        case = _case(row, position, self._folder, self.state_key)
        if self._within is not None:
            _must_be_within(case.files, self._within)
        return case


Resolve = Callable[[str], Any]


def read_cases(
    source: str | Path | Sequence[Any] | CaseTable,
    base: Path,
    where: Located,
    resolve: Resolve | None = None,
    files_from: Sequence[str] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
) -> CaseSource:
    """Return the cases that `cases:` of a sweep names; nothing of a file is read yet.

    Args:
        source: A path, an import path, a list, or a table.
        base: The folder that paths are relative to; paths in a case are relative to the folder of the cases file.
        where: Names the place of `cases` in messages.
        resolve: Imports `pkg.module:attr` and returns its callable or list; without it import paths are rejected.
        files_from: Further folders, relative to `base`, whose files cases may name. Cases in a document may name files
            in its own folder and in these; cases from code may name any.
        columns: Key -> headings of a table.

    Raises:
        InputError: The source does not exist or cannot be read.
    """
    more = [base / folder for folder in files_from]
    keys = ColumnKeys(columns or {}, where)
    if columns and not _is_table(source):
        source_kind = describe(str(source)) if isinstance(source, str | Path) else "a list"
        text = f"'columns' is for tables, and 'cases' is {source_kind}; expected a .csv or .xlsx file"
        raise InputError(where.problem(("columns",), text))
    if isinstance(source, CaseTable):
        within = _folders(base, more) if where.document else None
        return CaseSource(where.place(("cases",)) or "cases", base, _rows_of_table(source, where), within, columns=keys)
    if not isinstance(source, str | Path):
        return CaseSource(
            where.place(("cases",)) or "cases",
            base,
            lambda: ((where.place(("cases", index)), row) for index, row in enumerate(source)),
            _folders(base, more) if where.document else None,
        )
    path = base / source
    reader = READERS.get(path.suffix.lower())
    if reader is None and isinstance(source, str) and ":" in source and resolve is not None:
        try:
            rows = _rows_of(source, resolve, where)
        except InputError as error:
            raise InputError(*(where.problem(("cases",), text) for text in error.problems)) from error
        return CaseSource(source, base, rows)
    if reader is None:
        expected = f"{FILE_KINDS}, or an import path 'pkg.mod:fn'"
        if path.suffix.lower() in _SPREADSHEETS:
            expected += "; save the sheet as XLSX, or as CSV in UTF-8"
        raise InputError(where.problem(("cases",), f"cases {describe(str(source))}; expected {expected}"))
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise InputError(where.problem(("cases",), _describe_missing(path, error))) from None
    if not regular:
        text = f"cases file '{path}' is not a regular file; expected {FILE_KINDS}"
        raise InputError(where.problem(("cases",), text))
    return CaseSource(str(path), path.parent, lambda: reader(path), _folders(path.parent, more), columns=keys)


def _is_table(source: str | Path | Sequence[Any] | CaseTable) -> bool:
    return Path(source).suffix.lower() in TABLES if isinstance(source, str | Path) else isinstance(source, CaseTable)


def _rows_of_table(table: CaseTable, where: Located) -> Callable[[], Iterator[Row]]:
    headings = Headings(table.headings, where.place(("cases", "headings")) or "cases.headings")

    def rows() -> Iterator[Row]:
        for number, values in enumerate(table.rows):
            yield where.place(("cases", "rows", number)), TableRow(headings, values)

    return rows


def _folders(own: Path, more: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(folder.resolve() for folder in (own, *more))


def _describe_missing(path: Path, error: OSError | ValueError) -> str:
    """Describe why a file of cases cannot be opened, with a near match."""
    if not isinstance(error, FileNotFoundError):
        return f"cases file '{path}' cannot be read ({error}); expected a file that can"
    try:
        near = did_you_mean(path.name, (file.name for file in path.parent.iterdir()))
    except OSError:
        near = ""
    return f"cases file '{path}' does not exist; expected {FILE_KINDS}{near}"


def _rows_of(source: str, resolve: Resolve, where: Located) -> Callable[[], Iterator[Row]]:
    """Return a function that reads rows from the callable or list at an import path."""
    resolved = resolve(source)

    def rows() -> Iterator[Row]:
        try:
            yield from iterate_cases()
        except (InputError, GeneratorExit):  # the latter if the reader takes no more rows
            raise
        except BaseException as error:
            check_interrupt(error)
            text = f"'{source}' failed; expected cases: {own_frames(error)}"
            raise InputError(where.problem(("cases",), text)) from error

    def iterate_cases() -> Iterator[Row]:
        with exits_as_errors():
            cases = resolved() if callable(resolved) else resolved
        # An iterator can be read once only, and cases are read several times: when they are checked and when they are
        # stored.
        once = isinstance(cases, Iterator) and cases is resolved
        if once or not isinstance(cases, Iterable) or isinstance(cases, str | bytes | Mapping):
            text = f"'{source}' gave {describe(cases)}; expected a callable that returns an iterable of cases"
            raise InputError(where.problem(("cases",), text))
        for position, row in enumerate(_alive(cases), start=1):
            yield f"{source}: case {position}", row

    return rows


def _alive(cases: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows that user code makes, and raise if it would end the process."""
    rows = iter(cases)
    while True:
        # Entering the guard costs more than making a row, so rows are made in batches.
        with exits_as_errors():
            batch = list(islice(rows, AT_ONCE))
        yield from batch
        if len(batch) < AT_ONCE:
            return


def _case(row: Any, position: int, folder: Path, state_key: str | None) -> Case:
    """Return the case that a row describes. Raises Wrong."""
    if isinstance(row, Wrong):
        raise row
    if isinstance(row, Case):
        row = vars(row)
    if not isinstance(row, Mapping):
        raise Wrong(f"{describe(row)} as a case; expected a mapping with 'input'")
    for key in row:
        if key not in KEYS:
            hint = "; put what goes into the state under 'input'" if "input" not in row else ""
            near = did_you_mean(str(key), KEYS) or f"; expected one of: {', '.join(KEYS)}{hint}"
            raise Wrong(f"key {describe(key)} of a case is not known{near}")
    case_input = _as_state(row.get("input"), state_key if "input" in row else None)
    if not isinstance(case_input, Mapping) or not all(isinstance(key, str) for key in case_input):
        problem = describe(case_input) if "input" in row else "missing"
        raise Wrong(f"'input' is {problem}; expected a mapping from keys of the state to values")
    for key in case_input:
        if wrong := wrong_text(key):
            raise Wrong(f"key {describe(key)} of 'input' has {wrong}")
    return Case(
        id=_read_id(row.get("id"), position),
        input=dict(case_input),
        expected=_read_expected(row),
        tags=_read_tags(row.get("tags")),
        files=_read_files(row.get("files"), folder),
        cluster=_read_cluster(row.get("cluster")),
    )


def _as_state(case_input: Any, state_key: str | None) -> Any:
    """Return an input by the keys of the state: a dataclass or pydantic object by its fields."""
    if state_key is not None:
        return (
            case_input
            if isinstance(case_input, Mapping) and set(case_input) == {state_key}
            else {state_key: case_input}
        )
    if is_dataclass(case_input) and not isinstance(case_input, type):
        return {field.name: getattr(case_input, field.name) for field in fields(case_input)}
    if is_model(type(case_input)):  # what it was not given, and has no value for, is not written, as in LangGraph
        values = {name: getattr(case_input, name) for name in type(case_input).model_fields}
        return {
            name: content
            for name, content in values.items()
            if content is not None or name in case_input.model_fields_set
        }
    return case_input


def _read_id(written: object, position: int) -> str:
    """Return the id of a case: by default its position. Raises Wrong."""
    if written is None:
        return str(position)
    if isinstance(written, int) and not isinstance(written, bool) and written.bit_length() < 64:
        return str(written)
    if isinstance(written, str) and written.strip() and len(written) <= 500 and written.isprintable():
        return plain_id(written)  # ids that differ by spaces or by how Unicode writes them look alike everywhere
    raise Wrong(f"'id' is {describe(written)}; expected 1 to 500 printable characters or a whole number")


def _read_expected(row: Mapping[str, Any]) -> Any:
    """Return the expected value of a case including its assertions, where evaluators look for them. Raises Wrong."""
    expected, assertions = row.get("expected"), row.get(ASSERT)
    if assertions is None:
        return expected
    if not isinstance(assertions, list | tuple) or not assertions:
        raise Wrong(f"'assert' is {describe(assertions)}; expected a list of evaluators, as of a sweep")
    if expected is not None and (not isinstance(expected, Mapping) or ASSERT in expected):
        raise Wrong(f"'assert' beside 'expected', which is {describe(expected)}; expected a mapping by field beside it")
    return {**(expected or {}), ASSERT: list(assertions)}


def _read_tags(tags: object) -> tuple[str, ...]:
    if tags is None:
        return ()
    if isinstance(tags, list | tuple) and all(isinstance(tag, str) and tag.strip() for tag in tags):
        for tag in tags:
            if wrong := wrong_text(tag):
                raise Wrong(f"tag {describe(tag)} has {wrong}")
        return tuple(tag.strip() for tag in tags)
    raise Wrong(f"'tags' is {describe(tags)}; expected a list of texts")


def _read_cluster(cluster: object) -> str | None:
    """Return the name of the cluster of a case, if it has one. Raises Wrong."""
    if cluster is None:
        return None
    if isinstance(cluster, int) and not isinstance(cluster, bool) and cluster.bit_length() < 64:
        return str(cluster)
    if isinstance(cluster, str) and cluster.strip() and len(cluster) <= 500 and cluster.isprintable():
        return plain_id(cluster)
    raise Wrong(
        f"'cluster' is {describe(cluster)}; expected the name of what the case came from, as 1 to 500 printable "
        "characters or a whole number"
    )


def _read_files(listed: object, folder: Path) -> dict[str, Path]:
    """Return the files of a case: path in the workspace -> absolute source. Raises Wrong."""
    pairs: list[tuple[Any, Any]] = []
    if listed is None:
        return {}
    if isinstance(listed, Mapping):
        pairs = list(listed.items())
    elif isinstance(listed, list | tuple) and all(isinstance(path, str | Path) for path in listed):
        pairs = [(PurePosixPath(path).name, path) for path in listed]
    else:
        raise Wrong(f"'files' is {describe(listed)}; expected a list of paths, or a mapping from names to paths")
    files: dict[str, Path] = {}
    for name, source in pairs:
        if not isinstance(name, str) or not isinstance(source, str | Path) or "\0" in f"{name}{source}":
            raise Wrong(f"file {describe(name)} is {describe(source)}; expected a path")
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or not inside.parts:
            raise Wrong(f"file name {describe(name)}; expected a relative path without '..'")
        if str(inside) in files:
            raise Wrong(f"file name {describe(name)} a second time; expected each name once")
        # `abspath`, not `resolve`: symlinks are followed and checked later, in `_must_be_within`.
        files[str(inside)] = Path(os.path.abspath(folder / source))
    # A file cannot be a folder of another one; copying into the workspace would fail in the middle of a run.
    for name in files:
        if clash := next((str(up) for up in PurePosixPath(name).parents if str(up) in files), None):
            raise Wrong(f"file names {describe(clash)} and {describe(name)}; expected no file in another")
    return files


def _must_be_within(files: Mapping[str, Path], folders: tuple[Path, ...]) -> None:
    """Reject files outside of the allowed folders, including symlinks that lead out."""
    for path in files.values():
        # The author of a file of cases may lack the read permissions of the process that copies its files.
        try:
            target = path.resolve()
        except (OSError, RuntimeError) as error:
            raise Wrong(f"file '{path}' cannot be followed ({error}); expected a file") from None
        if not any(target.is_relative_to(folder) for folder in folders):
            leads = f", which leads to '{target}'," if target != path else ""
            raise Wrong(
                f"file '{path}'{leads} is outside of '{folders[0]}'; expected one in that folder, or in one that the "
                f"sweep lists under 'files_from'"
            )


def _must_exist(files: Mapping[str, Path]) -> None:
    """Raise Wrong for a file that is missing or not regular."""
    for path in files.values():
        try:
            regular = stat.S_ISREG(path.stat().st_mode)
        except OSError as error:
            raise Wrong(f"file '{path}': {error.strerror}; expected a file") from None
        if not regular:
            raise Wrong(f"file '{path}' is not a regular file; expected one")
