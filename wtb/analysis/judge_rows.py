"""Mean labels of rows, and of their differences, from labels of some cases and a judge's scores of all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from wtb.analysis.judge_agreement import UNKNOWN
from wtb.analysis.judge_bias import Figure, ends_of_differences, figure
from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, t_quantile
from wtb.core.frozen import frozen

FAR = 3.0  # standard errors; nearer than that cases are taken as drawn, and no draws are made
CHANCE = 0.001  # how often labels of cases drawn at random are refused at most
_DRAWS = 4_999
_FAR_WEIGHTED = 4.0  # standard errors, of a limit that few labels are far from
_CHUNK = 1 << 20  # numbers drawn at once


def labels_differ(labelled: Floats, unlabelled: Floats) -> bool:
    """Return whether a judge's scores of labelled cases differ from those of other cases by more than chance.

    Args:
        labelled: Scores of cases that have a label.
        unlabelled: Scores of cases that have none.
    """
    n, rest = len(labelled), len(unlabelled)
    if n < 2 or rest < 2:
        return False
    scores = np.concatenate([labelled, unlabelled])
    spread = float(scores.std(ddof=1))
    if spread <= ROUNDING * max(1.0, float(np.abs(scores).max())):
        return False
    apart = float(labelled.mean() - unlabelled.mean()) / (spread * math.sqrt(1 / n + 1 / rest))
    return abs(apart) >= FAR and _p_of_draws(scores, n) < CHANCE


def _p_of_draws(scores: Floats, n: int) -> float:
    """Return how often the sum of a random sample is as far from its expectation as that of the first `n` scores."""
    centred = scores - scores.mean()
    # The smaller part is drawn: its sum deviates from its expectation exactly as much as that of the rest.
    few = min(n, len(scores) - n)  # the sum of the others is as far
    observed = abs(float(centred[:n].sum())) * (1 - ROUNDING)
    # A fixed seed of the sizes: the same labels give the same answer each time.
    rng = np.random.default_rng([5, n, len(scores)])
    hits, step = 1, max(1, _CHUNK // len(scores))
    for start in range(0, _DRAWS, step):
        keys = rng.random((min(step, _DRAWS - start), len(scores)))
        drawn = np.argpartition(keys, few - 1, axis=1)[:, :few]
        hits += int((np.abs(centred[drawn].sum(axis=1)) >= observed).sum())
    return hits / (_DRAWS + 1)


def chances_differ(labelled: Floats, weights: Floats, all_scores: Floats) -> bool:
    """Return whether the scores of labelled cases differ from those of all by more than their probabilities explain.

    Args:
        labelled: Scores of cases that have a label.
        weights: Of these, one over the chance of each, on any scale.
        all_scores: Scores of all cases.
    """
    n = len(labelled)
    if n < 2 or len(all_scores) < 2:
        return False
    share = weights / weights.sum()
    mean = float(share @ labelled)
    variance = n / (n - 1) * float(share**2 @ (labelled - mean) ** 2)
    spread = float(all_scores.std())
    if spread <= ROUNDING * max(1.0, float(np.abs(all_scores).max())):
        return False
    error = math.sqrt(max(variance, float(share @ share) * spread**2))
    return abs(mean - float(all_scores.mean())) > _FAR_WEIGHTED * error


def sentence(labelled: float, rest: float) -> str:
    """Return the reason why labels cannot represent all cases, with the remedy.

    Args:
        labelled: The mean of the judge's scores of labelled cases.
        rest: That of its scores of the other cases.
    """
    return (
        f"the judge scores the labelled cases {labelled:.3g} and the others {rest:.3g}, so they were not drawn at "
        "random: label the cases that `wtb label draw` shows, or give the `probability` of each"
    )


FEWEST_LABELS = 100  # with fewer the interval may cover less often than its level: see `make simulate`


@frozen
class LabelledMean:
    """An estimated mean label.

    Attributes:
        mean: The estimate; NaN without a label.
        interval: The 95% interval; NaN for fewer than two labels, or if they do not vary.
        weight: The weight of the judge, from 0 to 1; 0 means that only labels were used.
        labels: How many cases have a label.
        judged: How many cases have a judgement and no label.
        counts_as: The effective number of labels: how many equally likely ones would be as informative (Kish 1965).
        why_not: The reason why labels cannot represent all cases, so that there is no interval; None if they can.
    """

    mean: float
    interval: Interval
    weight: float
    labels: int
    judged: int
    counts_as: float
    why_not: str | None = None

    @property
    def has_few_labels(self) -> bool:
        """True if there are too few labels for the interval's coverage."""
        # The sum of weights is rounded: exactly 100 equal labels must not count as fewer.
        return self.counts_as < FEWEST_LABELS - ROUNDING


def labelled_mean(labels: Floats, judgements: Floats, weights: Floats | None = None) -> LabelledMean:
    """Estimate the mean label over all cases.

    Args:
        labels: By case, on any scale; NaN without a label.
        judgements: By case; NaN without a judgement. A labelled case without one counts as the mean of the others: any
            rule is valid that does not depend on the label.
        weights: By case, the inverse of its selection probability, on any scale; None if all are equal.

    Returns:
        The mean with its interval.
    """
    labelled, judged = np.isfinite(labels), np.isfinite(judgements)
    n, rest = int(labelled.sum()), judged & ~labelled
    if not n:
        return LabelledMean(math.nan, UNKNOWN, 0.0, 0, int(rest.sum()), 0.0)
    truth, unlabelled = labels[labelled], judgements[rest]
    fill = float(judgements[judged].mean()) if judged.any() else 0.0
    beside = np.where(judged, judgements, fill)[labelled]
    if weights is not None:
        estimate = _of_unequal_chances(truth, beside, judgements[judged], weights[labelled], len(unlabelled))
        both = labelled & judged
        differ = chances_differ(judgements[both], weights[both], judgements[judged])
        return _refused(estimate, judgements[both], unlabelled) if differ and len(unlabelled) else estimate
    weight = _weight(truth, beside, unlabelled)
    added = float(unlabelled.mean()) if weight else 0.0
    mean = float((truth - weight * beside).mean()) + weight * added
    interval = _interval(mean, truth - weight * beside, weight * unlabelled)
    estimate = LabelledMean(mean, interval, weight, n, len(unlabelled), float(n))
    judged_labelled = judgements[labelled & judged]
    return _refused(estimate, judged_labelled, unlabelled) if labels_differ(judged_labelled, unlabelled) else estimate


def _refused(estimate: LabelledMean, labelled: Floats, unlabelled: Floats) -> LabelledMean:
    """Return the estimate without an interval, because the labelled cases were not drawn at random."""
    why = sentence(float(labelled.mean()), float(unlabelled.mean()))
    return replace(estimate, interval=UNKNOWN, why_not=why)


def _of_unequal_chances(truth: Floats, beside: Floats, judgements: Floats, weights: Floats, rest: int) -> LabelledMean:
    """Return the same for unequal selection probabilities: the judgements of all cases represent all.

    Args:
        truth: The labels of labelled cases.
        beside: The judgements of the same cases.
        judgements: The judgements of all cases.
        weights: The weights of the labelled cases.
        rest: How many judged cases have no label.
    """
    n, share = len(truth), weights / weights.sum()
    counts_as = 1 / float(share @ share)
    spread = float(judgements.var(ddof=1)) if len(judgements) > 1 else 0.0
    apart = truth - share @ truth, beside - share @ beside
    together = float(share @ (apart[0] * apart[1])) * counts_as / max(counts_as - 1, 1.0)
    weight = min(max(together / spread, 0.0), 1.0) if spread > ROUNDING and counts_as >= 2 else 0.0
    errors = truth - weight * beside
    mean = float(share @ errors) + (weight * float(judgements.mean()) if weight else 0.0)
    variance = n / max(n - 1, 1) * float(share**2 @ (errors - share @ errors) ** 2)
    if weight:  # the cases themselves are a sample
        variance += (2 * weight * together - weight**2 * spread) / len(judgements)
    if counts_as < 2 or variance <= ROUNDING**2:
        return LabelledMean(mean, (math.nan, math.nan), weight, n, rest, counts_as)
    half = t_quantile(int(counts_as) - 1) * math.sqrt(variance)
    return LabelledMean(mean, (mean - half, mean + half), weight, n, rest, counts_as)


def _weight(truth: Floats, beside: Floats, unlabelled: Floats) -> float:
    """Return the weight of the judge that makes the interval shortest, estimated from the labels (equation 6 of the
    paper).
    """
    n, rest = len(truth), len(unlabelled)
    if n < 2 or rest < 2:
        return 0.0
    spread = float(np.concatenate([beside, unlabelled]).var(ddof=1))
    if spread <= ROUNDING:
        return 0.0
    together = float(((truth - truth.mean()) * (beside - beside.mean())).sum()) / (n - 1)
    # Outside of 0 to 1 the estimate is noise: a negative weight would use the judge upside down.
    return min(max(together / ((1 + n / rest) * spread), 0.0), 1.0)


def _interval(mean: float, errors: Floats, added: Floats) -> Interval:
    n = len(errors)
    if n < 2:
        return UNKNOWN
    variance = float(errors.var(ddof=1)) / n
    if len(added) >= 2:
        variance += float(added.var(ddof=1)) / len(added)
    if variance <= ROUNDING**2:
        return UNKNOWN
    half = t_quantile(n - 1) * math.sqrt(variance)
    return mean - half, mean + half


@frozen
class LabelledRow:
    """A row with its mean label, estimated from labels of some of its cases and the judge's scores of all.

    Attributes:
        combination: The variant of each varied node.
        labels: How many of its cases have a label.
        cases: How many have a score of the judge.
        judge: The mean of these scores, as in the matrix.
        people: The mean label over all cases, estimated (PPI++).
        difference: The mean label minus that of the base row, from cases where both have labels; None for the base row.
        weight: The weight of the judge, from 0 to 1.
        has_few_labels: True if there are too few for the coverage of its intervals.
        needed: The approximate number of labels for the requested margin; None without one, or if it is unknown.
        why_not: The reason why there is no interval, if the labelled cases were not drawn at random.
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
    """The rules by which labels count.

    Attributes:
        ends: The scale of labels, if there is one.
        weights: The weight of each case; None if all are equal.
        has_clusters: True if cases have clusters. Such cases resemble each other, so an interval for independent cases
            would be too short, and there is none.
        margin: Half the width of the desired interval for each row.
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
    """Return the rows that have labels. Repeats and raters are averaged within each case first.

    Args:
        choices: The combinations, by number.
        scores: n x 4: combination, case, repeat and score of the judge.
        labels: Combination, case and label.
        base: The row that others are compared with; the first labelled row if it has no labels.
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
            # The difference is estimated by case, which is narrower than a difference of two estimates: cases are
            # shared.
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
    """Return the weights of cases; the weight of a case without a label is not used."""
    return None if weights is None else np.array([weights.get(case, 1.0) for case in cases])


def _means(values: Iterable[tuple[float, float, float]]) -> dict[tuple[int, int], float]:
    """Return the mean by combination and case."""
    grouped: dict[tuple[int, int], list[float]] = defaultdict(list)
    for number, case, score in values:
        grouped[int(number), int(case)].append(score)
    return {key: float(np.mean(each)) for key, each in grouped.items()}


def _needed(labels: int, interval: Interval, margin: float | None) -> int | None:
    """Return how many labels make an interval of mean +- margin: its width shrinks with their square root."""
    half = (interval[1] - interval[0]) / 2
    return None if margin is None or not math.isfinite(half) else math.ceil(labels * (half / margin) ** 2)
