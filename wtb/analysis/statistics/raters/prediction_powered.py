"""What people would say of all cases, of the labels that they gave to some and the judgements that there are of all.

A judge is cheap and wrong in ways that nobody knows; people are right, and label few. The judgements of all cases are
taken as far as they help, and what they are off by is measured where there are labels (PPI++: Angelopoulos, Duchi &
Zrnic, "PPI++: efficient prediction-powered inference", 2023). However bad the judge is, the interval covers: a judge
that is of no use has no weight, and leaves the interval of the labels alone.

The labels have to be those of cases drawn at random: `drawn` notices where they are not. Where some were likelier to be
drawn than others, each counts by one over its chance (Hajek 1971). For a difference of two rows both arguments are
differences by case.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, t_quantile
from wtb.analysis.statistics.raters import drawn
from wtb.core.classes.frozen import frozen

FEWEST_LABELS = 100  # with fewer the interval may cover less often than it says: see `make simulate`


@frozen
class LabelledMean:
    """The mean of what people would say.

    Attributes:
        mean: The estimate; NaN without a label.
        interval: Of 95%; NaN for fewer than two labels, and where they do not vary.
        weight: How far the judge is believed, from 0 to 1; 0 means that labels alone were used.
        labels: How many cases have a label.
        judged: How many have none, and a judgement.
        counts_as: As many labels of cases drawn alike would say as much (Kish 1965).
        why_not: Why labels say nothing of all cases, so that there is no interval; None where they do.
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
        """Whether there are too few for what the interval promises."""
        return self.counts_as < FEWEST_LABELS - ROUNDING


def labelled_mean(labels: Floats, judgements: Floats, weights: Floats | None = None) -> LabelledMean:
    """Estimate the mean label over all cases.

    Args:
        labels: By case, on any scale; NaN where nobody gave one.
        judgements: By case; NaN where the judge gave none. Where a case has a label, its judgement counts as the mean
            of the others: any rule will do that does not look at the label.
        weights: By case, one over the chance that it had to be labelled, on any scale; None where all had the same.

    Returns:
        The mean with its interval.
    """
    labelled, judged = np.isfinite(labels), np.isfinite(judgements)
    n, rest = int(labelled.sum()), judged & ~labelled
    if not n:
        return LabelledMean(math.nan, (math.nan, math.nan), 0.0, 0, int(rest.sum()), 0.0)
    truth, unlabelled = labels[labelled], judgements[rest]
    fill = float(judgements[judged].mean()) if judged.any() else 0.0
    beside = np.where(judged, judgements, fill)[labelled]
    if weights is not None:
        estimate = _of_unequal_chances(truth, beside, judgements[judged], weights[labelled], len(unlabelled))
        both = labelled & judged
        differ = drawn.chances_differ(judgements[both], weights[both], judgements[judged])
        return _refused(estimate, judgements[both], unlabelled) if differ and len(unlabelled) else estimate
    weight = _weight(truth, beside, unlabelled)
    added = float(unlabelled.mean()) if weight else 0.0
    mean = float((truth - weight * beside).mean()) + weight * added
    interval = _interval(mean, truth - weight * beside, weight * unlabelled)
    estimate = LabelledMean(mean, interval, weight, n, len(unlabelled), float(n))
    judged_labelled = judgements[labelled & judged]
    return _refused(estimate, judged_labelled, unlabelled) if drawn.differ(judged_labelled, unlabelled) else estimate


def _refused(estimate: LabelledMean, labelled: Floats, unlabelled: Floats) -> LabelledMean:
    """Return the same without an interval, since the labelled cases were not drawn at random."""
    why = drawn.sentence(float(labelled.mean()), float(unlabelled.mean()))
    return replace(estimate, interval=(math.nan, math.nan), why_not=why)


def _of_unequal_chances(truth: Floats, beside: Floats, judgements: Floats, weights: Floats, rest: int) -> LabelledMean:
    """The same where cases without a label are no random ones: the judgements of all cases stand for all.

    truth, beside: labels and judgements of the cases that have a label; weights: of these. judgements: of all cases.
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
    """How far to believe the judge: what makes the interval shortest, by the labels (equation 6 of the paper)."""
    n, rest = len(truth), len(unlabelled)
    if n < 2 or rest < 2:
        return 0.0
    spread = float(np.concatenate([beside, unlabelled]).var(ddof=1))
    if spread <= ROUNDING:
        return 0.0
    together = float(((truth - truth.mean()) * (beside - beside.mean())).sum()) / (n - 1)
    return min(max(together / ((1 + n / rest) * spread), 0.0), 1.0)


def _interval(mean: float, errors: Floats, added: Floats) -> Interval:
    n = len(errors)
    if n < 2:
        return math.nan, math.nan
    variance = float(errors.var(ddof=1)) / n
    if len(added) >= 2:
        variance += float(added.var(ddof=1)) / len(added)
    if variance <= ROUNDING**2:
        return math.nan, math.nan
    half = t_quantile(n - 1) * math.sqrt(variance)
    return mean - half, mean + half
