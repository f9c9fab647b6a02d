"""Comparison of two rows of one sweep by case: which wins, by how much, and whether that may be chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis import interim
from wtb.analysis.matrix.metric_figures import within_document
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Design, Floats
from wtb.analysis.statistics.class_intervals import differences as differences_of
from wtb.analysis.statistics.good_enough import Standing, standings
from wtb.analysis.statistics.paired import Tested, paired_tests, subtract
from wtb.analysis.statistics.power import detectable, larger
from wtb.core.errors import InputError
from wtb.planning.metric_names import margins_of
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CasePair, PairedRow, PairedTest, RowComparisonDocument

VERSION: Final = 1


class _Paired(NamedTuple):
    """The cases that both rows have.

    Attributes:
        cases: Their numbers.
        scores: The scores of both rows, 2 x cases.
        gains: By how much the first row is better.
    """

    cases: NDArray[np.int64]
    scores: Floats
    gains: Floats


def compare_two_rows(
    database: Database, sweep: SweepRow, row: int, other: int, metric: str | None, *, limit: int
) -> RowComparisonDocument:
    """Compare two rows over the cases that both have a score of.

    Args:
        database: Where the sweep is.
        sweep: Its row, as `find_sweep` gives it.
        row: The number of one combination.
        other: That of the other one.
        metric: By which; None for the one that decides.
        limit: How many cases are returned, those that differ most first.

    Raises:
        InputError: If there is no such row or metric.
    """
    scores = Scores(database, sweep)
    metric = scores.chosen_metric(metric)
    _check_rows(scores, row, other)
    measure, pair = scores.measures[metric], scores.table(metric).part([row, other])
    design = scores.design(metric, pair, share=1.0)
    differences = subtract(pair.scores[:1], pair.scores[1:])
    both = np.isfinite(differences[0])
    why = interim.because(sweep, scores.cell_groups, scores.stopped)
    tested, rate = None, None
    # While the sweep may still be stopped by its results, a test for a fixed number of cases is not valid.
    if why is None:
        rates = bool(design.rates(pair.scores[:, both]).all())
        figures = None if design.figure is None else differences_of(design.figure, 0, [1], design.units)
        rate = float(pair.scores[1, both].mean()) if rates and both.any() and design.units is None else None
        (tested,) = paired_tests(
            differences, seed=design.seed, rates=rates, compare=design.by, units=design.units, figures=figures
        )
    case_scores = pair.scores if measure.figure is None else _case_scores(scores, metric, (row, other), pair.cases)
    gains = subtract(case_scores[:1], case_scores[1:])[0, both] * design.sign
    middle = np.median if measure.compare == "median" else np.mean
    document: RowComparisonDocument = {
        "version": VERSION,
        "sweep": sweep.heading,
        "metric": metric,
        "better": measure.better,
        "compare": measure.compare,
        "row": _side(scores, row, pair.scores[0, both]),
        "other": _side(scores, other, pair.scores[1, both]),
        "n_pairs": int(both.sum()),
        "unpaired": int((np.isfinite(pair.scores).any(axis=0) & ~both).sum()),
        "wins": int((gains > 0).sum()),
        "losses": int((gains < 0).sum()),
        "ties": int((gains == 0).sum()),
        "delta": float(middle(differences[0, both])) if both.any() else None,
        **_figures(tested, rate),
        "because": None if why is None else f"{why}; the test is made at the end",
        "cases": _cases(database, sweep, (row, other), _Paired(pair.cases[both], case_scores[:, both], gains), limit),
        "more": max(0, int(both.sum()) - limit),
    }
    margin = margins_of(sweep.spec, scores.measures).get(metric)
    if margin is not None:
        standing = _standing(pair.scores, design, margin) if why is None else Standing()
        document["within"] = within_document(standing, margin)
    return document


def _standing(scores: Floats, design: Design, margin: float) -> Standing:
    """Return whether the first of two rows is behind the second by no more than a margin."""
    both = [number for number, row in enumerate(scores) if np.isfinite(row).any()]
    return standings(scores, design, margin, could_be_best=[1], compared_rows=both)[0]


def _case_scores(scores: Scores, metric: str, rows: tuple[int, int], cases: NDArray[np.int64]) -> Floats:
    """Return the scores of single cases for a figure over all cells of a row."""
    case_rows = scores.case_rows(metric)
    table = np.full((2, len(cases)), np.nan)
    for place, row in enumerate(rows):
        mine = case_rows[(case_rows[:, 0] == row) & np.isin(case_rows[:, 1], cases)]
        table[place, np.searchsorted(cases, mine[:, 1])] = mine[:, 2]
    return table


def _check_rows(scores: Scores, row: int, other: int) -> None:
    count = len(scores.choices)
    for name, number in (("row", row), ("other", other)):
        if number >= count:
            raise InputError(f"{name} {number}: the sweep has the rows 0 to {count - 1}", argument=name)
    if row == other:
        raise InputError(f"row {row} cannot be compared with itself; expected two rows", argument="other")


def _side(scores: Scores, number: int, row_scores: Floats) -> PairedRow:
    return {
        "combination": number,
        "choices": dict(scores.choices[number]),
        "mean": float(row_scores.mean()) if row_scores.size else None,
        "exploratory": number >= scores.planned,
    }


def _figures(tested: Tested | None, rate: float | None) -> PairedTest:
    """Return the figures of the paired test; None values while the sweep runs. `rate` is the other row's pass rate."""
    if tested is None:
        return {"ci": None, "p": None, "effect": None, "detectable": None}
    return {
        "ci": None if tested.ci is None else list(tested.ci),
        "p": tested.p,
        "effect": tested.effect,
        "detectable": larger(detectable(tested.spread, tested.units, rate=rate)),
    }


def _cases(database: Database, sweep: SweepRow, rows: tuple[int, int], pairs: _Paired, limit: int) -> list[CasePair]:
    """Return the most informative cases: largest difference first, then in their order."""
    telling = np.argsort(-np.abs(pairs.gains), kind="stable")[:limit]
    numbers = [int(number) for number in pairs.cases[telling]]
    named = queries.case_rows(database, sweep.id, numbers)
    executions = evidence.first_executions(database, sweep.id, rows, numbers)
    return [
        {
            "case": named[number].id,
            "row": float(pairs.scores[0, place]),
            "other": float(pairs.scores[1, place]),
            "gain": float(pairs.gains[place]),
            "executions": [executions.get((row, number)) for row in rows],
        }
        for number, place in zip(numbers, telling, strict=True)
    ]
