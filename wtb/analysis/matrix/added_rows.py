"""The rows that were added to a sweep after somebody had seen its results: exploratory, each by itself.

What was planned is as if there were none of them: its figures, its tests and which of it is the best. An added row is
compared with the baseline over all cases but those that suggested it, once all of its cells have ended, and with the
part of the level that what was tried before it has left. It is never ranked, so it is never the best by itself: that
takes a sweep of other cases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.search_history import Ledger
from wtb.analysis.statistics.comparing import Estimate, compare
from wtb.core.documents.matrix import ExploratoryDocument
from wtb.core.serialization.plain_json import iso
from wtb.core.status import FINAL_CELLS
from wtb.core.tree.added_rows import Addition
from wtb.core.tree.combinations import in_words
from wtb.store.database import Database
from wtb.store.tables.sweeps import SweepRow

_NOT_YET = Estimate(0, 0, None, None, None, None, None, None)


class AddedRows:
    """The rows that were added to a sweep.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        scored: Its scores.
    """

    def __init__(self, database: Database, sweep: SweepRow, scored: Scores) -> None:
        self._database, self._sweep, self._scored = database, sweep, scored
        self.count = len(scored.added)

    @cached_property
    def _unfinished(self) -> set[int]:
        return {group.combination for group in self._scored.cell_groups if group.status not in FINAL_CELLS}

    @cached_property
    def _ledgers(self) -> list[Ledger]:
        """For each row what was tried before it: the rows above it, and what other sweeps had tried by then."""
        choices = self._scored.choices
        return [
            Ledger(self._database, self._sweep, choices[: addition.combination], before=addition.added_at)
            for addition in self._scored.added
        ]

    @cached_property
    def _everything(self) -> Ledger:
        return Ledger(self._database, self._sweep, self._scored.choices)

    def documents(self) -> dict[int, ExploratoryDocument]:
        """`exploratory` of the matrix, by the numbers of the rows that have it."""
        return {addition.combination: self._document(addition) for addition in self._scored.added}

    def _document(self, addition: Addition) -> ExploratoryDocument:
        return {
            "base": self._scored.choices[addition.base],
            "changed": dict(addition.changed),
            "suggested_by": addition.case,
            "cases_left_out": len(addition.left_out),
            "execution": addition.execution,
            "by": addition.by,
            "reason": addition.reason,
            "added_at": str(iso(addition.added_at)),
        }

    def estimates(self, metric: str) -> list[Estimate]:
        """The figures of each by a metric: none before all of its cells have ended."""
        return [
            _NOT_YET if addition.combination in self._unfinished else self._estimate(addition, ledger, metric)
            for addition, ledger in zip(self._scored.added, self._ledgers, strict=True)
        ]

    def _estimate(self, addition: Addition, ledger: Ledger, metric: str) -> Estimate:
        scored, table = self._scored, self._scored.table(metric)
        numbers = [addition.combination] if scored.baseline is None else [scored.baseline, addition.combination]
        part = table.part(numbers, ~np.isin(table.cases, addition.left_out))
        design = scored.design(metric, part, ledger.share_of_one_more(metric))
        comparison = compare(part.scores, dataclasses.replace(design, baseline=None if scored.baseline is None else 0))
        return dataclasses.replace(comparison.rows[-1], ranks=None, common_mean=None)

    def tries(self, metric: str) -> int:
        """How many combinations were tried over these cases, the added ones included; 0 where there are none."""
        return self._everything.tries(metric).n if self.count else 0

    def shares(self, metrics: Sequence[str]) -> Iterator[tuple[int, dict[str, float]]]:
        """For each row its number and, by metric, the part of the level that it may use."""
        for addition, ledger in zip(self._scored.added, self._ledgers, strict=True):
            yield addition.combination, {metric: ledger.share_of_one_more(metric) for metric in metrics}

    def sentences(self) -> list[str]:
        """What readers of the matrix need to know of each."""
        return [self._sentence(addition) for addition in self._scored.added]

    def _sentence(self, addition: Addition) -> str:
        name = in_words(self._scored.choices[addition.combination])
        more = len(addition.left_out) - 1
        cases = f"case {addition.case}" + (f" and {more:,} more that go with it" if more else "")
        come = "come when all of its cells have ended, and " if addition.combination in self._unfinished else ""
        return (
            f"{name} is exploratory: it was added after results were seen, since {cases} suggested it, so its figures "
            f"{come}leave that out; it is not ranked: run it with other cases to know"
        )
