"""Small gains in most cases and rare large losses, of equal mean or worse; and labels that were not drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulations.promises import Promise, counted
from wtb.analysis.comparison.regressions import Question, answer
from wtb.analysis.judge_rows import labelled_mean
from wtb.analysis.statistics import Design, Floats, compare

Rng = np.random.Generator
STAR = "rare large losses: a false * or star for small gains"
VERDICT = "rare large losses: a false verdict of two nights"
LABELS = "labels not drawn at random: a wrong interval is shown"
RANDOM = "labels drawn at random: the interval is shown and covers"


def promises() -> Iterator[Promise]:
    """Rare losses in a sweep and between nights, and labels of what looks bad."""
    yield from _stars()
    yield from _verdicts()
    yield from _labels()


def _mostly(rng: Rng, cases: int, often: float, rare: float, share: float) -> Floats:
    """Differences that are mostly small, with a little noise, and far off in a share of the cases."""
    return np.where(rng.random(cases) < share, rare, often) + 0.002 * rng.normal(size=cases)


def _stars() -> Iterator[Promise]:
    for often, rare, share in ((0.05, -0.45, 0.1), (0.01, -1.0, 0.03)):
        for cases in (20, 30, 50, 100):

            def claims(rng: Rng, cases: int = cases, design: tuple[float, float, float] = (often, rare, share)) -> bool:
                scores = np.stack([np.full(cases, 0.0), _mostly(rng, cases, *design)])
                comparison = compare(scores, Design(baseline=0, ends=(-0.5, 0.5) if design[1] > -0.6 else (-1.0, 0.0)))
                p, delta = comparison.rows[1].p_adjusted, comparison.rows[1].delta or 0.0
                return (p is not None and p < 0.05 and delta > 0) or (comparison.clear and comparison.best == 1)

            situation = f"{often:+.2f} mostly, {rare:+.2f} in {share:.0%}"
            yield Promise(STAR, situation, f"{cases} cases", counted(claims), None, 0.05, 1_000)


def _verdicts() -> Iterator[Promise]:
    designs = (("better", 0.01, -1.0, 0.03), ("worse", -0.02, 0.38, 0.05), ("better", 0.05, -0.45, 0.1))
    for wrong, often, rare, share in designs:
        for cases in (20, 30, 50, 100):
            design = often, rare, share

            def is_regression(
                rng: Rng, cases: int = cases, wrong: str = wrong, design: tuple[float, float, float] = design
            ) -> bool:
                question = Question(_mostly(rng, cases, *design)[None], span=1.0)
                return answer({"m": question})["m"].rows[0].verdict == wrong

            situation = f"{often:+.2f} mostly, {rare:+.2f} in {share:.0%}: {wrong}"
            yield Promise(VERDICT, situation, f"{cases} cases", counted(is_regression), None, 0.05, 1_000)


def _labels() -> Iterator[Promise]:
    for rate, leniency in ((0.8, 0.1), (0.9, 0.7)):
        for labels in (20, 50, 100):

            def wrong(rng: Rng, rate: float = rate, leniency: float = leniency, labels: int = labels) -> bool:
                truth, judge = _judged(rng, rate, leniency)
                worst = np.lexsort((rng.random(len(judge)), judge))[:labels]
                low, high = labelled_mean(_labelled(truth, worst), judge).interval
                return not np.isnan(low) and not low <= rate <= high

            def right(rng: Rng, rate: float = rate, leniency: float = leniency, labels: int = labels) -> bool | None:
                truth, judge = _judged(rng, rate, leniency)
                low, high = labelled_mean(_labelled(truth, rng.permutation(len(truth))[:labels]), judge).interval
                return None if np.isnan(low) else bool(low <= rate <= high)

            situation = f"pass rate {rate:.0%}, a judge who passes {leniency:.0%} of failures"
            size = f"{labels} labels of 200 cases"
            yield Promise(LABELS, f"the worst by the judge, {situation}", size, counted(wrong), None, 0.05, 500)
            at_least = 0.93 if labels >= 100 and leniency < 0.5 else None
            yield Promise(RANDOM, situation, size, counted(right), at_least, None, 1_000)


def _judged(rng: Rng, rate: float, leniency: float) -> tuple[Floats, Floats]:
    truth = (rng.random(200) < rate).astype(float)
    return truth, np.where(truth == 1, rng.random(200) < 0.95, rng.random(200) < leniency).astype(float)


def _labelled(truth: Floats, cases: NDArray[np.signedinteger]) -> Floats:
    labels = np.full(len(truth), np.nan)
    labels[cases] = truth[cases]
    return labels
