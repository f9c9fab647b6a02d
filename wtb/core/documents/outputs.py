"""The outputs of a sweep side by side: cases are rows, combinations are columns."""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Better, CellStatus, Combination, SweepHeading

CUT: Final = 4_096
"""Characters of a text that the document has at most."""
MOST_CASES: Final = 1_000  # times repeats, of a page
MOST_ROWS: Final = 64  # combinations that are looked at


class OutputValue(TypedDict):
    """A value as plain JSON. Texts in it are cut; of very long JSON, `value` is the beginning as text."""

    value: Any
    kind: Literal["text", "json"]
    cut: bool
    bytes: int  # of the stored JSON
    whole: str | None  # path of the REST API that returns all of it; null unless it is cut


class OutputScore(TypedDict):
    """A score with its reason, or the reason why there is none."""

    value: float | None
    reason: str | None
    version: str | None  # of the model or program that gave it


class CellComment(TypedDict):
    """A comment on a cell."""

    number: int  # within the sweep
    by: str
    at: str
    text: str


class CommentDocument(CellComment):
    """A comment with the cell that it is about."""

    sweep: str
    case: str
    row: int  # number of the combination
    repeat: int


class CommentsDocument(TypedDict):
    """The comments of a sweep, the oldest first."""

    comments: list[CommentDocument]


class CellOutputs(TypedDict):
    """The outputs of a combination for a case. Figures are as if alone, and null until its end."""

    row: int  # number of the combination
    status: CellStatus
    execution: str | None
    outputs: dict[str, OutputValue]  # by key of the state
    scores: dict[str, OutputScore]
    comments: NotRequired[list[CellComment]]  # the oldest first; left out if there are none
    error: str | None
    latency_s: float | None
    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None


class CaseOutputs(TypedDict):
    """A repeat of a case, with its cell under each of the combinations; null if there is none."""

    case: str
    repeat: int
    tags: list[str]
    input: dict[str, OutputValue]
    expected: OutputValue | None
    cells: list[CellOutputs | None]


class OutputMetric(TypedDict):
    """A metric, the direction of better scores, and the best score of its scale."""

    better: Better
    best: NotRequired[float]  # left out if it has no scale


class OutputRow(TypedDict):
    """A combination by its number."""

    row: int
    combination: Combination


class OutputsDocument(TypedDict):
    """One page of the outputs of a sweep. `total`: cases that match the filters, times repeats, on all pages."""

    sweep: SweepHeading
    rows: list[OutputRow]  # the combinations that are shown, in the order of `cells`
    combinations: int  # of the sweep
    metrics: dict[str, OutputMetric]
    keys: list[str]  # of the state that are shown
    other_keys: list[str]
    tags: list[str]  # of all cases
    repeats: int
    total: int
    offset: int
    cases: list[CaseOutputs]
