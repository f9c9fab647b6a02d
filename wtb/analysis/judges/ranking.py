"""Rows ranked by comparisons of two at a time, as people and judges make them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from wtb.analysis.judges.bias import Figure
from wtb.analysis.statistics.intervals import logistic
from wtb.analysis.statistics.raters.bradley_terry import Comparisons, strengths
from wtb.analysis.statistics.raters.racing import could_be_best
from wtb.core.classes.frozen import frozen

Ended = Literal["known", "cases", "most"]


@frozen
class RankedRow:
    """A row, as comparisons have it.

    Attributes:
        combination: The variant of each varied node.
        comparisons: How many it was in.
        wins: The share that it won, ties as half.
        strength: In log odds against a row of mean strength.
        rank: The best and the worst place that it may have, with 95%.
        could_be_best: Whether it is not ruled out as the best, however often one has looked.
    """

    combination: dict[str, str]
    comparisons: int
    wins: float | None
    strength: Figure
    rank: tuple[int, int]
    could_be_best: bool


@frozen
class Asked:
    """What a judge was asked for.

    Attributes:
        calls: How many comparisons.
        failed: How many of these it gave no usable reply to.
        usd: What they cost; None where a price is not known.
        ended: Why no more was asked: the best is `known`, no `cases` are left, or it would be more than `most` calls.
    """

    calls: int
    failed: int
    usd: float | None
    ended: Ended


@frozen
class RowRanking:
    """Rows ranked by comparisons, strongest first.

    Attributes:
        sweep: The id of the sweep.
        raters: Who compared.
        comparisons: How many count.
        cases: Of how many cases, or clusters of them.
        shown_first: The chance that of two equal rows the one shown first wins, where there is no tie: 0.5 is no bias.
        asked: What was asked for now; None where nobody was.
        rows: All rows of the sweep.
    """

    sweep: str
    raters: tuple[str, ...]
    comparisons: int
    cases: int
    shown_first: Figure
    asked: Asked | None
    rows: tuple[RankedRow, ...]


def ranking(
    sweep: str,
    choices: Sequence[dict[str, str]],
    comparisons: Comparisons,
    raters: tuple[str, ...],
    questioned: Asked | None = None,
) -> RowRanking:
    """Rank rows.

    Args:
        sweep: The id of the sweep.
        choices: Its combinations, by number.
        comparisons: The comparisons, with units numbered in the order in which they were drawn.
        raters: Who made them.
        questioned: What was asked for now.
    """
    fitted, standing = strengths(comparisons, len(choices)), could_be_best(comparisons, len(choices))
    ranked = [
        RankedRow(
            choices[row],
            int(((comparisons.first == row) | (comparisons.second == row)).sum()),
            _share_won(comparisons, row),
            _figure(float(fitted.strength[row]), fitted.interval[row].tolist()),
            (int(fitted.rank[row, 0]), int(fitted.rank[row, 1])),
            bool(standing[row]),
        )
        for row in np.argsort(-fitted.strength, kind="stable").tolist()
    ]
    first = _figure(logistic(fitted.first), [logistic(end) for end in fitted.first_interval])
    return RowRanking(
        sweep, raters, len(comparisons), len(np.unique(comparisons.unit)), first, questioned, tuple(ranked)
    )


def _share_won(comparisons: Comparisons, row: int) -> float | None:
    won = np.concatenate([comparisons.result[comparisons.first == row], -comparisons.result[comparisons.second == row]])
    return float((won.mean() + 1) / 2) if len(won) else None


def _figure(value: float, interval: Sequence[float]) -> Figure:
    return Figure(value, (interval[0], interval[1]) if math.isfinite(interval[0]) else None)
