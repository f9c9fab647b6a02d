"""Frozen records of sweeps, executions and questions at the time they were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from wtb.core.documents.executions import ExecutionHeading
from wtb.core.documents.questions import GivenAnswer, QuestionDocument
from wtb.core.documents.shared_types import CELL_STATUSES, ApprovalMode, CellCounts
from wtb.core.documents.sweeps import RunDocument, SweepDocument, SweepStanding
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.execution.state import Progress as RunProgress

T = TypeVar("T")


class FrozenMapping(Mapping[str, T]):
    """An immutable copy of a mapping. It can be copied, pickled and hashed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, T]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> T:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


@frozen
class SweepRecord:
    """A sweep as it was when it was read.

    Attributes:
        id: Its id.
        name: Its name.
        status: pending, running, paused, completed or cancelled.
        reason: Why it has that status, if there is a reason.
        workflow: The name of its workflow.
        workflow_version: The version of its workflow, if that has one.
        project: Its project, if it has one.
        session: Its session.
        cells: How many cells it has.
        counts: Its cells by status, such as succeeded and failed.
        created_at: When it was submitted, in UTC.
        started_at: When it began; None before.
        finished_at: When it ended; None before.

    Example:
        >>> import wtb
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     bench.sweeps()
        []
    """

    id: str
    name: str
    status: str
    reason: str | None
    workflow: str
    workflow_version: str | None
    project: str | None
    session: str
    cells: int
    counts: Mapping[str, int]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def sweep_records(documents: Sequence[SweepDocument]) -> list[SweepRecord]:
    """Return the records of sweeps.

    Returns:
        A record for each; `sweep(record.id)` is the live object, and of a single execution `execution(record.id)`.
    """
    return [sweep_record(document, document["cells"]) for document in documents]


def sweep_record(document: SweepDocument | SweepStanding, cells: CellCounts) -> SweepRecord:
    """Return the record of a sweep from its document in a list, or the one of its status, and its cells."""
    return _record(
        SweepRecord,
        document,
        workflow=document["workflow"] or "",
        session=document.get("session", ""),  # a server of an older version does not send it
        cells=cells["total"],
        counts=FrozenMapping({status: cells[status] for status in CELL_STATUSES}),
    )


@frozen
class RunRecord:
    """A single execution of a list as it was when it was read.

    Attributes:
        id: Its id, as `Bench.execution` takes it.
        execution: The id of its execution in the tree; None once retention has deleted that.
        status: pending, running, waiting, paused, completed, failed or cancelled.
        reason: Why it is paused, waits or was cancelled.
        error: What it failed by; None if it did not.
        workflow: The name of its workflow.
        workflow_version: The version of its workflow, if that has one.
        metadata: The metadata of its workflow.
        project: Its project, if it has one.
        session: Its session.
        created_at: When it was submitted, in UTC.
        started_at: When it began; None before.
        finished_at: When it ended; None before.

    Example:
        >>> import wtb
        >>> with wtb.open("sqlite:///:memory:") as bench:
        ...     bench.executions(status="failed")
        []
    """

    id: str
    execution: str | None
    status: str
    reason: str | None
    error: str | None
    workflow: str
    workflow_version: str | None
    metadata: Mapping[str, Json]
    project: str | None
    session: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def run_records(documents: Sequence[RunDocument]) -> list[RunRecord]:
    """Return the records of single executions.

    Returns:
        A record for each; `execution(record.id)` is the live object.
    """
    return [run_record(document) for document in documents]


def run_record(document: RunDocument) -> RunRecord:
    """Return the record of a single execution from its document in a list."""
    metadata = FrozenMapping(document.get("metadata", {}))
    return _record(RunRecord, document, workflow=document["workflow"] or "", metadata=metadata)


@frozen
class ExecutionRecord:
    """An execution as it was when it was read.

    Attributes:
        id: Its id.
        sweep: The id of its sweep.
        status: pending, running, waiting, paused, completed, failed or cancelled.
        reason: Why it is paused, waits or was cancelled.
        case: The id of its case.
        repeat: Its repeat, from 0.
        combinations: Of each combination that it stands for, the variant by node.
        origin: root, fork, retry or manual.
        parent: The execution that it forked from or retries; None for a root.
        edited: Whether a person changed its state.
        error: What it failed by; None if it did not.
        created_at: When it was made, in UTC.
        finished_at: When it ended; None before.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("greeting")
        >>> wf.entry(wf.node(lambda state: {"text": "Hello"}, name="greet"))
        >>> record = start(wf, {}, db="sqlite:///:memory:").wait().record
        >>> record.status, record.origin, record.error
        ('completed', 'root', None)
    """

    id: str
    sweep: str
    status: str
    reason: str | None
    case: str
    repeat: int
    combinations: Sequence[Mapping[str, str]]
    origin: str
    parent: str | None
    edited: bool
    error: str | None
    created_at: datetime
    finished_at: datetime | None


def execution_record(heading: ExecutionHeading) -> ExecutionRecord:
    """Return the record of an execution from the heading of its document."""
    combinations = tuple(map(FrozenMapping, heading["combinations"]))
    return _record(ExecutionRecord, heading, sweep=heading["sweep"]["id"], combinations=combinations)


@frozen
class QuestionRecord:
    """A question to people as it was when it was read.

    Attributes:
        id: Its id.
        status: open, answered, withdrawn or expired.
        kind: Why it was asked, such as ask or before.
        mode: The approval mode that asks: `before`, `on_error` or `{"after": NODE}`; None if a node asks by itself.
        question: What is asked.
        options: What can be chosen, if it is a choice.
        default: The option that holds if nobody answers in time.
        node: The node that it is about.
        sweep: The id of its sweep.
        workflow: The name of its workflow.
        case: The id of its case.
        executions: How many executions wait for the answer.
        asked_at: When it was asked, in UTC.
        expires_at: Until when it can be answered; None for ever.
        answer: The answer with who gave it; None while it is open.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("asking")
        >>> wf.entry(wf.node(lambda state, ctx: {"a": ctx.ask("Which?", options=["x", "y"]).choice}, name="a"))
        >>> [question] = start(wf, {}, db="sqlite:///:memory:").wait().questions()
        >>> question.record.question, question.record.options
        ('Which?', ('x', 'y'))
    """

    id: str
    status: str
    kind: str
    question: str
    options: Sequence[str]
    default: str | None
    node: str | None
    sweep: str
    workflow: str | None
    case: str | None
    executions: int
    asked_at: datetime
    expires_at: datetime | None
    answer: GivenAnswer | None
    mode: ApprovalMode | None = None


def question_record(document: QuestionDocument) -> QuestionRecord:
    """Return the record of a question from its document."""
    options, mode = tuple(document["options"]), document.get("mode")
    return _record(QuestionRecord, document, sweep=document["sweep"]["id"], options=options, mode=mode)


@frozen
class Progress:
    """Progress of a run, which `progress=` callbacks receive several times a second.

    Attributes:
        sweep: The id of the sweep.
        cells: How many cells it has.
        succeeded: Cells that have succeeded.
        failed: Cells that have ended otherwise.
        node_runs: Node runs so far.
        usd: US dollars that they spent.

    Example:
        >>> from wtb import Progress
        >>> Progress("1ng64ab0s1jf", cells=40, succeeded=8, failed=2, node_runs=31, usd=0.12).done
        10
    """

    sweep: str
    cells: int
    succeeded: int
    failed: int
    node_runs: int
    usd: float

    @property
    def done(self) -> int:
        """Number of cells that have ended."""
        return self.succeeded + self.failed


ProgressCallback = Callable[[Progress], object]


def progress_at(run: RunProgress) -> Progress:
    """Return the progress of a run."""
    return Progress(run.sweep_id, run.cells, run.succeeded, run.failed, run.node_runs, run.usd)


def reporter(callback: ProgressCallback | None) -> Callable[[RunProgress], None] | None:
    """Return a function for the progress reports of operations that calls a callback of the API."""
    if callback is None:
        return None

    def report(run: RunProgress) -> None:
        callback(progress_at(run))

    return report


def _record(kind: type[T], document: Mapping[str, Any], **own: object) -> T:
    """Return a record with the fields of a document that have the same names, and those that differ.

    Args:
        kind: The class of the record.
        document: A document; its times are text.
        own: The fields that the document does not have as the record has them.

    Returns:
        The record; its fields `..._at` are datetimes.
    """
    plain = {name: document[name] for name in kind.__annotations__ if name not in own}
    times = {name: datetime.fromisoformat(at) for name, at in plain.items() if name.endswith("_at") and at is not None}
    return kind(**plain | times | own)
