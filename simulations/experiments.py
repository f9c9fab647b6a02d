"""What is simulated: coverage of intervals, false alarms, and power. Each returns how often, as a share of its runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from simulations.truths import DIFFERENCES, SCORES, Truth, flips
from wtb.statistics import Floats, compare, holm
from wtb.statistics.effects import fit
from wtb.statistics.intervals import Z, intervals, rate_difference, t_quantile, wilson
from wtb.statistics.paired import sign_flip, subtract
from wtb.statistics.power import cases_needed

ROWS = 8  # combinations beside the baseline
_NORMAL_POWER = 0.8416212335729143
_AT_ONCE = 2_000_000  # scores


@dataclass(frozen=True)
class Found:
    """A share of `runs` simulated sweeps. undefined: of those, the share that gave no interval and does not count."""

    experiment: str
    shape: str
    cases: int
    share: float
    runs: int
    undefined: float = 0.0


def coverage_of_means(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often the interval of a mean covers the truth."""
    for name, truth in SCORES.items():
        yield _coverage("intervals of means", name, truth, cases, runs, seed)


def coverage_of_differences(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often the interval of a paired difference covers the truth."""
    for name, truth in DIFFERENCES.items():
        yield _coverage("intervals of differences", name, truth, cases, runs, seed)


def _coverage(experiment: str, name: str, truth: Truth, cases: int, runs: int, seed: int) -> Found:
    rng = np.random.default_rng([seed, cases])
    parts = []
    for some in _parts(runs, cases):
        values = truth.draw(rng, (some, cases))
        if not truth.rate:
            parts.append(intervals(values, seed))
        elif experiment == "intervals of means":
            parts.append(np.array([wilson(float(row.sum()), cases) for row in values]))
        else:
            parts.append(rate_difference(values))
    ends = np.vstack(parts)
    ends = ends[np.isfinite(ends[:, 0])]
    share = float(((ends[:, 0] <= truth.mean) & (truth.mean <= ends[:, 1])).mean()) if len(ends) else math.nan
    return Found(experiment, name, cases, share, len(ends), 1 - len(ends) / runs)


def false_alarms(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often any of eight rows that equal the baseline is said to differ from it (Holm's p < 0.05)."""
    for name in ("normal", "very skewed (lognormal, sigma 1)", "pass rate 50%", "pass rate 90%"):
        rng = np.random.default_rng([seed, cases])
        hits = 0
        for some in _parts(runs, cases * ROWS):
            scores = _sweeps(name, rng, some, cases)
            p = sign_flip(subtract(scores[:, 1:], scores[:, :1]).reshape(-1, cases), seed)
            hits += sum(int(np.nanmin(holm(one)) < 0.05) for one in p.reshape(some, ROWS))
        yield Found("false alarms among 8 rows", name, cases, hits / runs, runs)


def false_winners(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often the best of nine equal rows is said to be clearly so."""
    for name in ("normal", "pass rate 90%"):
        rng = np.random.default_rng([seed, cases])
        hits = sum(int(compare(scores, seed=seed).clear) for scores in _sweeps(name, rng, runs, cases))
        yield Found("false clear winners", name, cases, hits / runs, runs)


def false_effects(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often any of three nodes that do nothing, or any pair of them, is said to matter."""
    levels = np.array(list(itertools.product(range(3), range(2), range(2))), dtype=np.int64)
    rng = np.random.default_rng([seed, cases])
    nodes = pairs = 0
    for _ in range(runs):
        found = fit(rng.normal(size=cases) + rng.normal(size=(len(levels), cases)), levels, seed)
        nodes += any(one.p_adjusted < 0.05 for one in found.nodes)
        pairs += any(one.p_adjusted < 0.05 for one in found.pairs)
    yield Found("false effects", "any of 3 nodes", cases, nodes / runs, runs)
    yield Found("false effects", "any of 3 pairs of nodes", cases, pairs / runs, runs)


def power(cases: int, runs: int, seed: int) -> Iterator[Found]:
    """How often a true difference as large as `detectable` gives p < 0.05, and its own power in cases as needed."""
    rng = np.random.default_rng([seed, cases])
    factor = (t_quantile(cases - 1) + t_quantile(cases - 1, _NORMAL_POWER)) / math.sqrt(cases)
    skew = math.sqrt(math.e * (math.e - 1))
    shapes: dict[str, Callable[[tuple[int, int]], Floats]] = {
        "normal differences": lambda shape: rng.normal(size=shape),
        "very skewed differences": lambda shape: (np.exp(rng.normal(size=shape)) - math.exp(0.5)) / skew,
    }
    for name, draw in shapes.items():
        hits = sum(int((sign_flip(draw((n, cases)) + factor, seed) < 0.05).sum()) for n in _parts(runs, cases))
        yield Found("power at the detectable difference", name, cases, hits / runs, runs)
    rise = _detectable_rise(cases, factor)
    if rise <= 0.9:
        drawn = (flips(rise, 0.1).draw(rng, (n, cases)) for n in _parts(runs, cases))
        hits = sum(int((sign_flip(differences, seed) < 0.05).sum()) for differences in drawn)
        yield Found("power at the detectable difference", "pass rates, 10% down", cases, hits / runs, runs)
    lead = (Z + _NORMAL_POWER) / math.sqrt(cases - Z * Z / 2)  # of one standard deviation
    assert abs(cases_needed(lead, 1.0) - cases) <= 1
    hits = sum(int((sign_flip(rng.normal(lead, 1, (n, cases)), seed) < 0.05).sum()) for n in _parts(runs, cases))
    yield Found("power where so many cases are said to be needed", "normal differences", cases, hits / runs, runs)


def _detectable_rise(cases: int, factor: float) -> float:
    """Where a tenth of the cases fall, how many must rise to differ by what their spread lets be detected."""
    rise = 0.1
    for _ in range(100):
        rise = min(1.0, 0.1 + factor * math.sqrt(rise + 0.1 - (rise - 0.1) ** 2) + 1 / cases)
    return rise


def _sweeps(name: str, rng: np.random.Generator, runs: int, cases: int) -> Floats:
    """Sweeps of a baseline and ROWS rows, all of the same truth; normal scores share how hard a case is."""
    scores = SCORES[name].draw(rng, (runs, ROWS + 1, cases))
    return scores + rng.normal(size=(runs, 1, cases)) if name == "normal" else scores


def _parts(runs: int, size: int) -> Iterator[int]:
    step = max(1, _AT_ONCE // size)
    return (min(step, runs - start) for start in range(0, runs, step))
