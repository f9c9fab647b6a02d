"""Whether the cases that people labelled can have been drawn at random, by what a judge says of all cases.

Somebody who looks at what a judge calls bad labels the cases in which the judge is likeliest to be wrong one way. The
judge's scores show it: those of labelled cases differ from those of the others.
"""

from __future__ import annotations

import math

import numpy as np

from wtb.analysis.statistics.intervals import ROUNDING, Floats

FAR = 3.0  # standard errors; nearer than that cases are taken as drawn, and no draws are made
CHANCE = 0.001  # how often labels of cases drawn at random are refused at most
_DRAWS = 4_999
_FAR_WEIGHTED = 4.0  # standard errors, of a limit that few labels are far from
_CHUNK = 1 << 20  # numbers drawn at once


def differ(labelled: Floats, others: Floats) -> bool:
    """Return whether a judge's scores of labelled cases differ from those of other cases by more than chance.

    Args:
        labelled: Scores of cases that have a label.
        others: Scores of cases that have none.
    """
    n, rest = len(labelled), len(others)
    if n < 2 or rest < 2:
        return False
    scores = np.concatenate([labelled, others])
    spread = float(scores.std(ddof=1))
    if spread <= ROUNDING * max(1.0, float(np.abs(scores).max())):
        return False
    apart = float(labelled.mean() - others.mean()) / (spread * math.sqrt(1 / n + 1 / rest))
    if abs(apart) < FAR:
        return False
    return _p_of_draws(scores, n) < CHANCE


def _p_of_draws(scores: Floats, n: int) -> float:
    """How often as many cases drawn at random have a sum as far from its mean as that of the first ones."""
    centred = scores - scores.mean()
    few = min(n, len(scores) - n)  # the sum of the others is as far
    observed = abs(float(centred[:n].sum())) * (1 - ROUNDING)
    rng = np.random.default_rng([5, n, len(scores)])
    hits = 1
    step = max(1, _CHUNK // len(scores))
    for start in range(0, _DRAWS, step):
        keys = rng.random((min(step, _DRAWS - start), len(scores)))
        drawn = np.argpartition(keys, few - 1, axis=1)[:, :few]
        hits += int((np.abs(centred[drawn].sum(axis=1)) >= observed).sum())
    return hits / (_DRAWS + 1)


def chances_differ(labelled: Floats, weights: Floats, all_scores: Floats) -> bool:
    """Return whether a judge's scores of labelled cases differ from those of all by more than their chances explain.

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


def sentence(labelled: float, others: float) -> str:
    """Return why labels say nothing of all cases, and what to do.

    Args:
        labelled: The mean of the judge's scores of labelled cases.
        others: That of its scores of the other cases.
    """
    return (
        f"the judge scores the labelled cases {labelled:.3g} and the others {others:.3g}, so they were not drawn at "
        "random: label the cases that `wtb label draw` shows, or give the `probability` of each"
    )
