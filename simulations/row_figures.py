"""Figures over all cells of a row, such as F1 and AUC, whose truth is known: of very many cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from simulations.promises import Promise
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.intervals import intervals
from wtb.analysis.statistics.paired import paired_tests
from wtb.analysis.statistics.row_figures import by_case, contributions
from wtb.core.scoring.figures import FIGURES, OF_CLASSES, OF_SCORES, Figure

Rng = np.random.Generator
COVERS = 0.925
_SHARES = np.array([0.4, 0.3, 0.2, 0.1])  # of the cases that are of each class
_RIGHT = np.array([0.9, 0.8, 0.7, 0.6])  # of the cells of each class
_TRULY = 1_000_000  # cells, of which a figure is as good as true


def promises() -> Iterator[Promise]:
    """All of figures over rows."""
    yield from _intervals()
    yield from _differences()


def _truth(rng: Rng, figure: Figure, cases: int) -> Any:
    """What is expected of each case, and how hard it is, which rows have in common."""
    hard = rng.random(cases)
    if figure in OF_CLASSES:
        return rng.choice(4, cases, p=_SHARES), hard
    return (rng.random(cases) < 0.3).astype(int), hard


def _found(rng: Rng, figure: Figure, truth: Any, hard: Floats, better: float = 0.0) -> Floats:
    """What a row finds: wrong mostly where it is hard."""
    if figure in OF_SCORES:
        scores = rng.normal(0.8 * truth + 0.6 * (hard - 0.5), 0.6 - better)
        return np.asarray(1 / (1 + np.exp(-3 * (scores - 0.5))))
    luck = (hard + rng.random(len(truth))) / 2
    luck = np.where(luck < 0.5, 2 * luck**2, 1 - 2 * (1 - luck) ** 2)  # as if drawn evenly
    if figure in OF_CLASSES:
        return np.where(luck < _RIGHT[truth] + better, truth, rng.integers(0, 4, len(truth))).astype(float)
    return np.where(luck < np.where(truth == 1, 0.7, 0.9) + better, truth, 1 - truth).astype(float)


def _of_cases(rng: Rng, figure: Figure, cases: int, repeats: int, better: float = 0.0) -> list[Floats]:
    """What each case contributes in two rows. better: the second, by so much."""
    truth, hard = _truth(rng, figure, cases)
    every, its = np.repeat(truth, repeats), np.repeat(hard, repeats)
    numbers = np.repeat(np.arange(cases), repeats)
    rows = (_found(rng, figure, every, its, by) for by in (0.0, better))
    return [by_case(contributions(figure, every, row, numbers), numbers)[1] for row in rows]


@cache
def _true(figure: Figure, better: float = 0.0) -> float:
    """The figure of all cells that there could be."""
    rng = np.random.default_rng(7)
    truth, hard = _truth(rng, figure, _TRULY)
    found = _found(rng, figure, truth, hard, better)
    return float(contributions(figure, truth, found, np.arange(_TRULY)).mean())


def _intervals() -> Iterator[Promise]:
    for figure in FIGURES:
        for cases, repeats in ((50, 1), (100, 1), (100, 3), (300, 1)):

            def covered(
                rng: Rng, runs: int, figure: Figure = figure, cases: int = cases, repeats: int = repeats
            ) -> tuple[int, int]:
                true = _true(figure)
                ends = np.vstack([intervals(_of_cases(rng, figure, cases, repeats)[0][None]) for _ in range(runs)])
                known = np.isfinite(ends[:, 0])
                return int(((ends[:, 0] <= true) & (true <= ends[:, 1])).sum()), int(known.sum())

            yield Promise(
                "intervals of figures over all cells of a row cover",
                figure,
                f"{cases} cases" + (f", {repeats} repeats" if repeats > 1 else ""),
                covered,
                at_least=COVERS if cases >= 100 else None,
                runs=500,
            )


def _differences() -> Iterator[Promise]:
    for figure in FIGURES:
        for cases in (100, 300):

            def covered(rng: Rng, runs: int, figure: Figure = figure, cases: int = cases) -> tuple[int, int]:
                true = _true(figure, 0.05) - _true(figure)
                hits = of = 0
                for _ in range(runs):
                    first, second = _of_cases(rng, figure, cases, 1, 0.05)
                    (low, high), *_ = intervals((second - first)[None]).tolist()
                    of += np.isfinite(low)
                    hits += low <= true <= high
                return hits, of

            yield Promise(
                "intervals of differences of figures over all cells of a row cover",
                figure,
                f"{cases} cases",
                covered,
                at_least=COVERS,
                runs=500,
            )

            def seen(rng: Rng, runs: int, figure: Figure = figure, cases: int = cases) -> tuple[int, int]:
                hits = 0
                for _ in range(runs):
                    first, second = _of_cases(rng, figure, cases, 1)
                    (tested,) = paired_tests((second - first)[None], seed=int(rng.integers(1 << 31)))
                    hits += tested.p is not None and tested.p < 0.05
                return hits, runs

            yield Promise(
                "a difference is seen between equal figures over all cells of a row",
                figure,
                f"{cases} cases",
                seen,
                at_most=0.06,
                runs=200,
            )

            def starred(rng: Rng, runs: int, figure: Figure = figure, cases: int = cases) -> tuple[int, int]:
                hits = 0
                for _ in range(runs):
                    table = np.array(_of_cases(rng, figure, cases, 1))
                    hits += compare(table, Design(seed=int(rng.integers(1 << 31)), linear=True)).clear
                return hits, runs

            yield Promise(
                "a best by a figure over all cells of a row is clear, and is not",
                figure,
                f"{cases} cases",
                starred,
                at_most=0.06,
                runs=100,
            )
