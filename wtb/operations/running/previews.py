"""Previews before a sweep is written: of a file of cases, and of a built-in evaluator on one output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from wtb.authoring.evaluation import regex_search
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, Evaluator, ScoredCase, score_now
from wtb.authoring.evaluation.similarity import embedding_similarity
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.config.yaml_reader import Located
from wtb.core.arguments import checked
from wtb.core.documents.workflows import (
    CaseFileDocument,
    CasePreview,
    ColumnDocument,
    EvaluatorPreviewDocument,
    PreviewScore,
)
from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Score
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import readable, storable
from wtb.core.values import Json, State, SweepKeys
from wtb.operations.context import Context
from wtb.operations.running.preparing import bind_stored
from wtb.planning.case_checks import input_problems
from wtb.planning.case_columns import IGNORE, OF_A_CASE, CaseProblems, CaseTable, key_text, read_columns
from wtb.planning.case_files import FILE_KINDS, READERS, Row, TableRow, Wrong
from wtb.planning.cases import Case, CaseSource, read_cases
from wtb.planning.parameter_files import check_no_files
from wtb.planning.prepare import of_workflow, stored_spec
from wtb.planning.sweep_spec import read_evaluators
from wtb.store.access.requests import find_upload, read_upload
from wtb.store.database import Database
from wtb.store.read import queries

MOST_CASES = 200_000  # of an upload, whose bytes alone would allow for millions

_EXPECTED = f"expected a list of cases, or {{upload: SHA-256, name: FILE}} of {FILE_KINDS} that was uploaded"


def with_uploaded_cases(database: Database, keys: SweepKeys) -> SweepKeys:
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
    # The readers take files only: an upload is written to one for as long as it is read.
    with TemporaryDirectory(prefix="wtb-upload-") as folder:
        file, name = write_upload(database, cases, Path(folder), "keys")
        rows = _checked(READERS[file.suffix](file), str(file), name)
    return {**keys, "cases": rows}


def sent_cases(database: Database, cases: Sequence[Any] | Mapping[str, Json]) -> list[Any]:
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
    database: Database, cases: Mapping[str, Json], folder: Path, argument: str = "cases"
) -> tuple[Path, str]:
    """Write an upload to a file, and return the file with the name that it was sent under.

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


def _checked(rows: Iterator[Row], file: str, name: str) -> list[Any] | dict[str, Json]:
    """Return the cases of a file: a list, or a table by its headings and rows.

    Raises:
        InputError: If a row is wrong, with its place by the name that the file was sent under, or if there are too
            many.
    """
    cases: list[Any] = []
    headings: Sequence[str] | None = None
    problems = CaseProblems()
    for place, row in rows:
        if isinstance(row, Wrong):
            # The path is that of a temporary file here, which means nothing to whoever sent it.
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


_SHOWN_CASES = 5
_SHOWN_VALUES = 3
_SHOWN_CHARACTERS = 1_000
_NO_FILES = "a case names files, and files of this machine are not read; put what they hold into its input"


@frozen
class _Place:
    """The place of cases: `file` is its name in messages, `name` the one that the caller knows."""

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
    """Open the cases that an argument names."""
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
    """Return the numbers of cases and blank rows, the problems, and the first cases."""

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
    """Return the keys that an input of a workflow may have, the expected ones first."""
    if workflow is None:
        return ()
    expected = workflow.input or workflow.schema
    return list(dict.fromkeys([*expected.keys, *workflow.schema.keys]))


def _preview(case: Case) -> CasePreview:
    return {
        "id": case.id,
        "input": {key: _shorten(content) for key, content in case.input.items()},
        "expected": _shorten(case.expected),
        "tags": list(case.tags),
    }


def _shorten(content: object) -> Any:
    """Return a value as JSON, shortened if it is long."""
    plain = readable(encode(content))
    if isinstance(plain, str):
        return storable(plain, _SHOWN_CHARACTERS)
    text = json.dumps(plain, ensure_ascii=False)
    return plain if len(text) <= _SHOWN_CHARACTERS else storable(text, _SHOWN_CHARACTERS)


MOST_BYTES = 100_000  # of what is scored: some evaluators compare each word with each
SEARCH_S = 5.0
_CODE = "it is code of users, which runs on workers only"
_MODEL = "it takes a model, which is asked on workers only"


class _OnWorkers(InputError):
    """An evaluator that can only run on workers."""


@checked
def preview_evaluator(
    context: Context,
    evaluator: str | Mapping[str, Any],
    state: State,
    *,
    expected: Any = None,
    input: State | None = None,
) -> EvaluatorPreviewDocument:
    """Score an output with a built-in evaluator.

    Evaluators that are code of users or ask a model are not tried: they run on workers only.

    Args:
        context: Where.
        evaluator: As in a sweep file: a name, or a mapping of a name to its options.
        state: The final state: values by key, such as `{answer: "42"}`.
        expected: The expected value of the case.
        input: The input of the case.

    Returns:
        Its scores, or why it was not tried.

    Raises:
        InputError: If there is no such evaluator, its options do not fit, or it cannot score this.
    """
    size = len(json.dumps([state, expected, input], default=str))
    if size > MOST_BYTES:
        raise InputError(f"state: {size:,} bytes with the case; expected at most {MOST_BYTES:,}", argument="state")
    check_no_files(evaluator, "evaluator")
    (ref,) = read_evaluators([evaluator])
    # Its options name no import path, so that `_resolve` would not notice that it takes a model.
    if ref.name == embedding_similarity.__name__:
        return _untried(ref.name, _MODEL)
    try:
        resolved = make_evaluator(ref.name, ref.options, _resolve)
    except _OnWorkers as error:
        return _untried(ref.name, error.problems[0])
    return _try_evaluator(resolved, ScoredCase("preview", dict(input or {}), expected), CellResult(dict(state)))


def _resolve(path: str) -> Any:
    """Refuse to import anything. Raises _OnWorkers."""
    raise _OnWorkers(_MODEL if path.startswith("wtb.") else _CODE)


def _untried(name: str, reason: str) -> EvaluatorPreviewDocument:
    return {"evaluator": name, "runs": "workers", "reason": reason, "needs_expected": False, "scores": []}


def _try_evaluator(evaluator: Evaluator, case: ScoredCase, result: CellResult) -> EvaluatorPreviewDocument:
    wrong = None if case.expected is None else evaluator.problem(case.expected)
    if wrong is not None:
        raise InputError(wrong, argument="expected")
    searchers = regex_search.Searchers()
    # A pattern of a user may take forever, so it is searched for in a process that can be ended.
    try:
        with regex_search.apart(searchers):
            scores = score_now(evaluator, case, result, SEARCH_S)
    finally:
        searchers.close()
    return {
        "evaluator": evaluator.name,
        "runs": "here",
        "reason": None,
        "needs_expected": evaluator.lacks_expected(case.expected),
        "scores": [_score(score) for score in scores],
    }


def _score(score: Score) -> PreviewScore:
    return {
        "metric": score.metric,
        "value": score.value,
        "better": score.measure.better,
        "scale": None if score.measure.scale is None else list(score.measure.scale),
        "error": score.error,
        "observed": score.observed,
    }
