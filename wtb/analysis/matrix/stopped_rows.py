"""Rows that somebody stopped: never ranked, and compared with the baseline over the cases that both have."""

from __future__ import annotations

import dataclasses

import numpy as np

from wtb.analysis.scores import Scores, ScoreTable
from wtb.analysis.statistics.comparing import Estimate, compare
from wtb.core.documents.matrix import StoppedDocument
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import StoredStop


class StoppedRows:
    """The rows of a sweep that were stopped.

    Args:
        scored: Its scores.
    """

    def __init__(self, scored: Scores) -> None:
        self._scored = scored

    def documents(self) -> dict[int, StoppedDocument]:
        """`stopped` of the matrix, by the numbers of the rows that have it."""
        return {number: self._document(number, stop) for number, stop in self._scored.stopped.items()}

    def _document(self, number: int, stop: StoredStop) -> StoppedDocument:
        return {"by": stop["by"], "reason": stop["reason"], "at": str(iso(stop["at"])), "cases": self._cases(number)}

    def _cases(self, number: int) -> int:
        metric = self._scored.primary
        return 0 if metric is None else int((self._scored.table(metric).behind[number] > 0).sum())

    def blanked(self, table: ScoreTable) -> ScoreTable:
        """Return a table in which these rows have no score, so that nothing is chosen or corrected for them."""
        numbers = [number for number in self._scored.stopped if number < len(table.scores)]
        if not numbers:
            return table
        scores, behind = table.scores.copy(), table.behind.copy()
        scores[numbers], behind[numbers] = np.nan, 0
        return dataclasses.replace(table, scores=scores, behind=behind)

    def placed_in(self, estimates: list[Estimate], metric: str) -> list[Estimate]:
        """Return the estimates of all rows with those of these.

        A row was stopped for what it showed, so there is no test and no interval.
        """
        stopped = self._scored.stopped
        return [
            self._estimate(number, metric) if number in stopped else estimate
            for number, estimate in enumerate(estimates)
        ]

    def _estimate(self, number: int, metric: str) -> Estimate:
        scored, table = self._scored, self._scored.table(metric)
        has = table.behind[number] > 0
        numbers = [number] if scored.baseline is None else [scored.baseline, number]
        part = table.part(numbers, has)
        design = dataclasses.replace(
            scored.design(metric, part, 1.0), baseline=None if scored.baseline is None else 0, missing=None
        )
        if not has.any() or design.figure is not None:
            return Estimate(0, 0, None, None, None, None, None, None)
        estimate = compare(part.scores, design).rows[-1]
        return Estimate(estimate.n, estimate.n_pairs, estimate.mean, None, estimate.delta, None, None, None)

    def sentences(self) -> list[str]:
        """What readers of the matrix need to know of each."""
        return [self._sentence(number, stop) for number, stop in self._scored.stopped.items()]

    def _sentence(self, number: int, stop: StoredStop) -> str:
        name, cases = in_words(self._scored.choices[number]), plural(self._cases(number), "case")
        return (
            f"{name} was stopped by {stop['by']} after {cases}: its Δ is over the cases that both have, and it is "
            "never the best"
        )
