"""The rows of a submission, in batches: so many at a time as one short transaction writes and memory holds."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.core.ids import new_id, new_ids
from wtb.core.tree.run_order import case_order, mixed
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Values
from wtb.store.tables.executions import NewExecution
from wtb.store.tables.results import NewCell
from wtb.store.tables.sweeps import CaseColumns, NewCombination

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.workflows.graphs import WorkflowDocument

BATCH_ROWS = 5_000  # PostgreSQL takes about 0.1 s for them
BATCH_BYTES = 4 << 20  # of inputs
BATCH_S = 60.0  # of reading cases: who submits says so often that it is still there


@frozen
class NewSweep:
    """What is known of a sweep when it is submitted.

    queued: workers run it, those of the highest priority first. queue: of the nodes that come first. starts_at: of a
    single execution, the node that comes first where it is not the workflow's entry. held: why executions are paused
    from the beginning, until somebody resumes them; None where they may begin. clusters: that of each case, where any
    has one.
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
    held: str | None = None
    clusters: Sequence[str | None] = ()


@frozen
class NewCase:
    """A case ready to be stored: its input encoded by key, its files in a workspace snapshot.

    files: (digest, bytes) of what the snapshot holds.
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
    begun: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """Whether there is to be another one."""
        rows = len(self.combinations) + len(self.cases) + len(self.executions) + len(self.cells)
        return rows >= BATCH_ROWS or self.bytes >= BATCH_BYTES or time.monotonic() - self.begun > BATCH_S

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


def batches(sweep: NewSweep, session: str, given: Iterable[NewCase]) -> Iterator[tuple[Batch, bool]]:
    """Yield all rows of a sweep, but its own, in batches.

    Args:
        sweep: The sweep.
        session: The id of its session.
        given: Its cases. They are read as they are needed.

    Yields:
        A batch, and whether it is the last one.
    """
    rows = _full_batches(sweep, session, given)
    batch = next(rows)
    for following in rows:
        yield batch, False
        batch = following
    yield batch, True


def _full_batches(sweep: NewSweep, session: str, given: Iterable[NewCase]) -> Iterator[Batch]:
    batch = Batch()
    for number, choices in enumerate(sweep.choices):
        batch.combinations.append({"sweep_id": sweep.id, "number": number, "choices": dict(choices)})
        if batch.is_full:
            yield batch
            batch = Batch()
    turns = _Turns(sweep)
    combinations = range(len(sweep.choices))
    roots = Roots(sweep.id, session, combinations, sweep.share, sweep.spec.get("seed", 0), sweep.queue, sweep.held)
    for number, case in enumerate(given):
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
        share: Whether one stands for all of them; else each has its own.
        seed: Of the sweep.
        queue: Of the nodes that come first.
        held: Why they are paused from the beginning; None if they may begin.
    """

    sweep_id: str
    session_id: str
    combinations: Sequence[int]
    share: bool
    seed: int
    queue: str | None
    held: str | None = None

    def of_case(self, number: int, case: str, repeats: Iterable[int], ids: Iterator[str]) -> Iterator[NewExecution]:
        """Yield those of some repeats of a case.

        Args:
            number: The number of the case.
            case: Its id.
            repeats: The repeats.
            ids: Ids for them, in the order in which they begin.
        """
        for repeat in repeats:
            # Where each has a root of its own, no combination is to be the first of every case.
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
                    "status": "pending" if self.held is None else "paused",
                    "reason": self.held,
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
    """The ids of root executions, which are begun in the order of their ids: cases in a random order."""

    def __init__(self, sweep: NewSweep) -> None:
        combinations = len(sweep.choices)
        self._each = sweep.repeats * (1 if sweep.share else combinations)
        expected = sweep.cells // max(1, combinations * sweep.repeats)
        self._place = array("L", bytes(array("L").itemsize * expected))
        order = case_order(sweep.clusters or [None] * expected, sweep.spec.get("seed", 0))
        for place, number in enumerate(order):
            self._place[number] = place
        self._ids = new_ids(expected * self._each)

    def of(self, number: int) -> Iterator[str]:
        """Those of the roots of a case."""
        if number >= len(self._place):  # its file has grown since it was checked
            return iter(new_id, None)
        first = self._place[number] * self._each
        return (self._ids[place] for place in range(first, first + self._each))
