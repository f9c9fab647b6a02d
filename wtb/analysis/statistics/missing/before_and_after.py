"""The scores of rows before and after a change, and claims about rows and pools of them with missing cells at worst."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.missing.worst_case import Claim, Fill, Pairs, Side
from wtb.analysis.statistics.paired import chance
from wtb.analysis.statistics.units import differences_by_unit
from wtb.core.classes.frozen import frozen


class AtWorst(NamedTuple):
    """Rows, and pools after them, with missing cells at their worst for what is claimed.

    Attributes:
        worse: The one-sided p of a loss.
        better: That of a gain.
        lows: From where on the true gain lies, 95 times of 100.
        missing: How many cells are missing on either side.
    """

    worse: Floats
    better: Floats
    lows: Floats
    missing: NDArray[np.int64]


@frozen
class BeforeAndAfter:
    """The scores of rows before a change, and after them those of the same rows after it, in one table.

    Attributes:
        pairs: The table.
        is_higher_better: Whether higher scores are better.
    """

    pairs: Pairs
    is_higher_better: bool = True

    def at_worst(self, parts: Sequence[Sequence[int]], without: AtWorst, lower: Callable[[Floats], Floats]) -> AtWorst:
        """Return what holds with missing cells at their worst.

        Args:
            parts: The rows of each pool; a row alone is a pool of one.
            without: What holds without missing cells.
            lower: Returns the lower bounds of gains.
        """
        missing = np.array([sum(self._count(row) for row in rows) for rows in parts], dtype=np.int64)
        lows = without.lows.copy()
        some = np.flatnonzero((missing > 0) & np.isfinite(lows)).tolist()
        if some:
            gains = np.stack([self._gains(parts[part], "gain", every=False).gains for part in some])
            lows[some] = np.fmin(lows[some], lower(gains))
        return AtWorst(
            self._tested(parts, without.worse, missing, "loss"),
            self._tested(parts, without.better, missing, "gain"),
            lows,
            missing,
        )

    @property
    def _rows(self) -> int:
        return len(self.pairs.scores) // 2

    def _count(self, row: int) -> int:
        return self.pairs.count_missing(self._rows + row, row)

    def _tested(
        self, parts: Sequence[Sequence[int]], p: Floats, missing: NDArray[np.int64], claim: Literal["loss", "gain"]
    ) -> Floats:
        """Return one-sided p, that with missing cells at their worst where it is larger."""
        worst_p = p.copy()
        tables, numbers = [], []
        for part in np.flatnonzero((p < SIGNIFICANT) & (missing > 0)).tolist():
            worst_p[part] = 1.0
            excess, every = (self._gains(parts[part], claim, every=every) for every in (False, True))
            if all((gains.mean > 0) == (claim == "gain") and gains.mean != 0 for gains in (excess, every)):
                tables.append(excess.tested)
                numbers.append(part)
        if tables:
            each = differences_by_unit(np.stack(tables), self.pairs.units)
            two_sided = chance(each, self.pairs.seed, self.pairs.compare)
            worst_p[numbers] = np.fmax(p[numbers], np.where(np.isnan(two_sided), 1.0, two_sided / 2))
        return worst_p

    def _gains(self, rows: Sequence[int], claim: Literal["loss", "gain"], *, every: bool) -> _Gains:
        """Fill in all missing cells of a pool, or their excess, at the worst for a claim."""
        sign = 1.0 if self.is_higher_better else -1.0
        side: Side = 1 if (claim == "gain") == self.is_higher_better else -1
        fills: list[Fill] = []
        for row in rows:
            both = self.pairs.fills(Claim(self._rows + row, row, side))
            fills.append(both[0] if every else both[1])
        everyone = list(range(len(rows)))
        gains = pooled(np.stack([fill.differences for fill in fills]), everyone)
        tested = pooled(np.stack([fill.differences if fill.swaps is None else fill.swaps for fill in fills]), everyone)
        return _Gains(sign * gains, sign * tested, sign * float(np.nanmean([fill.estimate for fill in fills])))


class _Gains(NamedTuple):
    """Gains of a pool by case, what tests of them are of, and their mean (or typical gain)."""

    gains: Floats
    tested: Floats
    mean: float


def pooled(rows: Floats, which: Sequence[int]) -> Floats:
    """Case by case the mean of these rows, of those that have it; NaN where none has."""
    rows = rows[list(which)]
    present = np.isfinite(rows)
    count = present.sum(axis=0)
    return np.where(count > 0, np.where(present, rows, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
