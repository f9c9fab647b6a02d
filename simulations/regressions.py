"""Promises on two sweeps that are compared, through the functions that `wtb regress` calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from simulations.promises import Count, Promise, seed_from
from wtb.analysis.comparison.regressions import Question, answer, of_sweep
from wtb.analysis.comparison.verdicts import NOT_WORSE, WORSE
from wtb.analysis.statistics import Floats

Rng = np.random.Generator
WRONG = 0.05
Draw = Callable[[Rng], Mapping[str, Question]]


def promises() -> Iterator[Promise]:
    """All of them."""
    yield from _false_alarms()
    yield from _falls()
    yield from _margins()
    yield from _repeats()


def _share(verdict: str, draw: Draw, pools: list[list[int]]) -> Count:
    """Count how often two sweeps reach a verdict."""

    def count(rng: Rng, runs: int) -> tuple[int, int]:
        hits = 0
        for _ in range(runs):
            questions = draw(rng)
            hits += of_sweep(answer(questions, pools, seed=seed_from(rng)), questions) == verdict
        return hits, runs

    return count


def _pools(rows: int) -> list[list[int]]:
    """Half of the rows go through a node that was changed; and all together."""
    return [list(range(rows // 2)), list(range(rows))] if rows > 1 else []


def passes(rng: Rng, rows: int, cases: int, before: float, after: float) -> Floats:
    """Gains of pass rates, each cell drawn by itself."""
    return (rng.random((rows, cases)) < after) * 1.0 - (rng.random((rows, cases)) < before)


def unchanged(rng: Rng, rows: int, cases: int, kind: str) -> dict[str, Question]:
    """Two sweeps of the same truth."""
    if kind.startswith("pass rate"):
        rate = 0.8 if "80%" in kind else 0.98
        return {"m": Question(passes(rng, rows, cases, rate, rate), rates=True)}
    if kind == "random prefixes":
        shared = np.repeat(rng.normal(size=(2, cases)), rows // 2, axis=0)
        return {"m": Question(shared + 0.3 * rng.normal(size=(rows, cases)))}
    if kind == "skewed differences":  # losses are small and gains large
        return {"m": Question(rng.exponential(size=(rows, cases)) - 1.0)}
    flaky = np.repeat(passes(rng, 2, cases, 0.95, 0.95), rows // 2, axis=0)  # what fails upstream fails in all leaves
    return {
        "": Question(flaky, rates=True),
        "m": Question(passes(rng, rows, cases, 0.8, 0.8), rates=True),
        "z": Question(rng.normal(size=(rows, cases)), margin=0.1),
        "e": Question(rng.normal(size=(rows, cases)), decides=False),
    }


def _false_alarms() -> Iterator[Promise]:
    kinds = (
        "pass rate 80%",
        "pass rate 98%, few cases differ",
        "random prefixes",
        "flaky cells, two metrics that decide and one that does not",
        "skewed differences",
    )
    for kind, rows, cases in itertools.product(kinds, (6, 24), (20, 50, 200)):
        if kind[0] == "f" and (rows, cases) not in ((6, 20), (24, 50), (6, 200)):
            continue  # four metrics each: what is asked for is that more of them are no worse

        def draw(rng: Rng, kind: str = kind, rows: int = rows, cases: int = cases) -> Mapping[str, Question]:
            return unchanged(rng, rows, cases, kind)

        yield Promise(
            "worse is said where nothing got worse",
            kind,
            f"{rows} rows, {cases} cases",
            _share(WORSE, draw, _pools(rows)),
            at_most=None if kind[0] == "s" and cases < 200 else WRONG,  # skewed one way only: told, not promised
            runs=300,
        )


def _falls() -> Iterator[Promise]:
    for cases in (20, 50, 100, 200, 400):

        def fewer(rng: Rng, cases: int = cases) -> Mapping[str, Question]:
            return {"m": Question(passes(rng, 1, cases, 0.9, 0.85), rates=True)}

        yield Promise(
            "worse is said where it is so",
            "pass rate 0.90 -> 0.85, one row",
            f"{cases} cases",
            _share(WORSE, fewer, []),
            runs=300,
        )
    for which, cases in itertools.product(
        ("one row of 24", "12 rows of 24, which share a changed node"), (20, 50, 100, 200)
    ):

        def lower(rng: Rng, which: str = which, cases: int = cases) -> Mapping[str, Question]:
            gains = rng.normal(size=(24, cases))
            gains[: 1 if which[0] == "o" else 12] -= 0.2
            return {"m": Question(gains)}

        yield Promise(
            "worse is said where it is so",
            f"lower by 0.2: {which}",
            f"{cases} cases",
            _share(WORSE, lower, _pools(24)),
            at_least=0.9 if which[0] != "o" and cases >= 50 else None,
            runs=200,
        )
    for cases in (5, 8, 20):

        def broken(rng: Rng, cases: int = cases) -> Mapping[str, Question]:
            gains = np.zeros((24, 50))
            gains[0, rng.choice(50, cases, replace=False)] = -1.0
            return {"m": Question(gains, rates=True)}

        yield Promise(
            "worse is said where it is so",
            "one row of 24, steady otherwise",
            f"{cases} of 50 cases fail now",
            _share(WORSE, broken, _pools(24)),
            at_least=1.0 if cases >= 8 else None,
            runs=40,
        )


def _margins() -> Iterator[Promise]:
    for kind, margin, cases in itertools.product(("pass rate 80%", "normal"), (0.1,), (20, 50, 200)):

        def lost(rng: Rng, kind: str = kind, margin: float = margin, cases: int = cases) -> Mapping[str, Question]:
            if kind == "normal":
                return {"m": Question(rng.normal(-margin, 1, (1, cases)), margin=margin)}
            return {"m": Question(passes(rng, 1, cases, 0.8, 0.8 - margin), rates=True, margin=margin)}

        yield Promise(
            "not worse is said of a loss as large as the margin",
            f"{kind}, margin {margin:g}",
            f"{cases} cases",
            _share(NOT_WORSE, lost, []),
            at_most=WRONG,
            runs=1_500,
        )
    for cases in (50, 100, 200, 400, 800):

        def same(rng: Rng, cases: int = cases) -> Mapping[str, Question]:
            return {"m": Question(passes(rng, 1, cases, 0.8, 0.8), rates=True, margin=0.05)}

        yield Promise(
            "not worse is said where nothing was changed",
            "pass rate 80%, margin 0.05, one row",
            f"{cases} cases",
            _share(NOT_WORSE, same, []),
            at_least=0.78 if cases == 800 else None,  # `wtb plan` says 790 of a spread of 0.566
            runs=400,
        )


def _repeats() -> Iterator[Promise]:
    """Repeats that agree in every case although the workflow is not steady, at the rate of noise that misleads most."""
    for repeats, cells in itertools.product((1, 2, 4), (20, 200)):
        flips = -math.log(2 * repeats / (2 * repeats + 1)) * 2 / cells  # half of those that differ fall

        def misled(
            rng: Rng, runs: int, repeats: int = repeats, cells: int = cells, flips: float = flips
        ) -> tuple[int, int]:
            hits = 0
            for _ in range(runs):
                agreed = not (rng.random((repeats, cells)) < flips).any()
                later = np.where(rng.random((1, cells)) < flips, rng.choice([-1.0, 1.0], (1, cells)), 0.0)
                question = {"m": Question(later, rates=True, repeatable=agreed)}
                hits += of_sweep(answer(question), question) == WORSE
            return hits, runs

        yield Promise(
            "worse is said where nothing got worse, and repeats agreed by chance",
            f"{repeats} repeat{'s' * (repeats > 1)}, the noise that misleads most",
            f"{cells} cells",
            misled,
            at_most=WRONG if repeats == 4 else None,
            runs=1_500,
        )
