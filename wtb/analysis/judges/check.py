"""A judge held against people: how far its scores agree with their labels, and what both together say of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.scores import Scores, stacked
from wtb.analysis.statistics import Floats, Interval
from wtb.analysis.statistics.intervals import ROUNDING, intervals, t_quantile
from wtb.analysis.statistics.raters.agreement import Agreement, Scale, cohens_kappa, krippendorffs_alpha
from wtb.analysis.statistics.raters.prediction_powered import labelled_mean
from wtb.core.errors import InputError
from wtb.store.database import Database
from wtb.store.read import aggregates, outcomes
from wtb.store.rows.sweeps import SweepRow

Asked = Literal["random", "disagreement"]
_MOST_LEVELS = 10  # of the calibration curve
_LEAST_CASES = 3  # for a slope


@dataclass(frozen=True)
class LabelledCell:
    """A cell by the variant of each varied node, and its repeat."""

    combination: Mapping[str, str]
    repeat: int


@dataclass(frozen=True)
class LabelItem:
    """An answer to label.

    Attributes:
        id: Of the answer, among those of its case.
        case: The id of the case.
        input: Its input, as text.
        answer: What is labelled, as text.
        cells: Those that gave this answer: a label is of each of them. A server does not say them.
    """

    id: str
    case: str
    input: str
    answer: str
    cells: tuple[LabelledCell, ...] = ()


@dataclass(frozen=True)
class LabelQueue:
    """What a rater has to label.

    Attributes:
        sweep: The id of the sweep.
        rater: Who labels.
        metric: The scores that labels are held against.
        ends: The scale of labels, where there is one.
        criteria: What is judged, in the words of the judge; empty where there are none.
        rubric: Level -> its description; empty where there is none.
        asked: Why: `random`, or `disagreement` of other raters.
        probability: The chance that each case had to be among those that are labelled; None where none was drawn.
        items: In the order in which they are asked.
        done: How many answers the rater has labelled already.
    """

    sweep: str
    rater: str
    metric: str
    ends: tuple[float, float] | None
    criteria: str
    rubric: Mapping[str, str]
    asked: Asked
    probability: float | None
    items: tuple[LabelItem, ...]
    done: int


@dataclass(frozen=True)
class Label:
    """What a person said of a cell: its combination and case by number, and its repeat.

    drawn: Whether its case was drawn at random; not where it was asked for since other raters disagree.
    probability: That it was drawn with, where somebody wrote it down.
    """

    combination: int
    case: int
    repeat: int
    rater: str
    value: float
    drawn: bool = True
    probability: float | None = None


@dataclass(frozen=True)
class Figure:
    """A figure and its interval of 95%; None where it is not known."""

    value: float | None
    interval: Interval | None


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class LabelledRow:
    """What people would say of a row, of the labels of some of its cases and the judge's scores of all.

    Attributes:
        combination: The variant of each varied node.
        labels: How many of its cases have a label.
        cases: How many have a score of the judge.
        judge: The mean of these scores, as a matrix has it.
        people: The mean label over all cases, estimated (PPI++).
        weight: How far the judge is believed for it, from 0 to 1.
        has_few_labels: Whether there are too few for the interval to hold what it promises.
        needed: About how many labels the margin takes that was asked for; None where none was, or nobody can tell.
    """

    combination: dict[str, str]
    labels: int
    cases: int
    judge: float | None
    people: Figure
    weight: float
    has_few_labels: bool
    needed: int | None = None


@dataclass(frozen=True)
class JudgeCheck:
    """A judge held against labels.

    Attributes:
        sweep: The id of the sweep.
        metric: The judge's scores.
        labels: How many labels are of cells that it scored.
        unjudged: How many are of cells without a score of it.
        not_drawn: How many were asked for since raters disagree, and count for nothing here: such cells are harder.
        raters: Who gave labels.
        kappa: Cohen's kappa between the judge and the labels.
        alpha: Krippendorff's alpha among the raters; no value where no cell has two labels.
        bias: The mean of the judge's score less the label, by case.
        by_length: How much more than the label the score is where an answer is twice as long.
        levels: What people say where it gives which score, from the lowest on.
        rows: Of the combinations that have labels.
    """

    sweep: str
    metric: str
    labels: int
    unjudged: int
    not_drawn: int
    raters: tuple[str, ...]
    kappa: Figure
    alpha: Figure
    bias: Figure
    by_length: Figure
    levels: tuple[JudgedLevel, ...]
    rows: tuple[LabelledRow, ...]


def check(
    database: Database,
    sweep: SweepRow,
    read: Scores,
    metric: str,
    labels: Sequence[Label],
    scale: Scale,
    *,
    margin: float | None = None,
    lengths: Mapping[tuple[int, int, int], int] | None = None,
) -> JudgeCheck:
    """Hold the scores of a metric against labels. Cells that failed, or were edited, have neither.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        read: Its scores.
        metric: One by which it is scored.
        labels: Of its cells.
        scale: What labels are.
        margin: Half the width of the interval that is wanted of each row.
        lengths: Of answers in characters, by combination, case and repeat.

    Raises:
        InputError: No label is of a cell that has a score.
    """
    given, labels = len(labels), [one for one in labels if one.drawn]
    scores = stacked(aggregates.scores_by_repeat(database, sweep.id, metric), 4)
    by_cell = {(int(row), int(case), int(repeat)): score for row, case, repeat, score in scores.tolist()}
    judged = [one for one in labels if (one.combination, one.case, one.repeat) in by_cell]
    if not judged:
        raise InputError(
            f"no label is of a cell that has a score of {metric!r}; expected labels of cells that have one"
        )
    judge = np.array([by_cell[one.combination, one.case, one.repeat] for one in judged])
    people = np.array([one.value for one in judged])
    cases = np.array([one.case for one in judged], dtype=np.int64)
    clustered = outcomes.clusters(database, sweep.id)
    ends = read.measures[metric].scale
    return JudgeCheck(
        sweep.id,
        metric,
        len(judged),
        len(labels) - len(judged),
        given - len(labels),
        tuple(sorted({one.rater for one in labels})),
        _agreed(cohens_kappa(judge, people, scale, cases)),
        _agreed(_among_raters(labels, scale)),
        _by_case(judge - people, cases, ends and (ends[0] - ends[1], ends[1] - ends[0])),
        _by_length(
            judge - people, cases, [(lengths or {}).get((one.combination, one.case, one.repeat)) for one in judged]
        ),
        _levels(judge, people, cases, ends),
        tuple(
            _row(
                read.choices[number],
                scores[scores[:, 0] == number],
                [one for one in labels if one.combination == number],
                ends,
                has_clusters=bool(clustered),
                margin=margin,
            )
            for number in sorted({one.combination for one in judged})
        ),
    )


def _among_raters(labels: Sequence[Label], scale: Scale) -> Agreement:
    cells = {
        place: n for n, place in enumerate(dict.fromkeys((one.combination, one.case, one.repeat) for one in labels))
    }
    raters = {rater: n for n, rater in enumerate(sorted({one.rater for one in labels}))}
    ratings = np.full((len(raters), len(cells)), np.nan)
    for one in labels:
        ratings[raters[one.rater], cells[one.combination, one.case, one.repeat]] = one.value
    return krippendorffs_alpha(ratings, scale, np.array([case for _, case, _ in cells], dtype=np.int64))


def _by_case(values: Floats, cases: NDArray[np.int64], ends: Interval | None) -> Figure:
    """The mean of values that are averaged within the case first."""
    means = np.array([values[cases == case].mean() for case in np.unique(cases)])
    low, high = intervals(means[None, :])[0].tolist()
    return _figure(float(means.mean()), (low, high), ends)


def _by_length(values: Floats, cases: NDArray[np.int64], lengths: Sequence[int | None]) -> Figure:
    """The slope of values by the logarithm of lengths to base 2, with the error of leaving out a case at a time."""
    known = np.array([length is not None for length in lengths])
    values, cases = values[known], cases[known]
    x = np.log2([max(length, 1) for length in lengths if length is not None])
    units = np.unique(cases)
    if len(units) < _LEAST_CASES:
        return Figure(None, None)

    def slope(chosen: NDArray[np.bool_]) -> float:
        apart = x[chosen] - x[chosen].mean()
        spread = float(apart @ apart)
        return float(apart @ values[chosen]) / spread if spread > ROUNDING else math.nan

    without = np.array([slope(cases != one) for one in units])
    if not np.isfinite(without).all():  # all are as long as each other
        return Figure(None, None)
    n, value = len(units), slope(cases == cases)
    half = t_quantile(n - 1) * math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return _figure(value, (value - half, value + half))


def _levels(judge: Floats, people: Floats, cases: NDArray[np.int64], ends: Interval | None) -> tuple[JudgedLevel, ...]:
    """By each score, or by as many groups of scores where a judge that is asked several times gives more."""
    found = np.unique(judge)
    groups = found[:, None] if len(found) <= _MOST_LEVELS else np.array_split(found, _MOST_LEVELS)
    chosen = [np.isin(judge, group) for group in groups]
    return tuple(
        JudgedLevel(float(judge[one].mean()), int(one.sum()), _by_case(people[one], cases[one], ends)) for one in chosen
    )


def _row(
    combination: dict[str, str],
    scores: Floats,
    labels: Sequence[Label],
    ends: Interval | None,
    *,
    has_clusters: bool,
    margin: float | None,
) -> LabelledRow:
    """One row, over its cases: repeats and raters are averaged within the case first."""
    cases = sorted({int(case) for case in scores[:, 1]} | {one.case for one in labels})
    judge, people = np.full(len(cases), np.nan), np.full(len(cases), np.nan)
    for place, case in enumerate(cases):
        found = scores[scores[:, 1] == case, 3]
        said = [one.value for one in labels if one.case == case]
        judge[place] = found.mean() if len(found) else math.nan
        people[place] = float(np.mean(said)) if said else math.nan
    found = labelled_mean(people, judge)
    known = judge[np.isfinite(judge)]
    # Cases of one cluster resemble each other: an interval that takes them for independent would be too short.
    interval = (math.nan, math.nan) if has_clusters else found.interval
    return LabelledRow(
        combination,
        found.labels,
        len(known),
        float(known.mean()) if len(known) else None,
        _figure(found.mean, interval, ends),
        found.weight,
        found.has_few_labels,
        _needed(found.labels, interval, margin),
    )


def _needed(labels: int, interval: Interval, margin: float | None) -> int | None:
    """Labels for an interval of mean +- margin: its width falls as their root grows; more cases narrow it, too."""
    half = (interval[1] - interval[0]) / 2
    return None if margin is None or not math.isfinite(half) else math.ceil(labels * (half / margin) ** 2)


def _agreed(found: Agreement) -> Figure:
    return _figure(found.value, found.interval)


def _figure(value: float, interval: Interval, ends: Interval | None = None) -> Figure:
    """A figure as far as it is known, within the ends that it cannot leave: what lies beyond covers nothing."""
    if not math.isfinite(value):
        return Figure(None, None)
    low, high = ends or (-math.inf, math.inf)
    known = (max(interval[0], low), min(interval[1], high)) if math.isfinite(interval[0]) else None
    return Figure(min(max(value, low), high), known)
