"""All cells of a sweep as columns of numbers: what pages draw, a few bytes a cell."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.status import CELL
from wtb.operations.context import Context
from wtb.store.read import evidence, queries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STATUSES = tuple(CELL)
NONE = 255  # the status of what is no cell: of a row that was added, over cases that it leaves out


@frozen
class CellColumns:
    """The cells of a sweep.

    Attributes:
        sweep: Its id.
        metric: By which they are scored.
        combinations: What each row chooses.
        cases: The id of each case.
        status: combinations x cases x repeats, each a place in `STATUSES`, or `NONE`.
        score: The same, NaN where there is none.
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
