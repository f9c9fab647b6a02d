"""Figures over all cells of a row where one class is rare, and the agreement of raters where one rating is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np

from simulations.promises import Promise
from wtb.analysis.judge_agreement import cohens_kappa, krippendorffs_alpha
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.class_intervals import differences, row_intervals
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, contributions
from wtb.core.scoring.measure import FIGURES, OF_CLASSES, OF_SCORES, Figure

Rng = np.random.Generator
LOW, HIGH = 0.93, 0.97
_TRULY = 1_000_000  # cells, of which a figure is as good as true
_SIZES = ((18, 100), (20, 300), (30, 300), (20, 1_000))  # cases of the rare class, of so many
_COMMON_SHARES = np.array([0.5, 0.3, 0.2])  # of the cases that are of no rare class


def promises() -> Iterator[Promise]:
    """All of rare classes."""
    yield from _figures()
    yield from _agreement()


def _row(rng: Rng, figure: Figure, truth: Floats, hard: Floats, better: float) -> Floats:
    """Draw the labels of a row: wrong mostly in hard cases. better: how much less often."""
    if figure in OF_SCORES:
        scores = rng.normal(1.2 * truth + 0.6 * (hard - 0.5) - 0.3, 0.6 - 2 * better)
        return np.asarray(1 / (1 + np.exp(-3 * (scores - 0.5))))
    luck = (hard + rng.random(len(truth))) / 2
    luck = np.where(luck < 0.5, 2 * luck**2, 1 - 2 * (1 - luck) ** 2)  # as if drawn evenly
    many = figure in OF_CLASSES
    right = np.array([0.9, 0.8, 0.75, 0.7] if many else [0.93, 0.75])[truth.astype(int)] + better
    wrong = rng.integers(0, 4, len(truth)) if many else 1 - truth
    return np.where(luck < right, truth, wrong).astype(float)


def _pair(rng: Rng, figure: Figure, share: float, cases: int) -> FigureRows:
    """Two rows, the second better. share: of the cases that are of the rare class."""
    hard = rng.random(cases)
    if figure in OF_CLASSES:
        truth = rng.choice(4, cases, p=[*_COMMON_SHARES * (1 - share), share])
    else:
        truth = (rng.random(cases) < share).astype(np.int64)
    rows = [_row(rng, figure, truth, hard, better) for better in (0.0, 0.05)]
    return FigureRows(figure, [RowCells(truth, row, np.arange(cases)) for row in rows], cases)


@cache
def _true(figure: Figure, share: float) -> tuple[float, float]:
    """Return the figures of the whole population of cells."""
    rows = _pair(np.random.default_rng(7), figure, share, _TRULY).rows
    first, second = (float(contributions(figure, *row).mean()) for row in rows)
    return first, second


def _figures() -> Iterator[Promise]:
    for figure, (rare, cases) in itertools.product(FIGURES, _SIZES):

        def covered(
            rng: Rng, runs: int, figure: Figure = figure, rare: int = rare, cases: int = cases
        ) -> tuple[int, int]:
            true, hits, of = _true(figure, rare / cases)[0], 0, 0
            for _ in range(runs):
                low, high = row_intervals(_pair(rng, figure, rare / cases, cases))[0]
                of += np.isfinite(low)
                hits += low <= true <= high
            return hits, of

        def apart(
            rng: Rng, runs: int, figure: Figure = figure, rare: int = rare, cases: int = cases
        ) -> tuple[int, int]:
            first, second = _true(figure, rare / cases)
            hits = of = 0
            for _ in range(runs):
                low, high = differences(_pair(rng, figure, rare / cases, cases), 1, [0]).ends[0]
                of += np.isfinite(low)
                hits += low <= second - first <= high
            return hits, of

        size = f"{rare} of {cases:,} cases are of the class"
        bounds = {"at_least": LOW, "at_most": HIGH}
        yield Promise("intervals of figures over few cases of a class cover", figure, size, covered, runs=500, **bounds)
        claim = "intervals of differences of figures over few cases of a class cover"
        yield Promise(claim, figure, size, apart, runs=500, **bounds)


def _agreement() -> Iterator[Promise]:
    for right, cases in ((0.97, 300), (0.95, 500), (0.97, 1_000)):

        def covered(rng: Rng, runs: int, right: float = right, cases: int = cases) -> tuple[int, int]:
            passes = 0.95 * right + 0.05 * (1 - right)
            by_chance = passes**2 + (1 - passes) ** 2
            true = (right**2 + (1 - right) ** 2 - by_chance) / (1 - by_chance)
            hits = of = 0
            for _ in range(runs):
                truth = (rng.random(cases) < 0.95).astype(float)
                ratings = np.where(rng.random((3, cases)) < right, truth, 1 - truth)
                for agreement in (cohens_kappa(ratings[0], ratings[1]), krippendorffs_alpha(ratings)):
                    of += np.isfinite(agreement.interval[0])
                    hits += agreement.interval[0] <= true <= agreement.interval[1]
            return hits, of

        yield Promise(
            "intervals of agreement cover where one rating is rare",
            f"95% pass, raters are right in {right:.0%}",
            f"{cases:,} units",
            covered,
            at_least=LOW,
            runs=300,
        )
