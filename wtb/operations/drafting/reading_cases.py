"""Reading a file of cases before a sweep is written: what its columns are, what is wrong, and the first cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.yaml_reader import Located
from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.documents.workflows.new_sweeps import CaseFileDocument, CasePreview, ColumnDocument
from wtb.core.errors import InputError, describe
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable
from wtb.operations.context import Context
from wtb.operations.running.preparing import bind_stored
from wtb.operations.running.uploaded_cases import MOST_CASES, write_upload
from wtb.planning.cases import Case, CaseSource, read_cases
from wtb.planning.data.case_columns import IGNORE, OF_A_CASE, CaseTable, key_text, read_columns
from wtb.planning.data.checking import input_problems
from wtb.planning.prepare import of_workflow, stored_spec
from wtb.store.read import queries

_SHOWN_CASES = 5
_SHOWN_VALUES = 3
_SHOWN_CHARACTERS = 1_000
_NO_FILES = "a case names files, and files of this machine are not read; put what they hold into its input"


@frozen
class _Place:
    """Where cases are. file: as messages have it, and name: as the caller knows it."""

    source: CaseSource
    name: str
    file: str | None = None

    def named(self, text: str) -> str:
        """Return a message with the name that the caller knows."""
        return text if self.file is None else text.replace(self.file, self.name)


@checked
def read_case_file(
    context: Context,
    cases: Any,
    *,
    workflow: str | None = None,
    sweep: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> CaseFileDocument:
    """Show how a sweep would read a file of cases.

    Headings that are no keys of a case are offered as a mapping, which is what `columns` of a sweep takes. With that
    the cases are read.

    Args:
        context: Where; its database has what is published and uploaded.
        cases: The path of a file, a list of cases, a table as `{headings: [...], rows: [[...]]}`, or a file that a
            server was sent as `{upload: SHA-256, name: FILE}`. A server reads no paths.
        workflow: The workflow whose inputs the cases are; without one any key may be in an input.
        sweep: The sweep that they are to be added to, instead of a workflow: its id, the beginning of it, or its name.
        columns: Which heading is which key, of a table: `{question: "Question ", ignore: [Notes]}`.

    Returns:
        The document.

    Raises:
        InputError: If there is no such file, upload, workflow or sweep, or `columns` names what is not there.
    """
    if workflow is not None and sweep is not None:
        raise InputError("expected either a workflow or a sweep", argument="sweep")
    of = None if workflow is None else _workflow_named(context, workflow)
    own_columns = read_columns({} if columns is None else columns)
    usual: Mapping[str, Sequence[str]] = {}
    if sweep is not None:
        bound = bind_stored(context, stored_spec(queries.find_sweep(context.database, sweep)))
        of, usual = bound.workflow, bound.spec.columns
    with _opened(context, cases) as place:
        try:
            return _document(place, of, own_columns, usual if columns is None else {})
        except InputError as error:
            raise InputError(*map(place.named, error.problems), argument="cases") from None


def _workflow_named(context: Context, name: str) -> WorkflowFacts:
    code = context.code
    try:
        return code.workflow(name, lambda text: f"workflow: {text}").facts()
    except InputError as error:
        raise InputError(*error.problems, argument="workflow") from None


@contextmanager
def _opened(context: Context, cases: object) -> Iterator[_Place]:
    """Yield the cases that an argument names."""
    where = Located(where="cases")
    if isinstance(cases, str | Path):
        if not context.imports:
            text = f"{describe(str(cases))} names a file, and files of this machine are not read; expected an upload"
            raise InputError(f"cases: {text}", argument="cases")
        source = read_cases(Path(cases).absolute(), Path(), where)
        yield _Place(source, Path(cases).name, source.name)
    elif isinstance(cases, Mapping) and cases.keys() != {"headings", "rows"}:
        with TemporaryDirectory(prefix="wtb-upload-") as folder:
            file, name = write_upload(context.database, cases, Path(folder))
            yield _Place(replace(read_cases(file, Path(), where), no_files=_NO_FILES), name, str(file))
    else:
        source = read_cases(_rows(cases), Path(), where)
        yield _Place(source if context.imports else replace(source, no_files=_NO_FILES), "cases")


def _rows(cases: object) -> Sequence[Any] | CaseTable:
    """Return cases that were sent with the call. Raises InputError."""
    if isinstance(cases, Sequence):
        return cases
    try:
        return CaseTable.model_validate(cases)
    except ValidationError:
        raise InputError(f"cases: {describe(cases)}; expected a list of cases, a table or an upload") from None


def _document(
    place: _Place,
    workflow: WorkflowFacts | None,
    own_columns: Mapping[str, Sequence[str]],
    usual: Mapping[str, Sequence[str]],
) -> CaseFileDocument:
    source = place.source if workflow is None else of_workflow(place.source, workflow)
    headings, rows = source.head(_SHOWN_VALUES)
    columns, mapping = None, dict[str, tuple[str, ...]]()
    if headings is not None:
        source = replace(source, columns=replace(source.columns, columns=own_columns or usual))
        _, _, unknown = source.columns.find(headings)
        mapping = source.columns.offer(headings)
        source = replace(source, columns=replace(source.columns, columns=mapping))
        names, meanings, _ = source.columns.find(headings)
        columns = [
            _column(name, key_text(meaning), name in unknown, [row.values[at] for row in rows if at < len(row.values)])
            for at, (name, meaning) in enumerate(zip(names, meanings, strict=True))
        ]
    elif own_columns:
        raise InputError("columns: it is for tables, and these cases are none; expected a .csv or .xlsx file")
    cases, blank, problems, first = _examined(place, source, workflow)
    return {
        "name": place.name,
        "cases": cases,
        "blank_rows": blank,
        "columns": columns,
        "mapping": {key: list(of_key) if key == IGNORE else of_key[0] for key, of_key in mapping.items()},
        "keys": [*(key for key in OF_A_CASE if key != "files"), *_input_keys(workflow)],
        "takes_any": workflow is None or (workflow.schema.open and workflow.state_key is None),
        "problems": problems,
        "preview": [_preview(case) for case in first],
    }


def _examined(
    place: _Place, source: CaseSource, workflow: WorkflowFacts | None
) -> tuple[int, int, list[str], Sequence[Case]]:
    """Return how many cases there are and blank rows, what is wrong, and the first cases."""

    def fits(case: Case) -> Iterable[str]:
        return () if workflow is None else input_problems(workflow, case)

    try:
        read = source.examine(fits, _SHOWN_CASES)
    except InputError as error:  # columns that cannot be read: no case can
        return 0, 0, [place.named(text) for text in error.problems], ()
    problems = [place.named(text) for text in read.problems.texts()]
    if place.file is not None and source.no_files is not None and read.cases > MOST_CASES:
        problems.insert(0, f"{place.name}: {read.cases:,} cases; expected at most {MOST_CASES:,}")
    return read.cases, read.blank_rows, problems, read.first


def _column(heading: str, key: str | None, offered: bool, examples: Sequence[str]) -> ColumnDocument:
    return {
        "heading": heading,
        "key": key,
        "offered": offered,
        "examples": [storable(text, _SHOWN_CHARACTERS) for text in examples],
    }


def _input_keys(workflow: WorkflowFacts | None) -> Sequence[str]:
    """Return the keys that an input of a workflow may have: first those that it is expected to have."""
    if workflow is None:
        return ()
    expected = workflow.input or workflow.schema
    return list(dict.fromkeys([*expected.keys, *workflow.schema.keys]))


def _preview(case: Case) -> CasePreview:
    return {
        "id": case.id,
        "input": {key: _shorten(value) for key, value in case.input.items()},
        "expected": _shorten(case.expected),
        "tags": list(case.tags),
    }


def _shorten(value: object) -> Any:
    """Return a value as JSON that is not long."""
    plain = readable(encode(value))
    if isinstance(plain, str):
        return storable(plain, _SHOWN_CHARACTERS)
    text = json.dumps(plain, ensure_ascii=False)
    return plain if len(text) <= _SHOWN_CHARACTERS else storable(text, _SHOWN_CHARACTERS)
