"""What people would say of rows, and of their differences, of labels of some cases and a judge's scores of all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wtb.analysis.judges.bias import UNKNOWN, Figure, ends_of_differences, figure
from wtb.analysis.statistics import Floats, Interval
from wtb.analysis.statistics.raters.prediction_powered import labelled_mean
from wtb.core.classes.frozen import frozen


@frozen
class LabelledRow:
    """What people would say of a row, of the labels of some of its cases and the judge's scores of all.

    Attributes:
        combination: The variant of each varied node.
        labels: How many of its cases have a label.
        cases: How many have a score of the judge.
        judge: The mean of these scores, as a matrix has it.
        people: The mean label over all cases, estimated (PPI++).
        difference: How much more people would say of it than of the row that others are compared with, of the cases of
            which both have labels; None of that row itself.
        weight: How far the judge is believed for it, from 0 to 1.
        has_few_labels: Whether there are too few for its intervals to hold what they promise.
        why_not: Why there is no interval, where the labelled cases were not drawn at random.
        needed: About how many labels the margin takes that was asked for; None where none was, or nobody can tell.
    """

    combination: dict[str, str]
    labels: int
    cases: int
    judge: float | None
    people: Figure
    difference: Figure | None
    weight: float
    has_few_labels: bool
    needed: int | None = None
    why_not: str | None = None


@frozen
class Counting:
    """How labels count.

    Attributes:
        ends: Of the scale of labels, where there is one.
        weights: What each case counts; None where all count alike.
        has_clusters: Whether cases are of clusters. They resemble each other then: an interval that takes them for
            independent would be too short, and there is none.
        margin: Half the width of the interval that is wanted of each row.
    """

    ends: Interval | None
    weights: Mapping[int, float] | None
    has_clusters: bool
    margin: float | None


def labelled_rows(
    choices: Sequence[dict[str, str]],
    scores: Floats,
    labels: Iterable[tuple[int, int, float]],
    base: int | None,
    counting: Counting,
) -> list[LabelledRow]:
    """The rows that have labels. Repeats and raters are averaged within the case first.

    Args:
        choices: The combinations, by number.
        scores: n x 4: combination, case, repeat and score of the judge.
        labels: Combination, case and label.
        base: The row that others are compared with; the first one where it has no labels.
        counting: How labels count.
    """
    judge, people = _means(zip(*scores[:, [0, 1, 3]].T.tolist(), strict=True)), _means(labels)
    cases = sorted({case for _, case in judge} | {case for _, case in people})
    numbers = sorted({number for number, _ in people})
    weight = weights_of(counting.weights, cases)

    def over_cases(means: Mapping[tuple[int, int], float], number: int) -> Floats:
        return np.array([means.get((number, case), math.nan) for case in cases])

    rated, judged = ({number: over_cases(means, number) for number in numbers} for means in (people, judge))
    against = base if base in numbers else numbers[0]
    of_base = labelled_mean(rated[against], judged[against], weight)
    rows = []
    for number in numbers:
        mean_label = labelled_mean(rated[number], judged[number], weight)
        row_scores = judged[number][np.isfinite(judged[number])]
        interval = UNKNOWN if counting.has_clusters else mean_label.interval
        difference, has_few, why_not = None, mean_label.has_few_labels, mean_label.why_not
        if number != against:
            more = labelled_mean(rated[number] - rated[against], judged[number] - judged[against], weight)
            has_few = has_few or more.has_few_labels
            why_not = why_not or of_base.why_not or more.why_not
            apart = UNKNOWN if counting.has_clusters or why_not else more.interval
            difference = figure(more.mean, apart, ends_of_differences(counting.ends))
        rows.append(
            LabelledRow(
                choices[number],
                mean_label.labels,
                len(row_scores),
                float(row_scores.mean()) if len(row_scores) else None,
                figure(mean_label.mean, interval, counting.ends),
                difference,
                mean_label.weight,
                has_few,
                _needed(mean_label.labels, interval, counting.margin),
                why_not,
            )
        )
    return rows


def weights_of(weights: Mapping[int, float] | None, cases: Sequence[int]) -> Floats | None:
    """What cases count; of one without a label nobody asks it."""
    return None if weights is None else np.array([weights.get(case, 1.0) for case in cases])


def _means(values: Iterable[tuple[float, float, float]]) -> dict[tuple[int, int], float]:
    """The mean by combination and case."""
    grouped: dict[tuple[int, int], list[float]] = defaultdict(list)
    for number, case, value in values:
        grouped[int(number), int(case)].append(value)
    return {key: float(np.mean(each)) for key, each in grouped.items()}


def _needed(labels: int, interval: Interval, margin: float | None) -> int | None:
    """Labels for an interval of mean +- margin: its width falls as their root grows; more cases narrow it, too."""
    half = (interval[1] - interval[0]) / 2
    return None if margin is None or not math.isfinite(half) else math.ceil(labels * (half / margin) ** 2)
