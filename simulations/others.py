"""False claims of differences, by common methods and by WTB.

The others, as their documentation describes them: lm-evaluation-harness gives each row a mean with a standard error,
and people compare these; MLflow 3.18 (`compare_evaluations`) tests paired scores by Wilcoxon's signed-rank test.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import scipy.stats

from simulations.promises import Promise, seed_from
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.running import look

Rng = np.random.Generator
Method = Callable[[Floats, int], bool]  # (rows x cases, the first of which is the baseline; seed) -> is any claimed?
CLAIM = "a difference is claimed that is not there"
WRONG = 0.05
STEP = 10  # cases between two looks
OWN = "WTB"


def promises() -> Iterator[Promise]:
    """Equal rows at the end, the same rows looked at again and again, and equal means whose differences are skewed."""
    for (method, claims), (size, draw) in itertools.product(_METHODS.items(), _AT_END.items()):

        def at_end(
            rng: Rng, runs: int, claims: Method = claims, draw: Callable[[Rng], Floats] = draw
        ) -> tuple[int, int]:
            return sum(claims(draw(rng), seed_from(rng)) for _ in range(runs)), runs

        yield Promise(CLAIM, method, size, at_end, at_most=WRONG if method == OWN else None, runs=200)
    for method, claims in (_METHODS | {OWN: _wtb_before_the_end}).items():

        def repeated_looks(rng: Rng, runs: int, claims: Method = claims) -> tuple[int, int]:
            return sum(_by_any_look(claims, _passes(rng, 20, 200), seed_from(rng)) for _ in range(runs)), runs

        size = f"20 equal rows, looked at every {STEP} of 200 cases"
        yield Promise(CLAIM, method, size, repeated_looks, at_most=WRONG if method == OWN else None, runs=100)


def _by_any_look(claims: Method, scores: Floats, seed: int) -> bool:
    return any(claims(scores[:, :seen], seed) for seen in range(STEP, scores.shape[1] + 1, STEP))


def _standard_errors(scores: Floats, seed: int) -> bool:
    """Return whether any two means differ by more than 1.96 standard errors of two independent samples."""
    means, variances = scores.mean(axis=1), scores.var(axis=1, ddof=1) / scores.shape[1]
    apart = np.abs(means[:, None] - means[None, :])
    return bool((apart > 1.96 * np.sqrt(variances[:, None] + variances[None, :])).any())


def _wilcoxon(scores: Floats, seed: int) -> bool:
    """Return whether any row differs from the baseline at 5% by Wilcoxon's signed-rank test."""
    differences = scores[1:] - scores[0]
    return any(row.any() and scipy.stats.wilcoxon(row).pvalue < WRONG for row in differences)


def _wtb(scores: Floats, seed: int) -> bool:
    comparison = compare(scores, Design(baseline=0, seed=seed))
    return comparison.clear or any(row.p_adjusted is not None and row.p_adjusted < WRONG for row in comparison.rows)


def _wtb_before_the_end(scores: Floats, seed: int) -> bool:
    """Return whether WTB claims a difference while the sweep runs."""
    at_look = look(
        scores, np.ones(scores.shape, dtype=np.bool_), Design(baseline=0, seed=seed), scale=(0.0, 1.0)
    ).compared
    ends = [row.delta_ci for row in at_look.rows if row.delta_ci is not None]
    return at_look.clear or any(low > 0 or high < 0 for low, high in ends)


_METHODS: dict[str, Method] = {
    OWN: _wtb,
    "means with standard errors, any two rows (lm-evaluation-harness)": _standard_errors,
    "Wilcoxon's test of each row against the baseline (MLflow 3.18)": _wilcoxon,
}


def _passes(rng: Rng, rows: int, cases: int) -> Floats:
    """Draw passes at a rate of 80% in cases of different difficulty."""
    return (rng.random((rows, cases)) < rng.beta(3.2, 0.8, cases)).astype(np.float64)


def _small_gains(rng: Rng) -> Floats:
    """Draw two rows of equal means: the second gains 0.02 in 90% of the cases, and loses 0.18 in the others."""
    baseline = rng.uniform(0.2, 0.9, 200)
    return np.stack([baseline, baseline + np.where(rng.random(200) < 0.9, 0.02, -0.18)])


def _costs(rng: Rng) -> Floats:
    """Draw costs: the same in every case by the baseline, lognormal by the other row, with equal means."""
    return np.stack([np.full(200, np.exp(0.5)), rng.lognormal(0.0, 1.0, 200)])


_AT_END: dict[str, Callable[[Rng], Floats]] = {
    "20 equal rows, 200 cases": lambda rng: _passes(rng, 20, 200),
    "2 rows of equal means, +0.02 in 90%, -0.18 in 10% of 200 cases": _small_gains,
    "2 rows of equal mean cost, one steady, one lognormal, 200 cases": _costs,
}
