"""Judges and raters whose truth is known: intervals of labels with judgements, and of agreement.

No person has given any of these labels: they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulations.promises import Promise
from wtb.analysis import judge_bias
from wtb.analysis.judge_agreement import cohens_kappa, krippendorffs_alpha
from wtb.analysis.judge_rows import labelled_mean
from wtb.analysis.statistics import Floats

Rng = np.random.Generator
COVERS = 0.925


def promises() -> Iterator[Promise]:
    """All of judges."""
    yield from _means()
    yield from _differences()
    yield from _unequal_chances()
    yield from _biases()
    yield from _agreement()


def _judged(rng: Rng, rate: float, accuracy: float, cases: int) -> tuple[Floats, Floats]:
    """Draw human labels of the cases, and those of a judge with this accuracy."""
    truth = (rng.random(cases) < rate).astype(np.float64)
    return truth, np.where(rng.random(cases) < accuracy, truth, 1 - truth)


def _some(rng: Rng, truth: Floats, labels: int) -> Floats:
    labelled = np.full(len(truth), np.nan)
    drawn = rng.choice(len(truth), labels, replace=False)
    labelled[drawn] = truth[drawn]
    return labelled


def _covers(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


def _means() -> Iterator[Promise]:
    for rate in (0.2, 0.5, 0.8):
        for accuracy in (0.6, 0.8, 0.95):
            for labels in (30, 100, 300):

                def covered(
                    rng: Rng, runs: int, rate: float = rate, accuracy: float = accuracy, labels: int = labels
                ) -> tuple[int, int]:
                    hits = 0
                    for _ in range(runs):
                        truth, judge = _judged(rng, rate, accuracy, 1_000)
                        hits += _covers(labelled_mean(_some(rng, truth, labels), judge).interval, rate)
                    return hits, runs

                yield Promise(
                    "intervals of labels with judgements cover",
                    f"rate {rate:.0%}, the judge is right in {accuracy:.0%}",
                    f"{labels} labels of 1,000 cases",
                    covered,
                    at_least=COVERS if labels >= 100 else None,
                    runs=2_000,
                )
    for accuracy in (0.6, 0.8, 0.95):

        def narrower(rng: Rng, runs: int, accuracy: float = accuracy) -> tuple[int, int]:
            hits = 0
            for _ in range(runs):
                truth, judge = _judged(rng, 0.5, accuracy, 1_000)
                labels = _some(rng, truth, 100)
                both, alone = (labelled_mean(labels, judged).interval for judged in (judge, np.full(1_000, np.nan)))
                hits += both[1] - both[0] < alone[1] - alone[0]
            return hits, runs

        yield Promise(
            "labels with judgements have a shorter interval than labels alone",
            f"rate 50%, the judge is right in {accuracy:.0%}",
            "100 labels of 1,000 cases",
            narrower,
            at_least=0.9 if accuracy > 0.6 else None,
        )


def _differences() -> Iterator[Promise]:
    for accuracy in (0.6, 0.95):

        def covered(rng: Rng, runs: int, accuracy: float = accuracy) -> tuple[int, int]:
            hits = 0
            for _ in range(runs):
                first, judge = _judged(rng, 0.6, accuracy, 1_000)
                second, other = _judged(rng, 0.5, min(accuracy + 0.04, 1.0), 1_000)
                labelled = labelled_mean(_some(rng, first - second, 100), judge - other)
                hits += _covers(labelled.interval, 0.1)
            return hits, runs

        yield Promise(
            "intervals of differences of labels with judgements cover",
            f"rates 60% and 50%, a judge who is right in {accuracy:.0%} and {accuracy + 0.04:.0%}",
            "100 labels of 1,000 cases",
            covered,
            at_least=COVERS,
        )


def _unequal_chances() -> Iterator[Promise]:
    for drawn in (0.02, 0.1):

        def covered(rng: Rng, runs: int, drawn: float = drawn) -> tuple[int, int]:
            hits = 0
            for _ in range(runs):
                unsure = rng.random(2_000) < 0.3
                truth = (rng.random(2_000) < np.where(unsure, 0.3, 0.9)).astype(np.float64)
                judge = np.where(rng.random(2_000) < np.where(unsure, 0.6, 0.95), truth, 1 - truth)
                chance = np.where(unsure, 5 * drawn, drawn)
                labels = np.where(rng.random(2_000) < chance, truth, np.nan)
                hits += _covers(labelled_mean(labels, judge, 1 / chance).interval, 0.3 * 0.3 + 0.7 * 0.9)
            return hits, runs

        yield Promise(
            "intervals of labels drawn with unequal chances cover",
            "the 30% of 2,000 cases in which the judge is unsure are five times as likely to be labelled",
            f"about {2_000 * drawn * (0.7 + 5 * 0.3):.0f} labels",
            covered,
            at_least=COVERS if drawn > 0.05 else None,
        )


_LEVELS = np.array([0.1, 0.2, 0.3, 0.3, 0.1])  # shares of 1 to 5
_LIKES = "intervals of what a judge adds for its own family cover"
_OFTEN = "intervals of how much more often a judge gives a level cover"


def _biases() -> Iterator[Promise]:
    """The judge's own row is better than the other one, and the judge errs: neither is a bias."""
    for more in (0.0, 0.2):
        for cases in (50, 200):

            def liked(rng: Rng, runs: int, more: float = more, cases: int = cases) -> tuple[int, int]:
                hits = 0
                own, places = np.repeat([True, False], cases), np.tile(np.arange(cases), 2)
                for _ in range(runs):
                    truth = (rng.random((2, cases)) < [[0.85], [0.45]]).astype(np.float64)
                    judge = np.where(rng.random((2, cases)) < 0.8, truth, 1 - truth).ravel() + more * own
                    interval = judge_bias.own_family(judge_bias.Held(judge, truth.ravel(), places), own).interval
                    hits += interval is not None and _covers(interval, more)
                return hits, runs

            yield Promise(_LIKES, f"it adds {more:g}", f"{cases} cases", liked, at_least=COVERS)

            def often(rng: Rng, runs: int, more: float = more, cases: int = cases) -> tuple[int, int]:
                hits = 0
                for _ in range(runs):
                    people = 1.0 + rng.choice(5, cases, p=_LEVELS)
                    noisy = np.where(rng.random(cases) < 0.7, people, 1.0 + rng.choice(5, cases, p=_LEVELS))
                    judge = np.where(rng.random(cases) < more, 4.0, noisy)
                    used = judge_bias.uses(judge_bias.Held(judge, people, np.arange(cases)), range(1, 6))
                    interval = used[3].more.interval
                    hits += interval is not None and _covers(interval, more * 0.7)
                return hits, runs

            yield Promise(_OFTEN, f"it says 4 anyway in {more:.0%}", f"{cases} cases", often, at_least=COVERS)


_SHARES = np.array([0.1, 0.2, 0.4, 0.3])  # of units that are truly of each level


def _rated(rng: Rng, units: int, right: float, raters: int = 3) -> Floats:
    """Ratings of 0 to 3, raters x units: each rater is right so often, and else says anything."""
    truth = rng.choice(4, units, p=_SHARES)
    guessed = rng.integers(0, 4, (raters, units))
    ratings: Floats = np.where(rng.random((raters, units)) < right, truth, guessed).astype(np.float64)
    return ratings


def _true_agreement(name: str, right: float) -> float:
    """Return the coefficient of the whole population, from the probabilities of pairs of ratings."""
    one_right = (_SHARES[:, None] + _SHARES[None, :]) / 4
    pairs = right**2 * np.diag(_SHARES) + right * (1 - right) * one_right + (1 - right) ** 2 / 16
    totals = pairs.sum(axis=0)
    middles = np.cumsum(totals) - totals / 2
    distance = 1 - np.eye(4) if name == "Cohen's kappa" else (middles[:, None] - middles[None, :]) ** 2
    return 1 - float((distance * pairs).sum() / (distance * np.outer(totals, totals)).sum())


def _agreement() -> Iterator[Promise]:
    for name in ("Cohen's kappa", "Krippendorff's alpha"):
        for right in (0.5, 0.8):
            for units in (50, 200):

                def covered(
                    rng: Rng, runs: int, name: str = name, right: float = right, units: int = units
                ) -> tuple[int, int]:
                    true = _true_agreement(name, right)
                    hits = 0
                    for _ in range(runs):
                        ratings = _rated(rng, units, right)
                        if name == "Cohen's kappa":
                            agreement = cohens_kappa(ratings[0], ratings[1])
                        else:
                            agreement = krippendorffs_alpha(ratings, "ordinal")
                        hits += _covers(agreement.interval, true)
                    return hits, runs

                yield Promise(
                    "intervals of agreement cover",
                    f"{name}, raters are right in {right:.0%}",
                    f"{units} units",
                    covered,
                    at_least=COVERS,
                )
