"""Looks across sweeps: the same question again over more cases, with fresh noise, by another metric, or pooled.

Many people search at once, each as people do it: a sweep is compared after what was looked at before, by the ledger's
own functions, and what it shows is remembered. Nothing differs in truth unless the design says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.promises import Count, Promise
from wtb.analysis.statistics import Floats, holm
from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.paired import mean_test
from wtb.analysis.statistics.running import LATER, EarlierLook, count_before, spendable

Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, ...]], Floats]  # people x rows x cases
Flags = NDArray[np.bool_]  # people x rows
ALL_LOOKS = SIGNIFICANT * (1 + LATER)  # of a difference in either direction: the first look, and all after it


class Searchers:
    """Users who look repeatedly, and the ledger of their looks.

    Attributes:
        gained: Who has claimed a gain of which row so far.
        lost: Who has claimed a loss.
    """

    def __init__(self, rng: Rng, people: int, rows: int) -> None:
        self.gained: Flags = np.zeros((people, rows), dtype=np.bool_)
        self.lost: Flags = np.zeros((people, rows), dtype=np.bool_)
        self._seed = int(rng.integers(1 << 31))
        self._looks: list[tuple[range, int]] = []

    def look(self, scores: Floats, cases: range, rows: Any = slice(None)) -> Flags:
        """Return which users claim a gain of which row.

        Args:
            scores: People x rows x cases; the first row is the baseline.
            cases: The numbers of the cases.
            rows: Which of all rows the others are: numbers, for each person a list.
        """
        people, count = scores.shape[0], scores.shape[1] - 1
        share = spendable(count_before(self._earlier(cases), count), count)
        differences = scores[:, 1:] - scores[:, :1]
        p = mean_test(differences.reshape(-1, scores.shape[2]), self._seed).reshape(people, count)
        corrected = np.stack([holm(p_values) for p_values in p])
        gains = differences.mean(axis=2) > 0
        places = (np.arange(people)[:, None], np.broadcast_to(np.arange(self.gained.shape[1])[rows], (people, count)))
        # What was claimed before is claimed again at the full level.
        levels = np.where(np.where(gains, self.gained[places], self.lost[places]), 1.0, share) * SIGNIFICANT
        significant = np.asarray(np.nan_to_num(corrected, nan=1.0) < levels)
        self.gained[places] |= significant & gains
        self.lost[places] |= significant & ~gains
        self._looks.append((cases, count))
        return significant & gains

    def _earlier(self, cases: range) -> list[EarlierLook]:
        shared = [(len(range(max(had[0], cases[0]), min(had[-1], cases[-1]) + 1)), had, n) for had, n in self._looks]
        return [EarlierLook(both / len(cases), len(had), n) for both, had, n in shared if both]


def normal(rng: Rng, shape: tuple[int, ...]) -> Floats:
    return np.asarray(rng.normal(size=(shape[0], 1, shape[2])) + rng.normal(size=shape))


def five_levels(rng: Rng, shape: tuple[int, ...]) -> Floats:
    return np.asarray(rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], p=[0.05, 0.05, 0.1, 0.2, 0.6], size=shape))


def passes(rng: Rng, shape: tuple[int, ...], rate: float | Floats = 0.8) -> Floats:
    return np.asarray((rng.random(shape) < rate).astype(float))


KINDS: dict[str, Draw] = {"normal scores": normal, "a judge of five levels": five_levels, "pass rates of 80%": passes}
Search = Callable[[Rng, int], Searchers]


def promises() -> Iterator[Promise]:
    """All of them."""
    yield from _more_cases()
    yield from _repeated_looks()
    yield from _screening()
    yield from _metrics()
    yield from _nights()
    yield from _power()


def _bounded(situation: str, size: str, search: Search) -> Iterator[Promise]:
    """Promise that few of those who search claim a gain, and few claim anything, which a ★ is, too."""

    def gain(rng: Rng, runs: int) -> tuple[int, int]:
        return int(search(rng, runs).gained.any(axis=1).sum()), runs

    def claim(rng: Rng, runs: int) -> tuple[int, int]:
        searchers = search(rng, runs)
        return int((searchers.gained | searchers.lost).any(axis=1).sum()), runs

    counts: tuple[tuple[str, Count, float], ...] = (("a gain", gain, SIGNIFICANT), ("any * or ★", claim, ALL_LOOKS))
    for name, count, bound in counts:
        yield Promise(f"all looks together, though nothing differs: {name}", situation, size, count, None, bound, 2_000)


def _more_cases() -> Iterator[Promise]:
    designs: dict[str, Sequence[int]] = {
        "50, 100, 200 cases": (50, 100, 200),
        "20, 40, 80, 160 cases": (20, 40, 80, 160),
        "25, 100, 400 cases": (25, 100, 400),
        "every ten of 200 cases": range(10, 201, 10),
    }
    for kind, draw in KINDS.items():
        for size, looks in designs.items():

            def search(rng: Rng, people: int, draw: Draw = draw, looks: Sequence[int] = looks) -> Searchers:
                by, scores = Searchers(rng, people, 1), draw(rng, (people, 2, looks[-1]))
                for cases in looks:
                    by.look(scores[:, :, :cases], range(cases))
                return by

            yield from _bounded(f"more cases of the same rows, {kind}", size, search)


def _repeated_looks() -> Iterator[Promise]:
    for rows, times in ((1, 3), (1, 5), (1, 10), (5, 10)):
        for kind, draw in KINDS.items():

            def search(rng: Rng, people: int, draw: Draw = draw, rows: int = rows, times: int = times) -> Searchers:
                by = Searchers(rng, people, rows)
                for _ in range(times):
                    by.look(draw(rng, (people, rows + 1, 50)), range(50))
                return by

            size = f"{times} times, {rows + 1} rows, 50 cases"
            yield from _bounded(f"the same sweep with fresh noise, {kind}", size, search)


def _screening() -> Iterator[Promise]:
    for variants in (10, 30):
        for kind, draw in KINDS.items():

            def search(rng: Rng, people: int, draw: Draw = draw, variants: int = variants) -> Searchers:
                by, scores = Searchers(rng, people, variants), draw(rng, (people, variants + 1, 100))
                by.look(scores[:, :, :40], range(40))
                best = np.argmax(scores[:, 1:, :40].mean(axis=2), axis=1)[:, None]
                screened = np.take_along_axis(scores, 1 + best[:, :, None], axis=1)
                by.look(np.concatenate([scores[:, :1], screened], axis=1), range(100), best)
                return by

            yield from _bounded(f"the best of {variants} on 40 cases, then on 100 that hold these", kind, search)


def _metrics() -> Iterator[Promise]:
    def search(rng: Rng, people: int) -> Searchers:
        by = Searchers(rng, people, 5)  # a claim by another metric is another claim
        for metric in range(5):
            by.look(normal(rng, (people, 2, 50)), range(50), [metric])
        return by

    yield from _bounded("another primary metric each time", "5 metrics, 50 cases", search)


def _nightly(rng: Rng, people: int, nights: int, gain: float = 0.0) -> tuple[Searchers, list[Flags]]:
    """Run a sweep every night, and pool them all in the end. Cases differ for good, and from night to night."""
    by, lasting = Searchers(rng, people, 1), normal(rng, (people, 2, 50)) + np.array([[0.0], [gain]])
    runs = [lasting + 0.7 * rng.normal(size=lasting.shape) for _ in range(nights)]
    gains = [by.look(run, range(50)) for run in runs]
    return by, [*gains, by.look(np.mean(runs, axis=0), range(50))]


def _nights() -> Iterator[Promise]:
    for nights in (7, 20):

        def search(rng: Rng, people: int, nights: int = nights) -> Searchers:
            return _nightly(rng, people, nights)[0]

        yield from _bounded("the same sweep every night, then pooled", f"{nights} nights, 50 cases", search)

    def retained(rng: Rng, runs: int) -> tuple[int, int]:
        """Count the nights on which a gain is shown that an earlier night has shown."""
        gains = np.stack([gain[:, 0] for gain in _nightly(rng, runs, 20, 1.2)[1]])
        earlier = np.logical_or.accumulate(gains)[:-1]
        return int((gains[1:] & earlier).sum()), int(earlier.sum())

    claim = "a gain that was shown is shown again on later nights"
    yield Promise(claim, "a gain of 1.2 of normal scores", "20 nights, 50 cases", retained, 0.9, None, 200)


def _power() -> Iterator[Promise]:
    """Pass rates of 60% and 80%, over 50, then 100, then 200 cases."""
    looks, rates = (50, 100, 200), np.array([[0.6], [0.8]])
    for number, cases in enumerate(looks):
        least = 0.9 if cases == looks[-1] else None

        def after(rng: Rng, runs: int, number: int = number) -> tuple[int, int]:
            by, scores = Searchers(rng, runs, 1), passes(rng, (runs, 2, looks[-1]), rates)
            for seen in looks[: number + 1]:
                by.look(scores[:, :, :seen], range(seen))
            return int(by.gained.sum()), runs

        def alone(rng: Rng, runs: int, cases: int = cases) -> tuple[int, int]:
            return int(Searchers(rng, runs, 1).look(passes(rng, (runs, 2, cases), rates), range(cases)).sum()), runs

        claim, size = "a gain from 60% to 80% is claimed", f"{cases} cases"
        yield Promise(claim, "by any look at 50, 100, 200 cases so far", size, after, least, None, 1_000)
        yield Promise(claim, "by a first look", size, alone, least, None, 1_000)
