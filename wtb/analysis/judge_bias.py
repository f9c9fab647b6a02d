"""Bias of a judge's scores compared with labels of the same cells, and what increases it.

Figures are means by case, since labels of one case resemble each other, with 95% intervals: those of means, or of the
jackknife over cases. If cases were drawn with unequal probabilities, each is weighted by the inverse of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.judge_agreement import UNKNOWN, jackknife_error
from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, intervals, t_quantile
from wtb.core.frozen import frozen

_MOST_LEVELS = 10  # of labels or scores; more are put into as many groups
_LEAST_CASES = 3  # for an interval by leaving out cases
# Models whose names begin otherwise than that of their family.
_SAME = {"chatgpt": "gpt", "o": "gpt", "mixtral": "mistral", "ministral": "mistral", "magistral": "mistral"}


@frozen
class Figure:
    """A figure and its 95% interval; None if unknown.

    Attributes:
        value: The figure.
        interval: Its interval.
        because: The reason why there is no interval.
    """

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
        weights: Case number -> weight; None if all are equal.
    """

    judge: Floats
    people: Floats
    cases: NDArray[np.int64]
    weights: Mapping[int, float] | None = None

    @property
    def weight(self) -> Floats:
        """Weights of the labels."""
        weights = self.weights
        return np.array([1.0 if weights is None else weights[case] for case in self.cases.tolist()])


@frozen
class JudgedLevel:
    """The labels for one score of the judge, or for scores close to each other: a point of its calibration curve.

    Attributes:
        judge: The mean of these scores.
        labels: How many cells with such scores are labelled.
        people: The mean of these labels, by case.
    """

    judge: float
    labels: int
    people: Figure


@frozen
class LevelUse:
    """The share of a level among the scores of a judge and among labels.

    Attributes:
        level: The level; a score between levels counts as the nearest one.
        judge: The share of the judge's scores at this level.
        people: The share of labels at this level.
        more: The first share minus the second.
    """

    level: float
    judge: float
    people: float
    more: Figure


@frozen
class OwnFamily:
    """The bias of a judge towards models of its own family: scores of their answers compared at equal labels.

    Attributes:
        families: The families of the judge; empty if rows were named explicitly.
        labels: How many labels are of such answers.
        more: The mean score of these minus that of others with the same label.
    """

    families: tuple[str, ...]
    labels: int
    more: Figure


def family_of(model: str) -> str:
    """Return the family of a model: `gpt` for `openai/gpt-4o-mini`, `claude` for `us.anthropic.claude-3-5`."""
    name = model.lower()
    # Fine-tuned models are named `ft:BASE:...`; others put provider and region before the name.
    name = name.split(":")[1] if name.startswith("ft:") else re.sub(r"^.*[./:](?=[a-z])", "", name)
    first = re.match("[a-z]+", name)
    return name if first is None else _SAME.get(first[0], first[0])


def by_case(values: Floats, labelled: Held, selected: NDArray[np.bool_] | None, ends: Interval | None) -> Figure:
    """Return the mean of values, which are averaged within each case first.

    Args:
        values: A value for each label.
        labelled: The labels.
        selected: The labels that count; None for all.
        ends: Bounds of the mean.
    """
    which = np.ones(len(values), dtype=np.bool_) if selected is None else selected
    cases = np.unique(labelled.cases[which])
    means = np.array([values[which & (labelled.cases == case)].mean() for case in cases])
    if labelled.weights is None:
        low, high = intervals(means[None, :])[0].tolist()
        return figure(float(means.mean()), (low, high), ends)
    weight = np.array([labelled.weights[case] for case in cases.tolist()])
    weight /= weight.sum()
    mean, freedom = float(weight @ means), 1 / float(weight @ weight) - 1
    spread = math.sqrt(len(cases) / max(len(cases) - 1, 1) * float((weight**2) @ ((means - mean) ** 2)))
    if freedom < 1 or spread <= ROUNDING:
        return figure(mean, UNKNOWN, ends)
    half = t_quantile(int(freedom)) * spread
    return figure(mean, (mean - half, mean + half), ends)


def by_length(labelled: Held, lengths: Sequence[int | None]) -> Figure:
    """Return by how much score minus label changes if an answer is twice as long. `lengths` are in characters."""
    has_length = np.array([length is not None for length in lengths])
    values, weight, cases = (
        (labelled.judge - labelled.people)[has_length],
        labelled.weight[has_length],
        labelled.cases[has_length],
    )
    x = np.log2([max(length, 1) for length in lengths if length is not None])

    def slope(selected: NDArray[np.bool_]) -> float:
        w = weight[selected]
        apart = x[selected] - np.average(x[selected], weights=w)
        spread = float(w @ apart**2)  # 0 where all are as long as each other
        return float((w * apart) @ values[selected]) / spread if spread > ROUNDING else math.nan

    return _left_out(slope, cases)


def own_family(labelled: Held, own: NDArray[np.bool_]) -> Figure:
    """Return how much higher the judge scores its own answers at equal labels. `own` selects the labels of its answers.

    Answers with equal labels are compared with each other, because rows of the judge's own family may well be better,
    and a judge that is often wrong scores good answers too low.
    """
    groups = _grouped(labelled.people)
    values, weight = labelled.judge - labelled.people, labelled.weight

    def more(selected: NDArray[np.bool_]) -> float:
        total = sizes = 0.0
        for group in groups:
            mine, rest = group & own & selected, group & ~own & selected
            if mine.any() and rest.any():
                first, second = float(weight[mine].sum()), float(weight[rest].sum())
                # The harmonic weight gives each group its least variable share, as in a fit with one effect per group.
                size = first * second / (first + second)
                apart = np.average(values[mine], weights=weight[mine])
                apart -= np.average(values[rest], weights=weight[rest])
                total, sizes = total + size * float(apart), sizes + size
        return total / sizes if sizes else math.nan

    return _left_out(more, labelled.cases)


def levels(labelled: Held, ends: Interval | None) -> tuple[JudgedLevel, ...]:
    """Return the calibration by score, or by groups of scores if repeated judgements give many of them."""
    judge, people, groups = labelled.judge, labelled.people, _grouped(labelled.judge)
    return tuple(
        JudgedLevel(float(judge[group].mean()), int(group.sum()), by_case(people, labelled, group, ends))
        for group in groups
    )


def uses(labelled: Held, rubric: Sequence[float]) -> tuple[LevelUse, ...]:
    """Return how often each level is used. `rubric` has the declared levels, if known."""
    label_levels = np.unique([*labelled.people.tolist(), *rubric])
    both = np.unique([*label_levels.tolist(), *labelled.judge.tolist()])
    listed_levels = both if len(both) <= _MOST_LEVELS else label_levels
    if not 2 <= len(listed_levels) <= _MOST_LEVELS:
        return ()
    nearest = listed_levels[np.abs(labelled.judge[:, None] - listed_levels).argmin(axis=1)]
    level_uses = []
    for level in listed_levels:
        judge, people = (nearest == level).astype(np.float64), (labelled.people == level).astype(np.float64)
        of_judge, of_people = (
            by_case(is_at_level, labelled, None, (0.0, 1.0)).value or 0.0 for is_at_level in (judge, people)
        )
        more = by_case(judge - people, labelled, None, (-1.0, 1.0))
        level_uses.append(LevelUse(float(level), of_judge, of_people, more))
    return tuple(level_uses)


def _grouped(values: Floats) -> list[NDArray[np.bool_]]:
    """Return masks of equal values, or of close ones if there are many, in ascending order."""
    distinct = np.unique(values)
    groups = distinct[:, None] if len(distinct) <= _MOST_LEVELS else np.array_split(distinct, _MOST_LEVELS)
    return [np.isin(values, group) for group in groups]


def _left_out(estimate: Callable[[NDArray[np.bool_]], float], cases: NDArray[np.int64]) -> Figure:
    """Return an estimate from all labels with its jackknife error over cases; unknown if too few cases are left."""
    units = np.unique(cases)
    if len(units) < _LEAST_CASES:
        return Figure(None, None)
    without = np.array([estimate(cases != unit) for unit in units])
    if not np.isfinite(without).all():
        return Figure(None, None)
    bias, half = estimate(cases == cases), t_quantile(len(units) - 1) * jackknife_error(without)
    return figure(bias, (bias - half, bias + half) if half > ROUNDING else UNKNOWN)


def ends_of_differences(ends: Interval | None) -> Interval | None:
    """Return the bounds of differences between two figures, if the figures have bounds."""
    return ends and (ends[0] - ends[1], ends[1] - ends[0])


def figure(number: float, interval: Interval, ends: Interval | None = None) -> Figure:
    """Return a figure with its interval clipped to the bounds, beyond which there is nothing to cover."""
    if not math.isfinite(number):
        return Figure(None, None)
    low, high = ends or (-math.inf, math.inf)
    clipped = (max(interval[0], low), min(interval[1], high)) if math.isfinite(interval[0]) else None
    return Figure(min(max(number, low), high), clipped)
