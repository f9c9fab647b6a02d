"""Cells that are missing where their scores would be bad, and the true gains that are still found."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from simulations.promises import Promise, counted
from wtb.analysis.comparison.regressions import Question, answer
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.claims import MissingCells, Pairs
from wtb.analysis.statistics.margins import BeforeAndAfter

Rng = np.random.Generator
Draw = Callable[[Rng, int, float], Floats]  # cases, gain of the second row -> two rows of equal truth but for the gain

STAR = "cells are missing: a false * for the row that lacks them"
BEST = "cells are missing: a false star for the best"
POWER = "cells are missing: a true gain is found"
WORSE = "cells are missing: worse, though nothing changed"
_LEVELS = np.array([0, 0.25, 0.5, 0.75, 1.0])


def promises() -> Iterator[Promise]:
    """Rows that crash where they would be wrong, rows that lost cells at random, and the power that is left."""
    yield from _crashing()
    yield from _power()
    yield from _regressions()


def _passes(rng: Rng, cases: int, gain: float) -> Floats:
    return np.asarray(rng.random((2, cases)) < np.array([[0.8], [0.8 + gain]]), dtype=float)


def _five_levels(rng: Rng, cases: int, gain: float) -> Floats:
    scores = rng.choice(_LEVELS, p=[0.02, 0.03, 0.1, 0.25, 0.6], size=(2, cases))
    scores[1] = np.where(rng.random(cases) < 4 * gain, np.minimum(scores[1] + 0.25, 1.0), scores[1])
    return scores


def _judged(rng: Rng, cases: int, gain: float) -> Floats:
    hardness = 0.8 + 0.15 * rng.normal(size=cases)
    return np.asarray(np.clip(hardness + 0.15 * rng.normal(size=(2, cases)) + np.array([[0.0], [gain]]), 0, 1))


def _normal(rng: Rng, cases: int, gain: float) -> Floats:
    return np.asarray(rng.normal(size=(2, cases)) + np.array([[0.0], [gain]]))


def _lowest(rng: Rng, scores: Floats, share: float) -> Floats:
    """The second row has no score in a share of the cases: those where it would be worst."""
    order = np.lexsort((rng.random(scores.shape[1]), scores[1]))
    return _without(scores, 1, order[: int(share * scores.shape[1])])


def _random(rng: Rng, scores: Floats, share: float) -> Floats:
    return _without(scores, 1, rng.permutation(scores.shape[1])[: int(share * scores.shape[1])])


def _lowest_and_base(rng: Rng, scores: Floats, share: float) -> Floats:
    """As `_lowest`, and the baseline lacks as many at random."""
    lost = rng.permutation(scores.shape[1])[: int(share * scores.shape[1])]
    return _without(_lowest(rng, scores, share), 0, lost)


def _without(scores: Floats, row: int, cases: Any) -> Floats:
    scores = scores.copy()
    scores[row, cases] = np.nan
    return scores


def _of(scores: Floats, kinds: bool, scale: bool) -> Design:
    """Compare the rows. kinds: the rows lack cells for different reasons."""
    missing = MissingCells.of(scores)
    if kinds:
        second = missing.total * np.array([[0], [1]], np.int32)
        missing = MissingCells(missing.behind, {"failed": second, "provider": missing.total - second})
    return Design(baseline=0, ends=(0.0, 1.0) if scale else None, missing=missing)


def _crashing() -> Iterator[Promise]:
    draws: dict[str, tuple[Draw, bool]] = {"pass rates of 80%": (_passes, True), "normal scores": (_normal, False)}
    draws["a judge of five levels"] = (_five_levels, True)
    for (name, (draw, scale)), cases, share in itertools.product(
        draws.items(), (50, 200, 400, 1_000), (0.04, 0.15, 0.3)
    ):
        if name[0] == "p" and share > 0.2:  # so many answers are not wrong
            continue
        yield _false(f"{name}, {share:.0%} where it would be worst", cases, draw, _lowest, share, scale)
    for cases in (200, 1_000):
        for name, lose in (("at random", _random), ("where it would be wrong", _lowest)):
            yield _false(f"pass rates of 80%, 10% lost to a provider {name}", cases, _passes, lose, 0.1, True)
        both = "pass rates of 80%, 4% where it would be wrong, and 4% of the baseline"
        yield _false(f"{both} to a provider", cases, _passes, _lowest_and_base, 0.04, True, kinds=True)
        # Nobody can tell that what both lack as often, for the same reason, is another kind of answer in each.
        yield _false(f"{both} for the same reason", cases, _passes, _lowest_and_base, 0.04, True, bound=None)

    def starred(rng: Rng) -> bool:
        scores = _lowest(rng, _passes(rng, 1_000, 0.0), 0.04)
        return compare(scores, _of(scores, kinds=False, scale=True)).clear

    yield Promise(BEST, "pass rates of 80%, 4% where it would be wrong", "1000 cases", counted(starred), None, 0.05)

    def unranked(rng: Rng) -> bool:
        scores = np.vstack([_passes(rng, 200, 0.0), (rng.random((1, 200)) < 0.5)])
        scores = _without(scores, 1, rng.permutation(200)[:20])
        return compare(scores, _of(scores, kinds=False, scale=True)).clear

    yield Promise(
        BEST, "one of two equal rows lost 10% to a provider", "3 rows, 200 cases", counted(unranked), None, 0.05
    )


def _false(
    situation: str,
    cases: int,
    draw: Draw,
    lose: Callable[[Rng, Floats, float], Floats],
    share: float,
    scale: bool,
    *,
    kinds: bool = False,
    bound: float | None = 0.05,
) -> Promise:
    def claims(rng: Rng) -> bool:
        scores = lose(rng, draw(rng, cases, 0.0), share)
        p = compare(scores, _of(scores, kinds, scale)).rows[1].p_adjusted
        return p is not None and p < 0.05

    return Promise(STAR, situation, f"{cases} cases", counted(claims), None, bound, 500)


def _power() -> Iterator[Promise]:
    """Of both rows 2% are missing at random. The bound is the power without missing cells, less 15 points."""
    designs: list[tuple[str, Draw, float, bool, dict[int, float]]] = [
        ("pass rates of 80% against 90%", _passes, 0.1, True, {100: 0.44, 200: 0.77, 400: 0.97}),
        ("a judge from 0 to 1, better by 0.05", _judged, 0.05, True, {100: 0.6, 200: 0.88, 400: 0.99}),
        ("normal scores, better by 0.28", _normal, 0.28, False, {100: 0.49, 200: 0.79, 400: 0.98}),
    ]
    for name, draw, gain, scale, powers in designs:
        for cases, whole in powers.items():
            for share in (0.0, 0.02):

                def has_gain(
                    rng: Rng, draw: Draw = draw, cases: int = cases, gain: float = gain, share: float = share,
                    scale: bool = scale,
                ) -> bool:  # fmt: skip
                    scores = draw(rng, cases, gain)
                    scores = np.where(rng.random(scores.shape) < share, np.nan, scores)
                    p = compare(scores, _of(scores, kinds=False, scale=scale)).rows[1].p_adjusted
                    return p is not None and p < 0.05

                situation = f"{name}, {share:.0%} at random"
                at_least = whole - 0.15 if share else None
                yield Promise(POWER, situation, f"{cases} cases", counted(has_gain), at_least, None, 500)


def _regressions() -> Iterator[Promise]:
    """The later night, or the earlier one, lacks the cells whose absence favours the verdict "worse"."""

    def verdict(scores: Floats) -> str:
        sides = BeforeAndAfter(Pairs(scores, MissingCells.of(scores), (0.0, 1.0)))
        question = Question((scores[1] - scores[0])[None], rates=True, sides=sides)
        return answer({"m": question})["m"].rows[0].verdict

    for lack, situation in (((0, 1), "the later night lacks right answers"), ((1, 0), "the earlier lacks wrong ones")):
        for cases in (100, 400):

            def alarms(rng: Rng, lack: tuple[int, int] = lack, cases: int = cases) -> bool:
                scores = _passes(rng, cases, 0.0)
                some = np.flatnonzero(scores[lack[1]] == lack[1])[: int(0.08 * cases)]
                return verdict(_without(scores, lack[1], some)) == "worse"

            yield Promise(WORSE, f"{situation}, 8%", f"{cases} cases", counted(alarms), None, 0.05, 500)

    def is_regression(rng: Rng) -> bool:
        scores = _passes(rng, 200, -0.15)
        return verdict(np.where(rng.random(scores.shape) < 0.02, np.nan, scores)) == "worse"

    claim = "cells are missing: a fall of 0.15 in one night is reported"
    yield Promise(claim, "pass rates of 80%, 2% at random", "200 cases", counted(is_regression), 0.8, None, 500)
