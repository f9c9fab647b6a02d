"""What is read and tried while a sweep is written."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from wtb.core.values import Json


class ColumnDocument(TypedDict):
    """A column of a table of cases.

    Attributes:
        heading: Its heading.
        key: The key of a case or of its input that it is read as, such as `id`, `question` or `expected.answer`;
            `ignore` if it is ignored; None if it has no heading.
        offered: Whether this is only a suggestion, since its heading is no key.
        examples: Values of the first rows.
    """

    heading: str
    key: str | None
    offered: bool
    examples: list[str]


class CasePreview(TypedDict):
    """A case as it is read; long texts are cut."""

    id: str
    input: dict[str, Json]
    expected: Any
    tags: list[str]


class CaseFileDocument(TypedDict):
    """A file of cases as a sweep would read it.

    Attributes:
        name: Its name.
        cases: How many cases it has, those with problems included.
        blank_rows: How many blank rows are skipped.
        columns: Those of a table; None of any other file.
        mapping: `columns` of a sweep by which the table is read so, headings that are offered included.
        keys: What a column can be mapped to, beside `ignore`; of a state that takes any key, only those that are known.
        takes_any: Whether a column can be mapped to any other key, too.
        problems: What is wrong, each once, with the first place that has it.
        preview: The first cases.
    """

    name: str
    cases: int
    blank_rows: int
    columns: list[ColumnDocument] | None
    mapping: dict[str, str | list[str]]
    keys: list[str]
    takes_any: bool
    problems: list[str]
    preview: list[CasePreview]


class PreviewScore(TypedDict):
    """A score of an evaluator: a value, else why there is none; a part of a figure over all cells is `observed`."""

    metric: str
    value: float | None
    better: Literal["higher", "lower"]
    scale: list[float] | None
    error: str | None
    observed: str | None


class EvaluatorPreviewDocument(TypedDict):
    """What an evaluator gives for an output.

    Attributes:
        evaluator: Its name.
        runs: `here` if it was tried; `workers` if it takes code of users or a model, which only workers run.
        reason: Why it was not tried.
        needs_expected: Whether it gives no score since there is no expected value.
        scores: One of each metric.
    """

    evaluator: str
    runs: Literal["here", "workers"]
    reason: str | None
    needs_expected: bool
    scores: list[PreviewScore]
