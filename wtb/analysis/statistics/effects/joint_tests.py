"""One test that gives p, intervals and what is clear, so that they cannot contradict each other.

The statistic of a block is the largest |t| of its effects. Its distribution comes from flipping the signs of what each
unit contributes (Hemerik, Goeman & Finos 2020; for complete sweeps Fisher 1935). An interval holds the values that
this test does not reject, so one of a block excludes 0 if and only if the block's p is below its level. The sums of
squares of contributions do not change with their signs, so that t is studentised in each flip.

Skewed contributions can have the mean 0 without being symmetric. There Hall's transformed t (1992) has to agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import RESAMPLES, Floats, chunks, t_quantile
from wtb.analysis.statistics.paired import EXACT_PAIRS, SMALLEST_P, Signs, flips
from wtb.core.classes.frozen import frozen

_SLACK = 1e-5  # relative; statistics, in single precision, that differ by less are the same
_SKEWNESS_SEEN = 1.5 * math.sqrt(6)  # 1.5 standard errors: taking out less would follow noise, and cost power


@frozen
class Evidence:
    """Effects, and what each unit says of them.

    Attributes:
        effects: The estimates.
        influence: Effects x units; how far each unit moves the estimate.
        weights: Effects x units; the share of the comparisons that each unit has.
        noise: For each effect, the variance that comes from combinations, beside that of units.
        freedom: The degrees of freedom of `noise`.
        nearer: For each effect, by how much it could be nearer to 0 because of what is missing, or does not show. It is
            clear only if it would be so even then.
    """

    effects: Floats
    influence: Floats
    weights: Floats
    noise: Floats | None = None
    freedom: int = 0
    nearer: Floats | None = None
    sums: Floats = field(init=False)  # effects x 3: sums of influence**2, influence x weight, weight**2

    def __post_init__(self) -> None:
        parts = [
            (self.influence**2).sum(axis=1),
            (self.influence * self.weights).sum(axis=1),
            (self.weights**2).sum(axis=1),
        ]
        object.__setattr__(self, "sums", np.stack(parts, axis=1))

    @property
    def nearest(self) -> Floats:
        """The effects, as near to 0 as they could be."""
        if self.nearer is None:
            return self.effects
        return np.asarray(np.sign(self.effects) * np.maximum(np.abs(self.effects) - self.nearer, 0.0))

    @property
    def contributions(self) -> Floats:
        """Effects x units under the hypothesis of no effect, with squares that add up to 1; all 0 if nothing varies."""
        values = self.influence + self.weights * self.effects[:, None]
        size = np.sqrt((values**2).sum(axis=1, keepdims=True))
        return np.asarray(np.divide(values, size, out=np.zeros_like(values), where=size > 0))


@frozen
class Tested:
    """The test of a block. `ci` is effects x 2, NaN where an effect is the same in all units or too few are there."""

    p: float
    p_adjusted: float
    ci: Floats


def joint_tests(blocks: Sequence[Evidence], families: Sequence[float], seed: int, level: float = 0.05) -> list[Tested]:
    """Test blocks of effects.

    Args:
        blocks: What units say of the effects of each.
        families: For each block, the number that p is multiplied by (Bonferroni's correction).
        seed: Of the random signs.
        level: Of all tests together; intervals hold together at 1 less this.
    """
    if not blocks:
        return []
    moved = np.vstack([block.contributions for block in blocks])
    sizes = [len(block.effects) for block in blocks]
    starts = np.cumsum([0, *sizes[:-1]])
    drawn = np.hstack(list(_largest(moved, starts, seed)))
    drawn.sort(axis=1)
    is_exact = drawn.shape[1] < RESAMPLES
    tested = []
    for block, statistics, family in zip(blocks, drawn, families, strict=True):
        threshold = _threshold(statistics, len(block.effects), level / family, is_exact=is_exact)
        wider = _widening(block, threshold)
        observed = float(_observed(block, wider).max(initial=0.0))
        p = _p(statistics, observed, len(block.effects), is_exact=is_exact)
        tested.append(Tested(p, min(1.0, p * family), _intervals(block, threshold, wider)))
    return tested


def sum_test(contributions: Floats, seed: int) -> float:
    """Return p of the sum of squares of the sums of contributions (units x directions)."""
    moved = contributions.T
    scale = float(np.abs(moved).max(initial=0.0))
    if scale == 0.0:
        return 1.0
    moved = (moved / scale).astype(np.float32)
    observed = float((moved.sum(axis=1) ** 2).sum()) * (1 - _SLACK)
    hits, count = 0, 0
    for signs in _signs(moved.shape[1], seed):
        sums = moved @ signs.T
        hits += int(((sums * sums).sum(axis=0) >= observed).sum())
        count += len(signs)
    return hits / count if count < RESAMPLES else (hits + 1) / (count + 1)


def _signs(units: int, seed: int) -> Iterator[Signs]:
    """Yield all signs of few units, else random ones."""
    if units <= EXACT_PAIRS:
        yield (1 - 2 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)).astype(np.float32)
        return
    rng = np.random.default_rng([abs(seed), 2])
    for count in chunks(units):
        yield flips(units, count, rng, np.float32)


def _largest(moved: Floats, starts: NDArray[np.int64], seed: int) -> Iterator[Floats]:
    """Yield, for each block and each draw of signs, the largest |t| of its effects."""
    single = moved.astype(np.float32)
    for signs in _signs(moved.shape[1], seed):
        sums = single @ signs.T
        yield np.maximum.reduceat(np.abs(sums, out=sums), starts, axis=0)


def _threshold(drawn: Floats, effects: int, level: float, *, is_exact: bool) -> float:
    """Return the largest |t| that is not beyond chance at a level; infinite if so few units can show nothing."""
    count = len(drawn)
    if is_exact:
        allowed = math.ceil(level * count - 1e-9) - 1  # draws as large as the observed one, of which two always are
        return float(drawn[count - 1 - allowed]) / (1 - _SLACK) if allowed >= 2 else math.inf
    allowed = math.ceil(level * (count + 1) - 1e-9) - 2
    largest = math.sqrt(2 * math.log(2 * effects / level))  # Hoeffding (1963): a bound for all signs, drawn or not
    return largest if allowed < 0 else min(float(drawn[count - 1 - allowed]) / (1 - _SLACK), largest)


def _p(drawn: Floats, observed: float, effects: int, *, is_exact: bool) -> float:
    count = len(drawn)
    hits = count - int(np.searchsorted(drawn, observed * (1 - _SLACK), side="left"))
    if observed == 0.0:
        return 1.0
    if is_exact:
        return hits / count
    return min((hits + 1) / (count + 1), max(2 * effects * math.exp(-observed * observed / 2), SMALLEST_P))


def _widening(block: Evidence, threshold: float) -> Floats:
    """Return by how much intervals are wider for what varies between combinations, beside units."""
    if block.noise is None or not math.isfinite(threshold):
        return np.ones(len(block.effects))
    own = block.sums[:, 0]
    every = own + block.noise
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(block.noise > 0, block.freedom * (every / block.noise) ** 2, np.inf)
        factor = np.sqrt(np.where(own > 0, every / own, 1.0))
    tails = [1.0 if some > 1e6 else t_quantile(max(1, int(some)), threshold) / threshold for some in freedom.tolist()]
    return np.asarray(factor * tails)


def _observed(block: Evidence, wider: Floats) -> Floats:
    """Return |t| of each effect, as it compares with those of flipped signs."""
    effects = block.nearest / wider
    own, both, weight = block.sums.T
    size = np.sqrt(np.maximum(own + 2 * effects * both + effects**2 * weight, 0.0))
    plain = np.divide(np.abs(effects), size, out=np.zeros_like(effects), where=size > 0)
    for number, skew in _skewed(block):
        units = block.influence.shape[1]
        t = effects[number] / math.sqrt(own[number] * units)
        turned = (t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / (6 * units)) * math.sqrt(units)
        if turned * effects[number] <= 0:
            plain[number] = 0.0
        plain[number] = min(plain[number], abs(turned) / math.sqrt(1 + turned**2 * weight[number]))
    return np.asarray(plain)


def _intervals(block: Evidence, threshold: float, wider: Floats) -> Floats:
    """Return what the test does not reject."""
    own, both, weight = block.sums.T
    ends = np.full((len(block.effects), 2), np.nan)
    square = threshold * threshold
    defined = (own > 0) & (square * weight < 1)
    if not defined.any():
        return ends
    # The values at a distance d with d**2 = threshold**2 * (own + 2 d both + d**2 weight).
    a, b, c = (1 - square * weight)[defined], (-square * both)[defined], (-square * own)[defined]
    root = np.sqrt(b * b - a * c)
    ends[defined] = np.stack([(b - root) / a, (b + root) / a], axis=1)
    for number, skew in _skewed(block):
        if defined[number]:
            units = block.influence.shape[1]
            t = threshold / math.sqrt(1 - square * weight[number]) / math.sqrt(units)
            low, high = (3 / skew * (math.cbrt(1 + skew * (end - skew / (6 * units))) - 1) for end in (-t, t))
            spread = math.sqrt(own[number] * units)
            ends[number] = min(ends[number, 0], -high * spread), max(ends[number, 1], -low * spread)
    ends = ends * wider[:, None]
    both = block.effects[:, None] + ends, block.nearest[:, None] + ends
    return np.stack([np.minimum(*both)[:, 0], np.maximum(*both)[:, 1]], axis=1)


def _skewed(block: Evidence) -> Iterator[tuple[int, float]]:
    """Yield the effects whose contributions are skewed by more than chance, and by how much."""
    units = block.influence.shape[1]
    own = block.sums[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        skew = math.sqrt(units) * (block.influence * block.influence * block.influence).sum(axis=1) / own**1.5
    for number in np.flatnonzero((own > 0) & (np.abs(skew) > _SKEWNESS_SEEN / math.sqrt(units))).tolist():
        yield number, float(skew[number])
