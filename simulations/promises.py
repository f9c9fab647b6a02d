"""The promises of docs/statistics.md, each with a simulated figure and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

SURE = 0.001  # of hundreds of figures some miss a bound at 95% by chance; one that misses it at 99.9% is wrong

Count = Callable[[np.random.Generator, int], tuple[int, int]]  # runs -> (hits, of how many)


def seed_from(rng: np.random.Generator) -> int:
    """Draw the seed of a comparison."""
    return int(rng.integers(1 << 31))


def counted(happens: Callable[[np.random.Generator], bool | None]) -> Count:
    """Count the runs in which `happens(rng)` returns True; None does not count."""

    def count(rng: np.random.Generator, runs: int) -> tuple[int, int]:
        hits = [hit for hit in (happens(rng) for _ in range(runs)) if hit is not None]
        return sum(hits), len(hits)

    return count


@dataclass(frozen=True)
class Promise:
    """One figure of one situation.

    Attributes:
        claim: what is promised, the heading of a table.
        situation, size: the row and the column of it.
        count: simulates so many sweeps; returns how many hit, of how many that count.
        at_least, at_most: the bounds of the share, None where it is only told.
        runs: sweeps in a full run.
    """

    claim: str
    situation: str
    size: str
    count: Count
    at_least: float | None = None
    at_most: float | None = None
    runs: int = 1_000

    @property
    def has_bound(self) -> bool:
        """True if the promise has a bound."""
        return self.at_least is not None or self.at_most is not None


@dataclass(frozen=True)
class Found:
    """The simulated figure of a promise."""

    promise: Promise
    hits: int
    of: int

    @property
    def share(self) -> float:
        return self.hits / self.of if self.of else math.nan

    @property
    def broken(self) -> Literal["too few", "too many"] | None:
        """Whether the figure is beyond its bound by more than chance."""
        low, high = self.promise.at_least, self.promise.at_most
        if not self.of:
            return None
        if high is not None and self.share > high and _tail(self.of - self.hits, self.of, 1 - high) < SURE:
            return "too many"
        if low is not None and self.share < low and _tail(self.hits, self.of, low) < SURE:
            return "too few"
        return None


def _tail(hits: int, of: int, share: float) -> float:
    """The probability of so few hits or fewer."""
    if share <= 0:
        return 1.0
    logs = (
        math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1)
        + k * math.log(share) + (of - k) * math.log1p(-share)
        for k in range(hits + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(log) for log in logs)) if share < 1 else float(hits >= of)
