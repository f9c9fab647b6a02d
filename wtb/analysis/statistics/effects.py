"""Main effects of nodes and interactions of pairs of nodes, with the case as the block.

Scores are fitted by least squares with an effect for each case, so that cells may be missing: a case compares the
combinations that it has. Under sum-to-zero coding an effect is how far a variant lies from the middle of its node's,
the others being equal. A node, or a pair, is tested as a whole, given everything else, by flipping the signs of what
each unit contributes to its score (Hemerik, Goeman & Finos 2020); for complete balanced sweeps that is Fisher's (1935)
test of the effects of each case. What is left beyond nodes and pairs is tested in the same way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import RESAMPLES, Floats, chunks, intervals
from wtb.analysis.statistics.paired import EXACT_PAIRS, Signs, flips, holm
from wtb.analysis.statistics.units import Units

Levels = NDArray[np.int64]
MAX_PAIRS = 66  # of nodes: twelve nodes
_ROUNDING = 1e-10  # of the largest score; a smaller effect comes from solving for it
_RANK = 1e-9  # relative; a direction of the design with less information is not there
_ACTS = 0.2  # p of a pair from which on its nodes are told apart as if it did not act together
_SLACK = 1e-5  # relative; sums of squares, in single precision, that differ by less are the same


@dataclass(frozen=True)
class Effects:
    """Effects of one node (one entry a variant) or of a pair (variants x variants), flat, with their intervals.

    `factors` are the numbers of the nodes. `share` is of the variance of the combinations' means.
    """

    factors: tuple[int, ...]
    share: float
    p: float
    p_adjusted: float
    means: Floats
    ci: Floats


@dataclass(frozen=True)
class Fit:
    """What the combinations tell of the nodes.

    Attributes:
        nodes, pairs: effects, in the order of the nodes.
        unexplained: the share of the variance of the combinations' means that comes from neither; `unexplained_p`
            says whether that could be chance, None where the combinations leave nothing to test.
        aliased: nodes whose effects cannot be told from those of others; untold: the same of pairs.
    """

    nodes: list[Effects]
    pairs: list[Effects]
    unexplained: float
    unexplained_p: float | None
    aliased: list[int]
    untold: list[tuple[int, int]]


@dataclass(frozen=True)
class _Block:
    """One node or pair: its columns of the design, and how effects of its variants follow from their coefficients."""

    factors: tuple[int, ...]
    columns: Floats  # combinations x coefficients
    expansion: Floats  # effects x coefficients


def fit(scores: Floats, levels: Levels, seed: int, units: Units = None) -> Fit:
    """Estimate and test the effects of nodes on scores.

    Args:
        scores: combinations x cases, NaN where missing; the means of combinations vary.
        levels: combinations x nodes; every node has variants 0 to its highest, each in some combination, at least two.
        seed: of the random signs.
        units: for each case the number of its cluster; by default each case is a unit of its own.
    """
    cases = _Cases.of(scores, levels, units)
    mains = [_main(column, number) for number, column in enumerate(levels.T)]
    aliased = _aliased(mains)
    estimable = [block for block in mains if block.factors[0] not in aliased]
    products, untold = _estimable(mains, [_product(a, b) for a, b in itertools.combinations(estimable, 2)])
    means = cases.adjusted_means()
    spread = float(means.var()) or math.inf
    design = np.hstack([np.ones((len(levels), 1)), *(block.columns for block in [*mains, *products])])
    rest = _complement(design)
    beyond = [cases.contributions(rest, _columns([*mains, *products]))] if rest.shape[1] else []
    blocks = [*products, *estimable]
    alone = [_columns(other for other in [*mains, *products] if other is not block) for block in products]
    p = _flip(
        [cases.contributions(block.columns, others) for block, others in zip(products, alone, strict=True)] + beyond,
        seed,
    )
    # Where combinations were left out, a pair that acts together looks like effects of its nodes. Adjusting for it
    # costs the nodes most of their power, so only pairs that may act together are adjusted for.
    apart = [
        pair for pair, one in zip(products, p, strict=False) if not _is_partial(pair, mains, products) or one < _ACTS
    ]
    beside = [_columns(other for other in [*mains, *apart] if other is not block) for block in estimable]
    mine = _flip(
        [cases.contributions(block.columns, others) for block, others in zip(estimable, beside, strict=True)], seed
    )
    effects = []
    for block, others, one, corrected in zip(
        blocks, [*alone, *beside], [*p[: len(products)], *mine], [*holm(p[: len(products)]), *holm(mine)], strict=True
    ):
        estimate = cases.estimate(block, others)
        middle = estimate.mean(axis=1)
        part = block.columns @ np.linalg.lstsq(block.expansion, middle, rcond=None)[0]
        share = float(part.var()) / spread
        effects.append(Effects(block.factors, share, float(one), float(corrected), middle, intervals(estimate)))
    left = rest @ (rest.T @ means)
    return Fit(
        nodes=effects[len(products) :],
        pairs=effects[: len(products)],
        unexplained=float((left**2).mean()) / spread,
        unexplained_p=float(p[-1]) if beyond else None,
        aliased=aliased,
        untold=untold,
    )


@dataclass(frozen=True)
class _Cases:
    """Scores with the mean of each case taken away, over the combinations that it has.

    Attributes:
        centred: Cases x combinations, 0 where missing.
        present: Cases x combinations, 0 or 1.
        patterns: The different rows of `present`: few, since most cases lack nothing.
        repeats: How many cases have each pattern.
        units: The cluster of each case.
    """

    centred: Floats
    present: Floats
    patterns: Floats
    repeats: Floats
    units: Units

    @classmethod
    def of(cls, scores: Floats, levels: Levels, units: Units) -> _Cases:
        kept = np.isfinite(scores).sum(axis=0) >= 2  # a case with one combination compares nothing
        scores = scores[:, kept].T
        present = np.isfinite(scores)
        filled = np.where(present, scores, 0.0)
        filled = np.where(present, filled - filled.sum(axis=1, keepdims=True) / present.sum(axis=1, keepdims=True), 0.0)
        patterns, repeats = np.unique(present, axis=0, return_counts=True)
        return cls(
            filled,
            present.astype(float),
            patterns.astype(float),
            repeats.astype(float),
            None if units is None else np.unique(units[kept], return_inverse=True)[1],
        )

    def adjusted_means(self) -> Floats:
        """The mean of each combination, had it met all cases; all that tells combinations apart, not their level."""
        return self._coefficients(np.eye(self.present.shape[1]))

    def estimate(self, block: _Block, others: list[Floats]) -> Floats:
        """Effects x units: what each unit says of each effect of a block; their mean is the estimate."""
        design = np.hstack([block.columns, *others])
        coefficients = self._coefficients(design)
        residuals = self._residuals(design @ coefficients)
        influence = self._by_unit(residuals @ design) @ _inverse(self._information(design))
        pseudovalues = coefficients + len(influence) * influence
        effects = pseudovalues[:, : block.columns.shape[1]] @ block.expansion.T
        scale = float(np.abs(self.centred).max())
        effects[np.abs(effects) <= _ROUNDING * scale] = 0.0
        return np.asarray(effects.T)

    def contributions(self, columns: Floats, others: list[Floats]) -> Floats:
        """Directions x units: what each unit adds to the score of `columns`, beyond what the others explain."""
        rest = np.hstack(others) if others else np.zeros((len(columns), 0))
        residuals = self._residuals(rest @ self._coefficients(rest))
        both = np.hstack([columns, rest])
        information, width = self._information(both), columns.shape[1]
        slope = information[:width, width:] @ _inverse(information[width:, width:])
        scores = self._by_unit(residuals @ (columns - rest @ slope.T))
        values, vectors = np.linalg.eigh(information[:width, :width] - slope @ information[width:, :width])
        kept = values > _RANK * max(float(np.abs(information).max()), 1e-300)
        return np.asarray((scores @ (vectors[:, kept] / np.sqrt(values[kept]))).T)

    def _coefficients(self, design: Floats) -> Floats:
        return np.asarray(_inverse(self._information(design)) @ (design.T @ self.centred.sum(axis=0)))

    def _residuals(self, fitted: Floats) -> Floats:
        """Scores less fitted values, both with the mean of the case taken away; cases x combinations."""
        means = self.present @ fitted / self.present.sum(axis=1)
        return np.asarray(self.centred - self.present * (fitted - means[:, None]))

    def _information(self, design: Floats) -> Floats:
        """Sums of squares and products of the design within cases."""
        sums = self.patterns @ design
        weights = self.repeats / self.patterns.sum(axis=1)
        squares = (design * self.present.sum(axis=0)[:, None]).T @ design
        return np.asarray(squares - (sums * weights[:, None]).T @ sums)

    def _by_unit(self, contributions: Floats) -> Floats:
        if self.units is None:
            return contributions
        sums = np.zeros((int(self.units.max(initial=-1)) + 1, contributions.shape[1]))
        np.add.at(sums, self.units, contributions)
        return sums


def _inverse(information: Floats) -> Floats:
    return np.asarray(np.linalg.pinv(information, rcond=_RANK, hermitian=True)) if information.size else information


def _main(column: Levels, number: int) -> _Block:
    """Sum-to-zero columns of a node: the last variant is the negative sum of the others."""
    last = int(column.max())
    expansion = np.vstack([np.eye(last), -np.ones((1, last))])
    return _Block((number,), expansion[column], expansion)


def _product(a: _Block, b: _Block) -> _Block:
    columns = (a.columns[:, :, None] * b.columns[:, None, :]).reshape(len(a.columns), -1)
    return _Block((*a.factors, *b.factors), columns, np.asarray(np.kron(a.expansion, b.expansion), dtype=np.float64))


def _aliased(mains: list[_Block]) -> list[int]:
    """Nodes that bring less into the design than they have variants, since others always change with them."""
    one = np.ones((len(mains[0].columns), 1))
    rank = _rank(np.hstack([one, *(block.columns for block in mains)]))
    found = []
    for number, block in enumerate(mains):
        others = np.hstack([one, *(other.columns for other in mains if other is not block)])
        if rank - _rank(others) < block.columns.shape[1]:
            found.append(number)
    return found


def _estimable(mains: list[_Block], products: list[_Block]) -> tuple[list[_Block], list[tuple[int, int]]]:
    """Pairs of nodes of whose interaction the combinations tell anything, and those of which they tell nothing.

    A pair of which they tell only a part is kept: it has to stand beside its nodes, or what they do together where
    combinations were left out would be taken for what each does alone.
    """
    untold = [(block.factors[0], block.factors[1]) for block in products]
    if len(products) > MAX_PAIRS:
        return [], untold
    design = np.hstack([np.ones((len(mains[0].columns), 1)), *(block.columns for block in mains)])
    kept = []
    for block in products:
        wider = np.hstack([design, block.columns])
        if _rank(wider) > _rank(design):
            design = wider
            kept.append(block)
    return kept, [pair for pair in untold if pair not in [block.factors for block in kept]]


def _is_partial(pair: _Block, mains: list[_Block], products: list[_Block]) -> bool:
    """Return whether the combinations tell only a part of what a pair does together."""
    others = _columns(other for other in [*mains, *products] if other is not pair)
    rest = np.hstack([np.ones((len(pair.columns), 1)), *others])
    return _rank(np.hstack([rest, pair.columns])) < _rank(rest) + int(pair.columns.shape[1])


def _columns(blocks: Iterable[_Block]) -> list[Floats]:
    return [block.columns for block in blocks]


def _complement(design: Floats) -> Floats:
    """Orthonormal columns for what combinations can differ in beyond the design."""
    left, values, _ = np.linalg.svd(design, full_matrices=True)
    return np.asarray(left[:, int((values > _RANK * values[0]).sum()) :])


def _rank(design: Floats) -> int:
    return int(np.linalg.matrix_rank(design))


def _flip(groups: list[Floats], seed: int) -> Floats:
    """p of each group of contributions (directions x units): one random sign for all of a unit's; NaN for none."""
    p = np.full(len(groups), math.nan)
    tested = [number for number, group in enumerate(groups) if len(group)]
    if not tested:
        return p
    stacked = np.vstack([groups[number] for number in tested])
    starts = np.cumsum([0, *(len(groups[number]) for number in tested[:-1])])
    moved = (stacked[:, (stacked != 0).any(axis=0)] / (np.abs(stacked).max() or 1.0)).astype(np.float32)
    units = moved.shape[1]
    observed = np.add.reduceat(moved.sum(axis=1) ** 2, starts)[:, None] * (1 - _SLACK)

    def extreme(signs: Signs) -> NDArray[np.bool_]:
        sums = moved @ signs.T
        sums *= sums
        return np.asarray(np.add.reduceat(sums, starts, axis=0) >= observed)

    if units <= EXACT_PAIRS:
        signs = 1 - 2 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)
        p[tested] = extreme(signs.astype(np.float32)).mean(axis=1)
        return p
    rng = np.random.default_rng([abs(seed), 2])
    hits = np.ones(len(tested))
    for count in chunks(units):
        hits += extreme(flips(units, count, rng, np.float32)).sum(axis=1)
    p[tested] = hits / (RESAMPLES + 1)
    return p
