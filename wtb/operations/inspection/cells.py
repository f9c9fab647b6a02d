"""Cells of a sweep as documents, read in chunks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from wtb.core.arguments import checked
from wtb.core.documents.sweeps import CellDocument
from wtb.core.errors import StateError
from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.scoring.failure_scores import ENDS, failure_score, kind_of, results
from wtb.core.scoring.unknown_costs import UnknownCost, is_concerned
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import readable
from wtb.core.status import CELL
from wtb.core.tree.checkpoints import visible_state
from wtb.core.tree.stored_spec import additions
from wtb.operations.context import Context
from wtb.planning.metric_names import COST
from wtb.store.control.labels import comments_by_place
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.read.aggregates import cases_without_expected, count_without_expected
from wtb.store.read.costs import unknown_costs
from wtb.store.records import ListedCell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def cell_documents(
    database: Database,
    sweep_id: str,
    *,
    statuses: Sequence[str] = (),
    case: str | None = None,
    limit: int | None = None,
    read: Callable[[bytes], Any] | None = None,
) -> Iterator[CellDocument]:
    """Yield the cells of a sweep as `wtb show SWEEP --cells --format json` prints them, read in chunks.

    Args:
        database: The database that it is in.
        sweep_id: Its id.
        statuses: Only cells of these.
        case: Only cells of the case with this id.
        limit: Maximum number.
        read: Decodes stored values; None to show those as plain JSON whose classes are not imported here.
    """
    read = read or value_or_plain
    choices = queries.choices(database, sweep_id)
    counts = _Counts(database, sweep_id, choices)
    chunk: list[ListedCell] = []
    for row in queries.cell_rows(database, sweep_id, statuses=statuses, case=case, limit=limit):
        chunk.append(row)
        # A chunk shares its queries: one cell at a time would take five queries each.
        if len(chunk) == 1000:
            yield from _documents(counts, choices, chunk, read)
            chunk = []
    yield from _documents(counts, choices, chunk, read)


class _Counts:
    """Scores of cells as the matrix counts them: a failure that is a result has its failure score."""

    def __init__(self, database: Database, sweep_id: str, choices: Sequence[Mapping[str, str]]) -> None:
        self.database, self.sweep_id, self._choices = database, sweep_id, choices
        self._spec = queries.find_sweep(database, sweep_id).spec
        self._results = results(self._spec)
        self._added = additions(self._spec)

    def __call__(self, row: ListedCell, scores: Mapping[str, float | None]) -> dict[str, float | None]:
        """Return the score of a cell by metric; null if it has a score, or none, that the matrix does not count."""
        if row.status not in ENDS:
            return {metric: score if self._counts(row, metric) else None for metric, score in scores.items()}
        failure = row.failure or {"kind": None, "type": None}
        if kind_of(row.status, failure["kind"], failure["type"]) not in self._results:
            return dict.fromkeys(scores)
        return dict.fromkeys(scores) | {
            metric: score
            for metric, score in self._of_failures.items()
            if self._counts(row, metric) and row.case_number not in self._without_expected.get(metric, ())
        }

    # Read only if a metric needs it: most sweeps have all costs.
    @cached_property
    def unknown_costs(self) -> Sequence[UnknownCost]:
        """Reasons why costs are unknown."""
        return unknown_costs(self.database, self.sweep_id)

    @cached_property
    def _of_failures(self) -> Mapping[str, float]:
        measures = queries.measures(self.database, self.sweep_id)
        scores = {
            name: failure_score(measure.on_failure, measure.worst, self._spec) for name, measure in measures.items()
        }
        return {name: score for name, score in scores.items() if score is not None}

    @cached_property
    def _without_expected(self) -> Mapping[str, frozenset[int]]:
        names = count_without_expected(self.database, self.sweep_id)
        return {name: frozenset(cases_without_expected(self.database, self.sweep_id, name)) for name in names}

    def _counts(self, row: ListedCell, metric: str) -> bool:
        is_left_out = any(
            added.combination == row.combination and row.case_number in added.left_out for added in self._added
        )
        is_unknown = metric == COST and is_concerned(self._choices[row.combination], self.unknown_costs)
        return not (row.edited or is_left_out or is_unknown)


def _documents(
    counts: _Counts, choices: list[dict[str, str]], rows: Sequence[ListedCell], read: Callable[[bytes], Any]
) -> Iterator[CellDocument]:
    if not rows:
        return
    database, sweep_id = counts.database, counts.sweep_id
    with database.snapshot():  # nothing is yielded inside: whoever reads on may be another thread
        states = queries.checkpoint_states(database, [row.head_id for row in rows if row.head_id is not None])
        states = {id: visible_state(state) for id, state in states.items()}
        stored = queries.load_values(database, (key for state in states.values() for key in state.values()))
        scores: dict[tuple[int, int, int], dict[str, float | None]] = {}
        reasons: dict[tuple[int, int, int], dict[str, str]] = {}
        for score in queries.score_rows(database, sweep_id, {row.case_number for row in rows}):
            key = (score.case_number, score.repeat, score.combination)
            scores.setdefault(key, {})[score.metric] = score.value
            if reason := score.error or score.reason:
                reasons.setdefault(key, {})[score.metric] = reason
        comments = comments_by_place(database, sweep_id, {row.case_number for row in rows})
        cases = queries.case_rows(database, sweep_id, {row.case_number for row in rows})
    for row in rows:
        state, case = states.get(row.head_id or "", {}), cases[row.case_number]
        place = (row.case_number, row.repeat, row.combination)
        document: CellDocument = {
            "combination": choices[row.combination],
            "case": row.case,
            "repeat": row.repeat,
            "tags": list(case.tags or ()),
            "expected": None if case.expected is None else read(case.expected.encode()),
            "status": row.status,
            "state": {name: read(stored[key].data) for name, key in state.items()},
            "scores": scores.get(place, {}),
            "execution": row.execution_id,
            "error": None if row.failure is None else str(Failure(**row.failure)),
            "latency_s": row.elapsed_s,
            "cost_usd": None if is_concerned(choices[row.combination], counts.unknown_costs) else row.usd,
            "tokens_in": row.tokens_in,
            "tokens_out": row.tokens_out,
        }
        if (counted := counts(row, scores.get(place, {}))) != scores.get(place, {}):
            document["counted"] = counted
        if place in reasons:
            document["reasons"] = reasons[place]
        if place in comments:
            document["comments"] = comments[place]
        yield document


def value_or_plain(encoded: bytes) -> Any:
    """Return a stored value, or plain JSON of it if its class is not imported here."""
    try:
        return decode(encoded)
    except StateError:
        return readable(encoded)


STATUSES = tuple(CELL)
NONE = 255  # the status of what is no cell: of a row that was added, over cases that it leaves out


@frozen
class CellColumns:
    """The cells of a sweep as arrays.

    Attributes:
        sweep: Its id.
        metric: The metric of the scores.
        combinations: The choices of each row.
        cases: The id of each case.
        status: Combinations x cases x repeats, each an index in `STATUSES`, or `NONE`.
        score: The same, NaN without a score.
    """

    sweep: str
    metric: str | None
    combinations: Sequence[dict[str, str]]
    cases: Sequence[str]
    status: NDArray[np.uint8]
    score: NDArray[np.float32]

    def encode(self) -> bytes:
        """Return them in binary: the size of a head in JSON (32 bits), the head, statuses, scores.

        Numbers are little-endian; scores begin at a multiple of four bytes after the head.
        """
        head = orjson.dumps(
            {
                "version": 1,
                "sweep": self.sweep,
                "metric": self.metric,
                "combinations": self.combinations,
                "cases": self.cases,
                "repeats": self.status.shape[2],
                "statuses": STATUSES,
            }
        )
        # Browsers can view the scores as a typed array only at a multiple of four bytes.
        head += b" " * (-len(head) % 4)
        gap = b"\0" * (-self.status.size % 4)
        return b"".join(
            (struct.pack("<I", len(head)), head, self.status.tobytes(), gap, self.score.astype("<f4").tobytes())
        )


@checked
def cell_columns(context: Context, ref: str, metric: str | None = None) -> CellColumns:
    """Return the status of every cell of a sweep, and its score by one metric.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        metric: By default none: statuses alone.

    Raises:
        InputError: If there is no such sweep.
    """
    import numpy as np

    database = context.database
    sweep = queries.find_sweep(database, ref)
    cases = evidence.case_numbers(database, sweep.id)
    choices = queries.choices(database, sweep.id)
    numbers = np.array(list(cases.values()), dtype=np.int64)
    shape = (len(choices), len(cases), sweep.spec["repeats"])
    status, score = np.full(shape, NONE, dtype=np.uint8), np.full(shape, np.nan, dtype=np.float32)
    places = {name: place for place, name in enumerate(STATUSES)}
    if rows := evidence.cell_statuses(database, sweep.id):
        combination, case, repeat, names = zip(*rows, strict=True)
        status[combination, np.searchsorted(numbers, case), repeat] = [places[name] for name in names]
    if metric is not None and (scored := evidence.cell_scores(database, sweep.id, metric)):
        combination, case, repeat, values = zip(*scored, strict=True)
        score[combination, np.searchsorted(numbers, case), repeat] = values
    return CellColumns(sweep.id, metric, choices, list(cases), status, score)
