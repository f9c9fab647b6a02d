"""The cells of a table of scores that should have a score and have none, by the reason why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.core.classes.frozen import frozen

Counts = NDArray[np.int32]  # rows x cases


@frozen
class MissingCells:
    """The missing cells of a table of scores, in which the repeats of a case are averaged.

    A cell is missing if a metric applies to its case and it has no score, because it failed and is left out, was lost
    to a provider, its evaluator failed, or it was skipped. Cells that can still get a score are not missing.

    Attributes:
        behind: How many repeats each score of the table rests on.
        reasons: Reason -> how many repeats are missing because of it.
    """

    behind: Counts
    reasons: Mapping[str, Counts]

    @classmethod
    def of(cls, scores: Floats, reason: str = "failed") -> MissingCells:
        """Return the missing cells of a table without repeats in which every score that is not finite is missing."""
        missing = ~np.isfinite(scores)
        return cls((~missing).astype(np.int32), {reason: missing.astype(np.int32)})

    @property
    def total(self) -> Counts:
        """How many repeats are missing, whatever the reason."""
        return np.asarray(sum(self.reasons.values(), np.zeros_like(self.behind)), dtype=np.int32)

    def part(self, rows: Sequence[int], selected: NDArray[np.bool_] | NDArray[np.int64] | None = None) -> MissingCells:
        """Return the missing cells of some rows, over the cases that are kept."""
        columns = slice(None) if selected is None else selected
        return MissingCells(
            self.behind[rows][:, columns],
            {reason: counts[rows][:, columns] for reason, counts in self.reasons.items()},
        )

    def at(self, places: NDArray[np.int64], width: int) -> MissingCells:
        """Return the missing cells of a table of another order. places: of each case in a table of so many cases."""

        def moved(counts: Counts) -> Counts:
            table = np.zeros((len(counts), width), dtype=np.int32)
            table[:, places] = counts
            return table

        return MissingCells(moved(self.behind), {reason: moved(counts) for reason, counts in self.reasons.items()})

    def among(self, is_known: NDArray[np.bool_]) -> MissingCells:
        """Return the missing cells of which something is known, such as those that have ended (rows x cases)."""
        return MissingCells(
            np.where(is_known, self.behind, 0).astype(np.int32),
            {reason: np.where(is_known, counts, 0).astype(np.int32) for reason, counts in self.reasons.items()},
        )
