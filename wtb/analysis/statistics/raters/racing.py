"""Which of many rows is the best, by as few comparisons of two as it takes, and known whenever one looks.

The strongest row so far meets every other that could still be the best, in one case after another. For each row there
is a bet that it is not the best: on being beaten by whomever it meets, a case at a time. Were it the best, nobody would
beat it on average, whoever is chosen for it, and the bet would reach 20 in at most 5% of sweeps, at any time (Ville
1939; `sequential.anytime`). So rows may be chosen boldly, and what is ruled out is ruled out validly. What that takes:
cases come in an order that was drawn beforehand; pairs are chosen before their case is looked into; both orders of a
pair are shown, or one that was drawn, so that being shown first is no advantage on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.raters.bradley_terry import Comparisons, estimates, joined
from wtb.analysis.statistics.sequential.anytime import capital

Pairs = list[tuple[int, int]]

ALPHA = 0.05


def could_be_best(comparisons: Comparisons, rows: int) -> NDArray[np.bool_]:
    """Which rows are not ruled out as the best; the best is among them in 95% of sweeps, whenever one looks.

    Args:
        comparisons: The comparisons. Units are numbered in the order in which they were drawn.
        rows: How many rows there are.
    """
    return np.asarray(capital(_beaten(comparisons, rows), 1.0, ALPHA) < 1 / ALPHA)


def race(
    rows: int, units: Iterable[int], compare: Callable[[int, Pairs], Comparisons | None], rng: np.random.Generator
) -> tuple[Comparisons, bool]:
    """Compare what tells most, unit by unit, until the best is known.

    Args:
        rows: How many rows there are.
        units: Their numbers, in an order that was drawn.
        compare: Compares pairs in a unit; None where no more may be compared.
        rng: By which those who meet first are drawn.

    Returns:
        All comparisons, with units numbered in their order, and whether the best is known.
    """
    comparisons = joined(())
    for place, unit in enumerate(units):
        pairs = next_pairs(comparisons, rows, rng)
        if not pairs:
            return comparisons, True
        new = compare(unit, pairs)
        if new is None:
            return comparisons, False
        comparisons = joined((comparisons, replace(new, unit=np.full(len(new), place))))
    return comparisons, not next_pairs(comparisons, rows, rng)


def next_pairs(comparisons: Comparisons, rows: int, rng: np.random.Generator) -> Pairs:
    """Who is to be compared in the next unit: nobody where the best is known.

    Args:
        comparisons: What was compared in the units before.
        rows: How many rows there are.
        rng: By which those who meet in the first unit are drawn.
    """
    if not len(comparisons):
        drawn = rng.permutation(rows).tolist()
        return list(zip(drawn[::2], drawn[1::2], strict=False))
    standing = np.flatnonzero(could_be_best(comparisons, rows))
    if len(standing) < 2:
        return []
    strongest = int(standing[np.argmax(estimates(comparisons, rows)[standing])])
    return [(strongest, int(row)) for row in standing if row != strongest]


def _beaten(comparisons: Comparisons, rows: int) -> Floats:
    """rows x units: by how much those whom a row met beat it, from -1 to 1; NaN where it met nobody."""
    units = int(comparisons.unit.max(initial=-1)) + 1
    sums, counts = np.zeros((rows, units)), np.zeros((rows, units))
    for row, sign in ((comparisons.first, -1.0), (comparisons.second, 1.0)):
        np.add.at(sums, (row, comparisons.unit), sign * comparisons.result)
        np.add.at(counts, (row, comparisons.unit), 1.0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan))
