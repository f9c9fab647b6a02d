"""Claims of a table of rows, and the missing cells on which they hang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, Interval
from wtb.analysis.statistics.missing.worst_case import Claim, Pairs
from wtb.analysis.statistics.paired import ALPHA, SMALLEST_P, Tested, holm

SIGNIFICANT = ALPHA


class Tests(NamedTuple):
    """Tests of rows against one other row, one a row; NaN where a row has none.

    Attributes:
        p: Two-sided, of the scores that there are.
        at_worst: Of those below 5% in whose pairs cells are missing, p with these at their worst where it is larger.
        missing: How many cells are missing in each pair.
    """

    p: Floats
    at_worst: Floats
    missing: NDArray[np.int64]

    @property
    def lasting(self) -> Floats:
        """The p that counts: with missing cells at their worst."""
        return np.where(np.isnan(self.at_worst), self.p, self.at_worst)


def test_columns(tested: Sequence[Tested]) -> tuple[Floats, Floats]:
    """Return p and the differences of tests, NaN where there is none."""
    return (
        np.array([np.nan if test.p is None else test.p for test in tested]),
        np.array([np.nan if test.delta is None else test.delta for test in tested]),
    )


def with_worst(pairs: Pairs | None, other: int | None, p: Floats, deltas: Floats) -> Tests:
    """Test rows against one other with missing cells at their worst.

    Args:
        pairs: The table; None where nothing is missing.
        other: The row that the others are compared with.
        p: Two-sided p of each row of the table.
        deltas: By how much each row scores higher than the other one.
    """
    at_worst, missing = np.full(len(p), np.nan), np.zeros(len(p), dtype=np.int64)
    if pairs is None or other is None:
        return Tests(p, at_worst, missing)
    for row in range(len(p)):
        missing[row] = 0 if row == other else pairs.count_missing(row, other)
    claimed = np.flatnonzero((p < SIGNIFICANT) & (missing > 0) & np.isfinite(deltas) & (deltas != 0)).tolist()
    claims = [Claim(row, other, 1 if deltas[row] > 0 else -1) for row in claimed]
    at_worst[claimed] = np.maximum(p[claimed], pairs.p_at_worst(claims))
    return Tests(p, at_worst, missing)


def corrected(p: Floats, at_worst: Floats, share: float | Floats = 1.0) -> tuple[Floats, NDArray[np.bool_]]:
    """Return p after Holm's correction with missing cells at their worst, and which rows hang on these.

    Args:
        p: Two-sided, of the scores that there are; NaN where there is none.
        at_worst: With missing cells at their worst; NaN where that is the same.
        share: The part of 5% that is left, for all or for each.
    """
    share = np.maximum(share, SMALLEST_P)
    with np.errstate(over="ignore"):  # what is beyond all numbers is 1
        plain = np.minimum(1.0, holm(p) / share)
        lasting = np.minimum(1.0, holm(np.where(np.isnan(at_worst), p, at_worst)) / share)
    return lasting, (plain < SIGNIFICANT) & ~(lasting < SIGNIFICANT) & np.isfinite(at_worst)


def count_of(pairs: Pairs, first: int, rivals: Sequence[int]) -> int:
    """Return how many missing cells claims about one row and several others rest on."""
    total = pairs.missing.total[[first, *rivals]]
    has_score = np.isfinite(pairs.scores[[first, *rivals]]).any(axis=0)
    return int(total[:, has_score].sum())


Ranges = tuple[list[int], list[Interval | None], list[Interval | None]]


def ranges(pairs: Pairs | None, other: int | None, rows: int) -> Ranges:
    """Return for each row how many cells it lacks, and between what its mean and its difference would be with them.

    Args:
        pairs: The table; None where nothing is missing.
        other: The row that the others are compared with.
        rows: How many there are.
    """
    counts, means, deltas = [0] * rows, list[Interval | None]([None] * rows), list[Interval | None]([None] * rows)
    for row in range(rows) if pairs is not None else ():
        assert pairs is not None
        counts[row] = int(pairs.missing.total[row].sum())
        if counts[row] and np.isfinite(pairs.scores[row]).any():
            means[row] = pairs.mean_range(row)
        if other not in (None, row) and pairs.count_missing(row, other):
            low, high = (pairs.fills(Claim(row, other, side))[0].estimate for side in (1, -1))
            if np.isfinite(low) and np.isfinite(high):
                deltas[row] = (low, high)
    return counts, means, deltas
