"""Effects of factors and pairs of factors on scores.

Under sum-to-zero coding an effect is how far a level lies from the mean of its factor's levels, the others being equal;
for a nested factor, within the combinations that have it. Scores are fitted by least squares with an effect for each
case. The estimable effects depend on the combinations:

- If all pairs can be separated from factors and from each other, everything is fitted together.
- Otherwise factors are fitted without pairs, and each pair beside the factors. The variance that such a fit leaves
between the means of combinations counts as noise of the effects that it could be mistaken for (`is_crossed` decides
which).
- Factors some of whose levels never meet are separated only if the pair shows no sign of an interaction, and no factor
is if the combinations leave nothing to measure that noise by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wtb.analysis.statistics.effect_designs import (
    Block,
    CaseScores,
    Levels,
    Model,
    aliased_factors,
    beyond,
    estimable_part,
    is_candidate,
    is_crossed,
    lacks_meetings,
    main_block,
    pair_block,
    rank,
    stack,
)
from wtb.analysis.statistics.effect_tests import Evidence, LostCells, Tested, joint_tests, sum_test
from wtb.analysis.statistics.intervals import Floats, Units
from wtb.core.frozen import frozen

MOST_PAIRS = 30
_FREEDOM = 4  # degrees of freedom that are left between combinations, from which on their noise can be measured
_SPENT = 0.9  # of the level of several tests; those of pass-or-fail scores may reject a little more than theirs
_ACTS = 0.2  # p of pairs some of whose levels never meet, from which on their factors are told apart


@frozen
class Effects:
    """Effects of a factor (one for each level) or of a pair (one for each two levels that meet).

    Attributes:
        factors: The numbers of the factors.
        cells: For each effect, the levels of the factors.
        share: The share of the variance of the combinations' means.
        p: The p-value of the factor or pair as a whole.
        p_adjusted: The corrected p-value.
        means: The effects.
        ci: Their intervals, which hold simultaneously with those of everything else.
    """

    factors: tuple[int, ...]
    cells: Sequence[tuple[int, ...]]
    share: float
    p: float
    p_adjusted: float
    means: Floats
    ci: Floats


@frozen
class Fit:
    """The effects that the combinations can estimate.

    Attributes:
        factors: Effects of factors, in their order.
        pairs: Effects of pairs, in the order of the factors.
        unexplained: The share of the variance of the combinations' means that comes from neither.
        unexplained_p: The p-value of that share; None if the combinations leave nothing to test.
        aliased: Groups of factors that cannot be separated from each other.
        apart: Factors whose effect cannot be separated from their interactions.
        untold: Pairs whose interaction the combinations cannot estimate.
        candidates: How many pairs there are to test.
        left_out: How many of them are left out because there are too many.
        families: The correction factors of p: of factors, and of pairs.
    """

    factors: list[Effects]
    pairs: list[Effects]
    unexplained: float
    unexplained_p: float | None
    aliased: list[list[int]]
    apart: list[int]
    untold: list[tuple[int, int]]
    candidates: int
    left_out: int
    families: tuple[float, float]


@frozen
class _Measured:
    """A block with its estimates from a model."""

    block: Block
    evidence: Evidence
    part: Floats


def fit(
    scores: Floats,
    levels: Levels,
    seed: int,
    units: Units = None,
    lost: LostCells | None = None,
    span: float | None = None,
) -> Fit:
    """Estimate and test effects of factors and of pairs of them.

    Args:
        scores: Combinations x cases, NaN where missing; the means of combinations vary.
        levels: Combinations x factors; each factor has levels 0 to its highest, at least two, -1 where a combination
            has none.
        seed: The seed of the random signs.
        units: For each case the number of its cluster; by default each case is its own unit.
        lost: The missing cells of the same cases.
        span: The largest possible difference of two scores; None if unlimited.
    """
    cases = CaseScores.of(scores, units, lost, span)
    mains = [main_block(levels, number) for number in range(levels.shape[1])]
    aliased = aliased_factors(mains)
    unclear = {number for group in aliased for number in group}
    nuisance = _independent(mains, unclear, len(levels))
    separable = [block for block in mains if block.factors[0] not in unclear]
    means = cases.adjusted_means()
    spread = float(means.var()) or math.inf
    alone = Model(cases, [*separable, *nuisance])
    shares = [float(alone.part(block).var()) for block in separable]
    candidates = [
        (a.factors[0], b.factors[0])
        for a, b in itertools.combinations(separable, 2)
        if is_candidate(levels, a.factors[0], b.factors[0])
    ]
    tested_pairs = _choose_pairs(candidates, dict(zip((block.factors[0] for block in separable), shares, strict=True)))
    pairs = [pair_block(levels, a, b) for a, b in tested_pairs]
    plan = _together(cases, levels, [*separable, *nuisance], separable, pairs)
    plan = plan or _apart(cases, levels, alone, separable, nuisance, pairs)
    count = len(candidates) if plan.pairs else 0
    factor_family, pair_family = _families(len(separable), count + plan.has_beyond)
    blocks = [*plan.factors, *plan.pairs]
    families = [factor_family] * len(plan.factors) + [pair_family] * len(plan.pairs)
    tests = joint_tests([measured.evidence for measured in blocks], families, seed)
    effects = [_effects(measured, tested, spread) for measured, tested in zip(blocks, tests, strict=True)]
    mine, together = effects[: len(plan.factors)], effects[len(plan.factors) :]
    apart = plan.apart | _acting(levels, together)
    return Fit(
        factors=[effect for effect in mine if effect.factors[0] not in apart],
        pairs=together,
        unexplained=float((means - means.mean() - plan.fitted).var()) / spread if math.isfinite(spread) else 0.0,
        unexplained_p=None if not plan.has_beyond else min(1.0, sum_test(plan.beyond, seed) * pair_family),
        aliased=aliased,
        apart=sorted(apart),
        untold=[pair for pair in tested_pairs if pair not in [effect.factors for effect in together]],
        candidates=len(candidates),
        left_out=len(candidates) - len(tested_pairs),
        families=(factor_family, pair_family),
    )


@frozen
class _Plan:
    """A fit: effects, their fitted means, factors without estimates, and contributions beyond the model."""

    factors: list[_Measured]
    pairs: list[_Measured]
    fitted: Floats
    apart: set[int]
    beyond: Floats
    has_beyond: bool


def _together(
    cases: CaseScores, levels: Levels, mains: list[Block], separable: list[Block], pairs: list[Block]
) -> _Plan | None:
    """Fit everything together; None if the combinations do not separate all pairs from factors and from each other."""
    blocks = [*mains, *pairs]
    width = sum(block.columns.shape[1] for block in blocks) + 1
    if width > len(levels) or rank(stack(blocks, len(levels))) < width:
        return None
    free = len(levels) - width
    tested_blocks = [*separable, *pairs]
    crossed = [is_crossed(levels, block.factors) for block in tested_blocks]
    if free < _FREEDOM and not all(crossed):
        return None
    model = Model(cases, blocks)
    contributions, excess = model.beyond()
    measured = [
        _measure(model, block, excess, is_average=average)
        for block, average in zip(tested_blocks, crossed, strict=True)
    ]
    fitted = sum((model.part(block) for block in blocks), np.zeros(len(levels)))
    return _Plan(
        measured[: len(separable)], measured[len(separable) :], fitted - fitted.mean(), set(), contributions, free > 0
    )


def _apart(
    cases: CaseScores, levels: Levels, alone: Model, separable: list[Block], nuisance: list[Block], pairs: list[Block]
) -> _Plan:
    """Fit factors without pairs, and each pair beside the factors."""
    mains = [*separable, *nuisance]
    excess = alone.beyond()[1]
    factors, apart = [], set[int]()
    for block in separable:
        average = is_crossed(levels, block.factors)
        if average or len(excess) >= _FREEDOM or (len(separable) == 2 and len(excess)):
            factors.append(_measure(alone, block, excess, is_average=average))
        else:
            apart.add(block.factors[0])
    measured = []
    fitted = sum((alone.part(block) for block in mains), np.zeros(len(levels)))
    for pair in pairs:
        part = estimable_part(pair, mains, levels)
        if part is None:
            continue
        model = Model(cases, [*mains, part])
        pair_excess = model.beyond()[1]
        average = is_crossed(levels, pair.factors) or levels.shape[1] == 2
        if average or len(pair_excess) >= _FREEDOM:
            measured.append(_measure(model, part, pair_excess, is_average=average))
            fitted = fitted + model.part(part)
    return _Plan(factors, measured, fitted - fitted.mean(), apart, np.zeros((0, 0)), has_beyond=False)


def _measure(model: Model, block: Block, excess: Floats, *, is_average: bool) -> _Measured:
    """Return the estimates of a block, with the noise of combinations unless it averages over them."""
    evidence = model.evidence(block)
    if not is_average and len(excess):
        noise = max(0.0, float(excess.mean())) * model.leverage(block)
        evidence = replace(evidence, noise=noise, freedom=len(excess))
    return _Measured(block, evidence, model.part(block))


def _effects(measured: _Measured, tested: Tested, spread: float) -> Effects:
    share = min(float(measured.part.var()) / spread, 1.0)
    block = measured.block
    return Effects(block.factors, block.cells, share, tested.p, tested.p_adjusted, measured.evidence.effects, tested.ci)


def _independent(mains: Sequence[Block], aliased: set[int], rows: int) -> list[Block]:
    """Return independent columns for the joint effects of aliased factors."""
    separable = [block for block in mains if block.factors[0] not in aliased]
    columns = [block.columns for block in mains if block.factors[0] in aliased]
    if not columns:
        return []
    remainder = beyond(np.hstack(columns), stack(separable, rows))
    vectors, values, _ = np.linalg.svd(remainder, full_matrices=False)
    basis = vectors[:, values > 1e-7 * max(float(values.max(initial=0.0)), 1e-300)]
    return [Block((), basis, np.zeros((0, basis.shape[1])), [])] if basis.shape[1] else []


def _choose_pairs(candidates: Sequence[tuple[int, int]], shares: dict[int, float]) -> list[tuple[int, int]]:
    """Choose at most 30 pairs: those of the factors that explain most, of equal ones the first."""
    if len(candidates) <= MOST_PAIRS:
        return list(candidates)
    order = {factor: place for place, factor in enumerate(sorted(shares, key=lambda number: (-shares[number], number)))}
    ranked = sorted(candidates, key=lambda pair: sorted((order[pair[0]], order[pair[1]]), reverse=True))
    return sorted(ranked[:MOST_PAIRS])


def _families(factors: int, pairs: int) -> tuple[float, float]:
    """Return the factors by which p-values of factors and of pairs are multiplied (Bonferroni's correction).

    Each of several tests has the same part of the level, but factors have at least a third and at most half of it: many
    pairs leave them some, and the pair of two factors has as much as both.

    Args:
        factors: The estimated factors.
        pairs: All candidates, because the choice of pairs depends on the scores, plus one for the rest of the model.
    """
    if factors + pairs <= 1:
        return 1.0, 1.0
    part = min(max(factors / (factors + pairs), 1 / 3), 1 / 2) if pairs else 1.0
    return factors / part / _SPENT, (pairs / (1 - part) if pairs else 1.0) / _SPENT


def _acting(levels: Levels, pairs: Sequence[Effects]) -> set[int]:
    """Return factors some of whose levels never meet, if they may interact: their effects there are unknown."""
    some = [pair for pair in pairs if lacks_meetings(levels, *pair.factors)]
    return {factor for pair in some if pair.p * len(some) < _ACTS for factor in pair.factors}
