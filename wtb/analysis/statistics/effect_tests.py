"""Joint tests of effects, and bounds on how much closer to 0 missing or unseen results could bring them.

The statistic of a block is the largest |t| of its effects. Its distribution comes from flipping the signs of the
contributions of units (Hemerik, Goeman & Finos 2020; for complete sweeps Fisher 1935). An interval contains the values
that this test does not reject, so an interval of a block excludes 0 if and only if the block's p is below its level.
The sums of squares of contributions do not change with their signs, so t is studentised in each flip. Skewed
contributions can have the mean 0 without being symmetric; for those Hall's transformed t (1992) has to agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.claims import RULE_OF_THREE
from wtb.analysis.statistics.comparing import Better
from wtb.analysis.statistics.intervals import RESAMPLES, ROUNDING, Floats, Interval, chunks, t_quantile
from wtb.analysis.statistics.paired import EXACT_PAIRS, SMALLEST_P, Signs, flips
from wtb.core.frozen import frozen

_SLACK = 1e-5  # relative; statistics, in single precision, that differ by less are the same
_SKEWNESS_SEEN = 1.5 * math.sqrt(6)  # 1.5 standard errors: taking out less would follow noise, and cost power


@frozen
class Evidence:
    """Effects with the contributions of units.

    Attributes:
        effects: The estimates.
        influence: Effects x units; how far each unit moves the estimate.
        weights: Effects x units; the share of the comparisons that each unit has.
        noise: For each effect, the variance that comes from combinations, besides that of units.
        freedom: The degrees of freedom of `noise`.
        nearer: For each effect, by how much missing or unseen results could move it towards 0. It is significant only
            if it is so even then.
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
        """Effects, as close to 0 as they could be."""
        if self.nearer is None:
            return self.effects
        return np.asarray(np.sign(self.effects) * np.maximum(np.abs(self.effects) - self.nearer, 0.0))

    @property
    def contributions(self) -> Floats:
        """Effects x units under the null hypothesis, with squares that add up to 1; all 0 if nothing varies."""
        values = self.influence + self.weights * self.effects[:, None]
        size = np.sqrt((values**2).sum(axis=1, keepdims=True))
        return np.asarray(np.divide(values, size, out=np.zeros_like(values), where=size > 0))


@frozen
class Tested:
    """The test of a block. `ci` is effects x 2, NaN if an effect is equal in all units or there are too few."""

    p: float
    p_adjusted: float
    ci: Floats


def joint_tests(blocks: Sequence[Evidence], families: Sequence[float], seed: int, level: float = 0.05) -> list[Tested]:
    """Test blocks of effects.

    Args:
        blocks: The effects of each block with the contributions of units.
        families: For each block, the number that p is multiplied by (Bonferroni's correction).
        seed: The seed of the random signs.
        level: The level of all tests together; intervals hold simultaneously at 1 - level.
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
    """Return the largest |t| that is within chance at a level; infinite if so few units can show nothing."""
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
    """Return the factor by which intervals widen because of variation between combinations, besides units."""
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
    """Return the intervals of values that the test does not reject."""
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


_SAME = 1e-9  # relative; weights that differ by less are the same
# The number of cases that differ: as many alike as have the same kurtosis. Of more, or of a larger part, signs suffice.
_FEW, _RARE = 40, 0.25
_CHANCE = 2.0  # standard deviations of the excess of missing cells, if all combinations lack as many


@frozen
class LostCells:
    """Missing cells of a table.

    Attributes:
        reasons: Reason -> the share of each cell that is missing (cases x combinations, 0 to 1).
        ends: The lowest and the highest score that they could have.
        better: Whether higher or lower scores are better.
    """

    reasons: Mapping[str, Floats]
    ends: Interval
    better: Better = "higher"

    def nearer(self, effects: Floats, weights: Floats, filled: Floats) -> Floats:
        """Return by how much each effect moves towards 0 with the excess of missing cells at the worst score.

        Args:
            effects: The effects.
            weights: Combinations x effects: by how much a cell moves an effect if it is higher by 1.
            filled: Cases x combinations: scores, and expected values of missing ones.
        """
        return np.array([self._nearer(effect, weights[:, n], filled) for n, effect in enumerate(effects.tolist())])

    def _nearer(self, effect: float, weights: Floats, filled: Floats) -> float:
        is_higher = self.better == "higher"
        signed = weights * np.sign(effect) * (1 if is_higher else -1)
        too_good = signed > 0  # combinations whose worst scores would bring the effect nearer to 0
        away = filled - self.ends[0] if is_higher else self.ends[1] - filled  # from the worst score
        excess = 0.0
        for lost in self.reasons.values():
            mass = lost * np.abs(signed)
            more = float(mass[:, too_good].sum() - mass[:, signed < 0].sum())
            beyond = max(0.0, more - _CHANCE * math.sqrt(float((mass**2).sum())))
            excess += _costliest(mass[:, too_good].ravel(), away[:, too_good].ravel(), beyond)
        return excess


def _costliest(mass: Floats, cost: Floats, limit: float) -> float:
    """Return the cost of `limit` of a mass, the most expensive part first."""
    order = np.argsort(-cost, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    return float((np.clip(limit - before, 0.0, mass[order]) * cost[order]).sum())


def nearer_unseen(
    effects: Floats, influence: Floats, shares: Floats, weights: Floats, span: float | None = None
) -> Floats:
    """Return by how much each effect moves towards 0 with results that are too rare to occur in these cases.

    That is one more case that shows the opposite, if few cases differ; and all of it, if one lost case could cancel
    everything else and is so rare that it need not occur (`unseen_losses`).

    Args:
        effects: The effects.
        influence: Effects x units: how far each moves its effect.
        shares: Effects x units: the part of the comparisons that each has.
        weights: Combinations x effects: by how much a cell moves an effect if it is higher by 1.
        span: The largest possible difference of two scores; None if unlimited.
    """
    each = np.sign(effects)[:, None] * (influence + shares * effects[:, None])
    largest, gain = np.abs(each).max(axis=1, initial=0.0), np.maximum(each.max(axis=1, initial=0.0), 0.0)
    squares = (each / np.where(largest > 0, largest, 1.0)[:, None]) ** 2
    alike = _divided(squares.sum(axis=1) ** 2, (squares**2).sum(axis=1), np.inf)
    up, down = (np.maximum(side * weights, 0.0).max(axis=0, initial=0.0) for side in (1, -1))
    ratio = _divided(np.maximum(up, down), np.minimum(up, down), 1.0)
    is_rare = alike < min(_FEW, _RARE * each.shape[1])
    nearer = np.where(is_rare & (ratio > 1 + _SAME), ratio * gain, 0.0)
    if span is None:
        return np.asarray(nearer)
    loss = span * np.maximum(weights, 0.0).sum(axis=0) * RULE_OF_THREE / max(each.shape[1], 1)
    return np.asarray(np.where((gain > 0) & (gain < loss * (1 - ROUNDING)), np.abs(effects), nearer))


def _divided(values: Floats, by: Floats, otherwise: float) -> Floats:
    return np.asarray(np.divide(values, by, out=np.full(len(values), otherwise), where=by > 0))
