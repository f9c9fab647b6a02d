"""The rows of a submission, in batches that fit one short transaction and memory."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from wtb.core.frozen import frozen
from wtb.core.ids import new_id, new_ids
from wtb.core.tree.run_order import case_order, mixed
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Values
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.results import NewCell
from wtb.store.tables.sweeps import CaseColumns, NewCombination

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.workflows import WorkflowDocument

BATCH_ROWS = 5_000  # PostgreSQL takes about 0.1 s for them
BATCH_BYTES = 4 << 20  # of inputs
BATCH_S = 60.0  # of reading cases; each batch also shows that the submission is alive


@frozen
class NewSweep:
    """A sweep to submit.

    Attributes:
        queued: Whether workers run it, those of the highest priority first.
        queue: The queue of the first nodes.
        starts_at: The first node of a single execution, if it does not begin at the workflow's entry.
        pause_reason: The reason for which executions are paused from the beginning; None to let them begin.
        clusters: The cluster of each case, if any case has one.
    """

    id: str
    name: str
    session: str
    project: str | None
    spec: StoredSpec
    graph_id: str
    graph: WorkflowDocument
    fingerprints: Mapping[str, Mapping[str, str]]
    choices: Sequence[Mapping[str, str]]
    repeats: int
    share: bool
    cells: int
    metrics: Sequence[tuple[str, str]] = ()
    queued: bool = False
    priority: int = 0
    queue: str | None = None
    notify: Sequence[Target] | None = None
    kind: str = "sweep"
    breakpoints: Sequence[str] = ()
    starts_at: str | None = None
    pause_reason: str | None = None
    clusters: Sequence[str | None] = ()


@frozen
class NewCase:
    """A case ready to be stored: its input encoded by key, its files in a workspace snapshot.

    `files` has (digest, bytes) of the snapshot's files.
    """

    id: str
    input: Values
    expected: bytes | None
    tags: Sequence[str] = ()
    workspace: str | None = None
    files: Sequence[tuple[str, int]] = ()
    cluster: str | None = None


@dataclass
class Batch:
    """Rows that are written together, in the order of these fields."""

    combinations: list[NewCombination] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    files: list[tuple[str, int]] = field(default_factory=list)
    cases: list[CaseColumns] = field(default_factory=list)
    executions: list[NewExecution] = field(default_factory=list)
    cells: list[NewCell] = field(default_factory=list)
    bytes: int = 0
    started_at: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """True if the batch has enough rows or bytes, or has been read for long enough."""
        rows = len(self.combinations) + len(self.cases) + len(self.executions) + len(self.cells)
        return rows >= BATCH_ROWS or self.bytes >= BATCH_BYTES or time.monotonic() - self.started_at > BATCH_S

    def add_case(self, sweep_id: str, number: int, case: NewCase) -> None:
        """Add the row of a case, with what it refers to."""
        for value in case.input.values():
            self.values[value.digest] = value.data
            self.bytes += len(value.data)
        self.files += case.files
        self.cases.append(
            {
                "sweep_id": sweep_id,
                "number": number,
                "id": case.id,
                "input": {name: value.digest for name, value in case.input.items()},
                "expected": None if case.expected is None else case.expected.decode(),
                "tags": list(case.tags),
                "workspace": case.workspace,
                "cluster": case.cluster,
            }
        )


def batches(sweep: NewSweep, session: str, new_cases: Iterable[NewCase]) -> Iterator[tuple[Batch, bool]]:
    """Yield all rows of a sweep, except its own, in batches.

    Args:
        sweep: The sweep.
        session: The id of its session.
        new_cases: Its cases. They are read as they are needed.

    Yields:
        A batch, and whether it is the last one.
    """
    rows = _full_batches(sweep, session, new_cases)
    # One batch is read ahead: the last one has to be known as the last when it is written.
    batch = next(rows)
    for following in rows:
        yield batch, False
        batch = following
    yield batch, True


def _full_batches(sweep: NewSweep, session: str, new_cases: Iterable[NewCase]) -> Iterator[Batch]:
    batch = Batch()
    for number, choices in enumerate(sweep.choices):
        batch.combinations.append({"sweep_id": sweep.id, "number": number, "choices": dict(choices)})
        if batch.is_full:
            yield batch
            batch = Batch()
    turns = _Turns(sweep)
    combinations = range(len(sweep.choices))
    roots = Roots(
        sweep.id, session, combinations, sweep.share, sweep.spec.get("seed", 0), sweep.queue, sweep.pause_reason
    )
    for number, case in enumerate(new_cases):
        batch.add_case(sweep.id, number, case)
        ids = iter([sweep.id]) if sweep.kind == "single" else turns.of(number)  # people know a single one by one id
        for root in roots.of_case(number, case.id, range(sweep.repeats), ids):
            batch.executions.append(root)
            for cell in cells_of(root):
                batch.cells.append(cell)
                if batch.is_full:
                    yield batch
                    batch = Batch()
    yield batch


@frozen
class Roots:
    """The root executions of cases.

    Attributes:
        sweep_id: The sweep.
        session_id: Its session.
        combinations: The numbers of the combinations that they stand for.
        share: Whether one root stands for all of them; otherwise each has its own.
        seed: Of the sweep.
        queue: The queue of the first nodes.
        pause_reason: The reason for which they are paused from the beginning; None to let them begin.
    """

    sweep_id: str
    session_id: str
    combinations: Sequence[int]
    share: bool
    seed: int
    queue: str | None
    pause_reason: str | None = None

    def of_case(self, number: int, case: str, repeats: Iterable[int], ids: Iterator[str]) -> Iterator[NewExecution]:
        """Yield the roots of some repeats of a case.

        Args:
            number: The number of the case.
            case: Its id.
            repeats: The repeats.
            ids: Ids for them, in the order in which they begin.
        """
        for repeat in repeats:
            # With a root each, combinations are mixed, so that none of them runs first for every case.
            numbers = list(self.combinations)
            remaining = iter(numbers if self.share else mixed(numbers, self.seed, case, repeat))
            while group := list(islice(remaining, None if self.share else 1)):
                yield {
                    "id": next(ids),
                    "session_id": self.session_id,
                    "sweep_id": self.sweep_id,
                    "origin": "root",
                    "case_number": number,
                    "repeat": repeat,
                    "combinations": group,
                    "status": "pending" if self.pause_reason is None else "paused",
                    "reason": self.pause_reason,
                    "queue": self.queue,
                    "created_at": time.time(),
                }


def cells_of(execution: NewExecution, status: str = "pending") -> Iterator[NewCell]:
    """Yield the cells that a new execution stands for."""
    for combination in execution["combinations"]:
        yield {
            "sweep_id": execution["sweep_id"],
            "case_number": execution["case_number"],
            "repeat": execution["repeat"],
            "combination": combination,
            "status": status,
            "execution_id": execution["id"],
        }


class _Turns:
    """The ids of root executions, in an order that runs cases in a random order."""

    def __init__(self, sweep: NewSweep) -> None:
        combinations = len(sweep.choices)
        self._each = sweep.repeats * (1 if sweep.share else combinations)
        expected = sweep.cells // max(1, combinations * sweep.repeats)
        # An array of machine integers: a million places take 8 MB, and a list of them several times that.
        self._place = array("L", bytes(array("L").itemsize * expected))
        order = case_order(sweep.clusters or [None] * expected, sweep.spec.get("seed", 0))
        for place, number in enumerate(order):
            self._place[number] = place
        self._ids = new_ids(expected * self._each)

    def of(self, number: int) -> Iterator[str]:
        """Return the ids of the roots of a case."""
        if number >= len(self._place):  # its file has grown since it was checked
            return iter(new_id, None)
        first = self._place[number] * self._each
        return (self._ids[place] for place in range(first, first + self._each))
