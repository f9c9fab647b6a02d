"""Figures over all cells of a row, such as F1 and AUC, whose truth is known: of very many cells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from simulations.promises import Promise, seed_from
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.class_intervals import FigureDifferences, differences, row_intervals
from wtb.analysis.statistics.paired import paired_tests
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, contributions
from wtb.core.scoring.measure import FIGURES, OF_CLASSES, OF_SCORES, Figure

Rng = np.random.Generator
COVERS = 0.925
_SHARES = np.array([0.4, 0.3, 0.2, 0.1])  # of the cases that are of each class
_RARE = np.array([0.6, 0.25, 0.1, 0.05])  # the same where some are rare
_OTHERWISE = np.array([0.75, 0.9, 0.8, 0.85])  # of the cells of each class in a row that is as good in another way
_RIGHT = np.array([0.9, 0.8, 0.7, 0.6])  # of the cells of each class
_TRULY = 1_000_000  # cells, of which a figure is as good as true
_IN_ANOTHER_WAY: tuple[Figure, ...] = ("macro_f1", "balanced_accuracy", "cohen_kappa", "class_f1", "class_precision")
_AT_ONCE = 250  # sweeps whose signs are flipped together


def promises() -> Iterator[Promise]:
    """All of figures over rows."""
    yield from _intervals()
    yield from _differences()


def _truth(rng: Rng, figure: Figure, cases: int, rare: bool = False) -> Any:
    """Draw the expected label and the difficulty of each case, which rows share. rare: some classes are rare."""
    hard = rng.random(cases)
    if figure in OF_CLASSES:
        return rng.choice(4, cases, p=_RARE if rare else _SHARES), hard
    return (rng.random(cases) < (0.1 if rare else 0.3)).astype(int), hard


def _predicted(rng: Rng, figure: Figure, truth: Any, hard: Floats, better: float = 0.0) -> Floats:
    """Draw the labels of a row: wrong mostly in hard cases."""
    return _found_by(rng, figure, truth, hard, (_RIGHT + better, 0.7 + better, 0.9 + better), better)


def _found_by(rng: Rng, figure: Figure, truth: Any, hard: Floats, right: Any, better: float = 0.0) -> Floats:
    """Draw the labels of a row. right: its accuracy by class; of one class, inside and outside of it."""
    if figure in OF_SCORES:
        scores = rng.normal(0.8 * truth + 0.6 * (hard - 0.5), 0.6 - better)
        return np.asarray(1 / (1 + np.exp(-3 * (scores - 0.5))))
    luck = (hard + rng.random(len(truth))) / 2
    luck = np.where(luck < 0.5, 2 * luck**2, 1 - 2 * (1 - luck) ** 2)  # as if drawn evenly
    if figure in OF_CLASSES:
        return np.where(luck < right[0][truth], truth, rng.integers(0, 4, len(truth))).astype(float)
    return np.where(luck < np.where(truth == 1, right[1], right[2]), truth, 1 - truth).astype(float)


@cache
def _as_good(figure: Figure) -> float:
    """Return the accuracy of a row with the same figure in another way: it finds more, and errs elsewhere."""
    low, high = 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        rng = np.random.default_rng(7)
        truth, hard = _truth(rng, figure, _TRULY)
        predicted = _found_by(rng, figure, truth, hard, _other(middle))
        is_low = contributions(figure, truth, predicted, np.arange(_TRULY)).mean() < _true(figure)
        low, high = (middle, high) if is_low else (low, middle)
    return middle


def _other(by: float) -> Any:
    return _OTHERWISE + by - 0.5, 0.9, by


def _two_rows(rng: Rng, figure: Figure, cases: int, kind: str) -> FigureRows:
    """Two rows whose figures are equal. kind: `rare` classes, or the second is as good in `another` way."""
    truth, hard = _truth(rng, figure, cases, kind == "rare")
    rows = [_predicted(rng, figure, truth, hard) for _ in range(2)]
    if kind == "another":
        rows[1] = _found_by(rng, figure, truth, hard, _other(_as_good(figure)))
    columns = np.arange(cases)
    return FigureRows(figure, [RowCells(truth, row, columns) for row in rows], cases)


def _table(rows: FigureRows) -> Floats:
    """Return the contributions of cases to the figures of rows."""
    return np.array([contributions(rows.figure, *row) for row in rows.rows])


def _repeated(rng: Rng, figure: Figure, cases: int, repeats: int, better: float = 0.0) -> FigureRows:
    """Two rows. better: the second, by so much."""
    truth, hard = _truth(rng, figure, cases)
    every, its = np.repeat(truth, repeats), np.repeat(hard, repeats)
    numbers = np.repeat(np.arange(cases), repeats)
    rows = [RowCells(every, _predicted(rng, figure, every, its, by), numbers) for by in (0.0, better)]
    return FigureRows(figure, rows, cases)


@cache
def _true(figure: Figure, better: float = 0.0) -> float:
    """Return the figure of the whole population of cells."""
    rng = np.random.default_rng(7)
    truth, hard = _truth(rng, figure, _TRULY)
    predicted = _predicted(rng, figure, truth, hard, better)
    return float(contributions(figure, truth, predicted, np.arange(_TRULY)).mean())


def _intervals() -> Iterator[Promise]:
    for figure in FIGURES:
        for cases, repeats in ((50, 1), (100, 1), (100, 3), (300, 1)):

            def covered(
                rng: Rng, runs: int, figure: Figure = figure, cases: int = cases, repeats: int = repeats
            ) -> tuple[int, int]:
                true = _true(figure)
                ends = np.vstack([row_intervals(_repeated(rng, figure, cases, repeats).part([0])) for _ in range(runs)])
                finite = np.isfinite(ends[:, 0])
                return int(((ends[:, 0] <= true) & (true <= ends[:, 1])).sum()), int(finite.sum())

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
                    (low, high), *_ = differences(_repeated(rng, figure, cases, 1, 0.05), 1, [0]).ends.tolist()
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

    for figure in FIGURES:
        for kind, words in (("", ""), ("rare", ", rare classes"), ("another", ", as good in another way")):
            for cases in (50, 100, 300) if kind != "another" or figure in _IN_ANOTHER_WAY else ():
                yield _seen(figure, cases, kind, words)
        for cases in (100, 300):
            yield _starred(figure, cases)


def _seen(figure: Figure, cases: int, kind: str, words: str) -> Promise:
    def seen(rng: Rng, runs: int) -> tuple[int, int]:
        hits = of = 0
        for start in range(0, runs, _AT_ONCE):
            rows = [_two_rows(rng, figure, cases, kind) for _ in range(min(_AT_ONCE, runs - start))]
            tables = [_table(row) for row in rows]
            differences = np.array([second - first for first, second in tables])
            swaps, none = np.vstack([table_.swaps(1, [0]) for table_ in rows]), np.full((len(rows), 2), np.nan)
            figures = FigureDifferences(swaps, none, none)
            tested = paired_tests(differences, seed=seed_from(rng), figures=figures)
            hits += sum(test.p is not None and test.p < 0.05 for test in tested)
            of += sum(test.p is not None for test in tested)
        return hits, of

    claim = "a difference is seen between equal figures over all cells of a row"
    return Promise(claim, figure + words, f"{cases} cases", seen, at_most=0.06 if cases >= 100 else None, runs=1_000)


def _starred(figure: Figure, cases: int) -> Promise:
    def starred(rng: Rng, runs: int) -> tuple[int, int]:
        hits = 0
        for _ in range(runs):
            rows = _two_rows(rng, figure, cases, "")
            hits += compare(_table(rows), Design(seed=seed_from(rng), figure=rows)).clear
        return hits, runs

    claim = "a best by a figure over all cells of a row is clear, and is not"
    return Promise(claim, figure, f"{cases} cases", starred, at_most=0.06, runs=100)
