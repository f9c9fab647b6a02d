"""What a judge's scores are off by, held against labels of the same cells, and what makes them more so.

Figures are means by case, since labels of one case resemble each other, with intervals of 95%: those of means, or by
leaving out a case at a time. Where cases were drawn with unequal chances, each counts by one over its chance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, intervals, t_quantile
from wtb.core.classes.frozen import frozen

_MOST_LEVELS = 10  # of labels or scores; more are put into as many groups
_LEAST_CASES = 3  # for an interval by leaving out cases
UNKNOWN: Interval = (math.nan, math.nan)
# Models whose names begin otherwise than that of their family.
_SAME = {"chatgpt": "gpt", "o": "gpt", "mixtral": "mistral", "ministral": "mistral", "magistral": "mistral"}


@frozen
class Figure:
    """A figure and its interval of 95%; None where it is not known. because: why there is no interval, in words."""

    value: float | None
    interval: Interval | None
    because: str | None = None


@frozen
class Held:
    """Labels, and the judge's scores of the same cells.

    Attributes:
        judge: The scores.
        people: The labels.
        cases: The number of the case of each.
        weights: By number of the case, what it counts; None where all count alike.
    """

    judge: Floats
    people: Floats
    cases: NDArray[np.int64]
    weights: Mapping[int, float] | None = None

    @property
    def weight(self) -> Floats:
        """What each label counts."""
        weights = self.weights
        return np.array([1.0 if weights is None else weights[case] for case in self.cases.tolist()])


@frozen
class JudgedLevel:
    """What people say where the judge gives a score, or scores close to each other: a point of its calibration curve.

    Attributes:
        judge: The mean of these scores.
        labels: How many labels are of cells with them.
        people: The mean of these labels, by case.
    """

    judge: float
    labels: int
    people: Figure


@frozen
class LevelUse:
    """How often a level is given.

    Attributes:
        level: The level; a score between levels counts as the nearest one.
        judge: The share of its scores that are of this level.
        people: The share of labels.
        more: By how much the judge gives it more often.
    """

    level: float
    judge: float
    people: float
    more: Figure


@frozen
class OwnFamily:
    """How much more a judge gives to answers of models of its own family, where people say the same of them.

    Attributes:
        families: Of the judge; none where rows were named by hand.
        labels: How many are of such answers.
        more: Its mean score of them less that of others with the same label.
    """

    families: tuple[str, ...]
    labels: int
    more: Figure


def family_of(model: str) -> str:
    """The family of a model, by its name: `openai/gpt-4o-mini` is of `gpt`, `us.anthropic.claude-3-5` of `claude`."""
    name = model.lower()
    name = name.split(":")[1] if name.startswith("ft:") else re.sub(r"^.*[./:](?=[a-z])", "", name)
    first = re.match("[a-z]+", name)
    return name if first is None else _SAME.get(first[0], first[0])


def by_case(values: Floats, held: Held, chosen: NDArray[np.bool_] | None, ends: Interval | None) -> Figure:
    """The mean of values, which are averaged within the case first.

    Args:
        values: Of each label.
        held: The labels.
        chosen: Those that count; None for all.
        ends: What the mean cannot leave.
    """
    which = np.ones(len(values), dtype=np.bool_) if chosen is None else chosen
    cases = np.unique(held.cases[which])
    means = np.array([values[which & (held.cases == case)].mean() for case in cases])
    if held.weights is None:
        low, high = intervals(means[None, :])[0].tolist()
        return figure(float(means.mean()), (low, high), ends)
    weight = np.array([held.weights[case] for case in cases.tolist()])
    weight /= weight.sum()
    mean, freedom = float(weight @ means), 1 / float(weight @ weight) - 1
    spread = math.sqrt(len(cases) / max(len(cases) - 1, 1) * float((weight**2) @ ((means - mean) ** 2)))
    if freedom < 1 or spread <= ROUNDING:
        return figure(mean, UNKNOWN, ends)
    half = t_quantile(int(freedom)) * spread
    return figure(mean, (mean - half, mean + half), ends)


def by_length(held: Held, lengths: Sequence[int | None]) -> Figure:
    """By how much the score less the label changes where an answer is twice as long. lengths: in characters."""
    known = np.array([length is not None for length in lengths])
    values, weight, cases = (held.judge - held.people)[known], held.weight[known], held.cases[known]
    x = np.log2([max(length, 1) for length in lengths if length is not None])

    def slope(chosen: NDArray[np.bool_]) -> float:
        w = weight[chosen]
        apart = x[chosen] - np.average(x[chosen], weights=w)
        spread = float(w @ apart**2)  # 0 where all are as long as each other
        return float((w * apart) @ values[chosen]) / spread if spread > ROUNDING else math.nan

    return _left_out(slope, cases)


def own_family(held: Held, own: NDArray[np.bool_]) -> Figure:
    """How much more the judge gives to its own, where people say the same. own: which labels are of such answers.

    Answers that people like as much are compared with each other: rows of its own family may well be better, and a
    judge who is often wrong gives less to what is good.
    """
    groups = _grouped(held.people)
    values, weight = held.judge - held.people, held.weight

    def more(chosen: NDArray[np.bool_]) -> float:
        total = sizes = 0.0
        for group in groups:
            mine, others = group & own & chosen, group & ~own & chosen
            if mine.any() and others.any():
                first, second = float(weight[mine].sum()), float(weight[others].sum())
                size = first * second / (first + second)
                apart = np.average(values[mine], weights=weight[mine])
                apart -= np.average(values[others], weights=weight[others])
                total, sizes = total + size * float(apart), sizes + size
        return total / sizes if sizes else math.nan

    return _left_out(more, held.cases)


def levels(held: Held, ends: Interval | None) -> tuple[JudgedLevel, ...]:
    """By each score, or by as many groups of scores where a judge that is asked several times gives more."""
    return tuple(
        JudgedLevel(float(held.judge[one].mean()), int(one.sum()), by_case(held.people, held, one, ends))
        for one in _grouped(held.judge)
    )


def uses(held: Held, rubric: Sequence[float]) -> tuple[LevelUse, ...]:
    """How often each level is given. rubric: the levels that there are, where that is known."""
    known = np.unique([*held.people.tolist(), *rubric])
    both = np.unique([*known.tolist(), *held.judge.tolist()])
    found = both if len(both) <= _MOST_LEVELS else known
    if not 2 <= len(found) <= _MOST_LEVELS:
        return ()
    nearest = found[np.abs(held.judge[:, None] - found).argmin(axis=1)]
    level_uses = []
    for level in found:
        judge, people = (nearest == level).astype(np.float64), (held.people == level).astype(np.float64)
        of_judge, of_people = (by_case(one, held, None, (0.0, 1.0)).value or 0.0 for one in (judge, people))
        more = by_case(judge - people, held, None, (-1.0, 1.0))
        level_uses.append(LevelUse(float(level), of_judge, of_people, more))
    return tuple(level_uses)


def _grouped(values: Floats) -> list[NDArray[np.bool_]]:
    """Which values are alike, or close to each other where they are many, from the lowest on."""
    found = np.unique(values)
    groups = found[:, None] if len(found) <= _MOST_LEVELS else np.array_split(found, _MOST_LEVELS)
    return [np.isin(values, group) for group in groups]


def _left_out(estimate: Callable[[NDArray[np.bool_]], float], cases: NDArray[np.int64]) -> Figure:
    """An estimate from all labels, with the error of leaving out a case at a time; unknown if too few are left."""
    units = np.unique(cases)
    if len(units) < _LEAST_CASES:
        return Figure(None, None)
    without = np.array([estimate(cases != one) for one in units])
    if not np.isfinite(without).all():
        return Figure(None, None)
    n, value = len(units), estimate(cases == cases)
    half = t_quantile(n - 1) * math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return figure(value, (value - half, value + half) if half > ROUNDING else UNKNOWN)


def ends_of_differences(ends: Interval | None) -> Interval | None:
    """The ends that differences between two figures cannot leave, where these have some."""
    return ends and (ends[0] - ends[1], ends[1] - ends[0])


def figure(value: float, interval: Interval, ends: Interval | None = None) -> Figure:
    """A figure as far as it is known, within the ends that it cannot leave: what lies beyond covers nothing."""
    if not math.isfinite(value):
        return Figure(None, None)
    low, high = ends or (-math.inf, math.inf)
    known = (max(interval[0], low), min(interval[1], high)) if math.isfinite(interval[0]) else None
    return Figure(min(max(value, low), high), known)
