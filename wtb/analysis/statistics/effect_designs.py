"""Designs of effects: columns for factors and pairs, and least squares within cases, of which cells may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.effect_tests import Evidence, LostCells, nearer_unseen
from wtb.analysis.statistics.intervals import Floats, Units
from wtb.core.frozen import frozen

Levels = NDArray[np.int64]  # combinations x factors; OUTSIDE where a combination's variant lacks the factor
OUTSIDE = -1
RANK = 1e-9  # relative; a direction of the design with less information is not there


@frozen
class Block:
    """A factor or a pair of factors.

    Attributes:
        factors: The numbers of the factors.
        columns: Combinations x coefficients, 0 where a combination lacks the factor.
        expansion: Effects x coefficients.
        cells: For each effect, the levels of the factors.
    """

    factors: tuple[int, ...]
    columns: Floats
    expansion: Floats
    cells: Sequence[tuple[int, ...]]


def main_block(levels: Levels, number: int) -> Block:
    """Return sum-to-zero columns of a factor: the last level is the negative sum of the others."""
    column = levels[:, number]
    last = int(column.max())
    expansion = np.vstack([np.eye(last), -np.ones((1, last))])
    columns = np.where(column[:, None] == OUTSIDE, 0.0, expansion[column])
    return Block((number,), columns, expansion, [(level,) for level in range(last + 1)])


def pair_block(levels: Levels, a: int, b: int) -> Block:
    """Return the columns of the interaction of two factors, for the levels that occur with the other."""
    both = (levels[:, [a, b]] != OUTSIDE).all(axis=1)
    own = [np.unique(levels[both, number]) for number in (a, b)]
    coded = np.full((len(levels), 2), OUTSIDE, dtype=np.int64)
    for place, (number, some) in enumerate(zip((a, b), own, strict=True)):
        coded[both, place] = np.searchsorted(some, levels[both, number])
    block = _product_block(main_block(coded, 0), main_block(coded, 1))
    cells = [(int(own[0][level]), int(own[1][other])) for level, other in block.cells]
    return Block((a, b), block.columns, block.expansion, cells)


def _product_block(a: Block, b: Block) -> Block:
    columns = (a.columns[:, :, None] * b.columns[:, None, :]).reshape(len(a.columns), -1)
    cells = [(*cell, *other) for cell in a.cells for other in b.cells]
    return Block(
        (*a.factors, *b.factors), columns, np.asarray(np.kron(a.expansion, b.expansion), dtype=np.float64), cells
    )


def estimable_part(block: Block, blocks: Sequence[Block], levels: Levels) -> Block | None:
    """Return the estimable part of a pair beyond other blocks; None if nothing is estimable.

    An effect is the mean over the combinations with these levels. Levels that never meet have none.
    """
    remainder = beyond(block.columns, stack(blocks, len(levels)))
    vectors, values, _ = np.linalg.svd(remainder, full_matrices=False)
    basis = vectors[:, values > 1e-7 * max(float(np.abs(block.columns).max()), 1e-300)]
    if not basis.shape[1]:
        return None
    some = levels[:, list(block.factors)]
    met = [cell for cell in block.cells if (some == cell).all(axis=1).any()]
    means = [basis[(some == cell).all(axis=1)].mean(axis=0) for cell in met]
    return Block(block.factors, basis, np.array(means), met)


def stack(blocks: Iterable[Block], rows: int) -> Floats:
    """Return the columns of blocks beside a column of ones."""
    return np.hstack([np.ones((rows, 1)), *(block.columns for block in blocks)])


def rank(design: Floats) -> int:
    """Return the number of independent directions of a design."""
    if design.shape[1] == 0:
        return 0
    # The smaller of the two products has the same nonzero eigenvalues.
    gram = design.T @ design if design.shape[1] <= design.shape[0] else design @ design.T
    values = np.linalg.eigvalsh(gram)
    return int((values > RANK * max(values[-1], 1e-300)).sum())


def complement(design: Floats) -> Floats:
    """Return orthonormal columns for all differences of combinations beyond a design of independent columns."""
    return np.asarray(np.linalg.qr(design, mode="complete")[0][:, design.shape[1] :])


def aliased_factors(mains: Sequence[Block]) -> list[list[int]]:
    """Return groups of factors that the combinations cannot separate, because they always change together."""
    rows = len(mains[0].columns)
    width = sum(block.columns.shape[1] for block in mains) + 1
    everything = rank(stack(mains, rows))
    if everything == width:
        return []
    ranks = [rank(stack((other for other in mains if other is not block), rows)) for block in mains]
    return _grouped(
        [block for block, other in zip(mains, ranks, strict=True) if everything - other < block.columns.shape[1]]
    )


def _grouped(aliased: Sequence[Block]) -> list[list[int]]:
    """Group aliased factors by which of them become estimable if another one is left out."""
    groups: list[set[int]] = []
    for number, block in enumerate(aliased):
        together = {block.factors[0]}
        for other in aliased[number + 1 :]:
            both = np.hstack([block.columns, other.columns])
            if rank(stack([block, other], len(block.columns))) < both.shape[1] + 1:
                together.add(other.factors[0])
        joined = [group for group in groups if group & together]
        groups = [group for group in groups if group not in joined] + [together.union(*joined)]
    alone = [group for group in groups if len(group) == 1]
    if alone:  # of three and more, any two of which can be distinguished
        groups = [group for group in groups if len(group) > 1] + [set().union(*alone)]
    return sorted(sorted(group) for group in groups)


def is_crossed(levels: Levels, factors: Sequence[int]) -> bool:
    """Return whether all levels of these factors meet the same combinations of the other factors.

    If so, effects are averages over those, and no effect of another factor can be mistaken for one of these. Factors
    nested in these may differ, if all of their levels meet the same.
    """
    present = levels[(levels[:, list(factors)] != OUTSIDE).all(axis=1)]
    own = _numbered(present[:, list(factors)])
    if len(factors) > 1 and own.max() + 1 < np.prod([len(np.unique(present[:, number])) for number in factors]):
        return False
    other_factors = [number for number in range(levels.shape[1]) if number not in factors]
    nested = _nested_factors(present, other_factors, own)
    rest = _numbered(present[:, [number for number in other_factors if number not in nested]])
    within = _numbered(np.column_stack([own, present[:, nested]]))
    meets = np.zeros((within.max() + 1, rest.max() + 1), dtype=np.bool_)
    meets[within, rest] = True
    return bool(meets.all())


def _numbered(rows: Levels) -> Levels:
    """Return a number for each row, the same for equal ones."""
    if not rows.shape[1]:
        return np.zeros(len(rows), dtype=np.int64)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _nested_factors(levels: Levels, candidates: Sequence[int], own: Levels) -> list[int]:
    """Return the factors that are nested in levels, by number, or in other nested factors."""
    nested: list[int] = []
    # A factor may be nested in one that is nested itself, so this repeats until nothing is added.
    while True:
        within = _numbered(np.column_stack([own, levels[:, nested]]))
        more = [n for n in candidates if n not in nested and _is_nested(levels[:, n] == OUTSIDE, within)]
        if not more:
            return nested
        nested += more


def _is_nested(outside: NDArray[np.bool_], own: Levels) -> bool:
    """Return whether the levels of other factors, by number, determine whether a combination has a factor."""
    if outside.all() or not outside.any():
        return False
    lacking = np.bincount(own, weights=outside)
    return bool(((lacking == 0) | (lacking == np.bincount(own))).all())


def is_candidate(levels: Levels, a: int, b: int) -> bool:
    """Return whether two factors can interact: among combinations that have both, each has several levels."""
    both = levels[(levels[:, a] != OUTSIDE) & (levels[:, b] != OUTSIDE)]
    return len(both) > 0 and all(np.ptp(both[:, number]) > 0 for number in (a, b))


def lacks_meetings(levels: Levels, a: int, b: int) -> bool:
    """Return whether some levels of two factors never meet."""
    both = levels[(levels[:, a] != OUTSIDE) & (levels[:, b] != OUTSIDE)][:, [a, b]]
    return len(np.unique(both, axis=0)) < len(np.unique(both[:, 0])) * len(np.unique(both[:, 1]))


def beyond(columns: Floats, design: Floats) -> Floats:
    """Return the parts of columns that a design does not explain."""
    return np.asarray(columns - design @ np.linalg.lstsq(design, columns, rcond=RANK)[0])


_ROUNDING = 1e-10  # of the largest score; a smaller effect comes from solving for it


@frozen
class CaseScores:
    """Scores minus the mean of each case over the combinations that it has.

    Attributes:
        centred: Cases x combinations, 0 where missing.
        present: Cases x combinations, 0 or 1.
        patterns: The distinct rows of `present`: few, since most cases lack nothing.
        repeats: How many cases have each pattern.
        units: The cluster of each case.
        weights: The share of the comparisons within cases that each unit has.
        middles: The mean of each case.
        lost: The missing cells; None if there are none.
        span: The largest possible difference of two scores; None if unlimited.
    """

    centred: Floats
    present: Floats
    patterns: Floats
    repeats: Floats
    units: Units
    weights: Floats
    middles: Floats
    lost: LostCells | None = None
    span: float | None = None

    @classmethod
    def of(cls, scores: Floats, units: Units, lost: LostCells | None = None, span: float | None = None) -> CaseScores:
        """Read combinations x cases, NaN where missing."""
        is_compared = np.isfinite(scores).sum(axis=0) >= 2  # a case with one combination compares nothing
        scores = scores[:, is_compared].T
        present = np.isfinite(scores)
        counts = present.sum(axis=1, keepdims=True)
        filled = np.where(present, scores, 0.0)
        middles = filled.sum(axis=1, keepdims=True) / np.maximum(counts, 1)
        filled = np.where(present, filled - middles, 0.0)
        patterns, repeats = np.unique(present, axis=0, return_counts=True)
        units = None if units is None else np.unique(units[is_compared], return_inverse=True)[1]
        compared = (counts[:, 0] - 1).astype(float)
        weights = by_unit(compared[:, None], units)[:, 0] / max(compared.sum(), 1.0)
        if lost is not None:
            lost = replace(lost, reasons={reason: share[is_compared] for reason, share in lost.reasons.items()})
        shapes = (present.astype(float), patterns.astype(float), repeats.astype(float))
        return cls(filled, *shapes, units, weights, middles[:, 0], lost, span)

    def adjusted_means(self) -> Floats:
        """Return the mean of each combination, as if it had met all cases, minus the mean of all combinations."""
        sums = self.centred.sum(axis=0)
        # Without missing cells this is a plain mean, and much cheaper than solving a system of all combinations.
        if self.present.all():
            return np.asarray(sums / len(self.present))
        information = self.information(np.eye(len(sums)))
        if self._is_connected():
            # Differences determine means up to a constant; adding one direction makes the matrix regular, which is
            # faster than a pseudoinverse.
            information += np.full_like(information, float(np.trace(information)) / len(sums) ** 2)
            means = np.linalg.solve(information, sums)
        else:
            means = np.linalg.pinv(information, rcond=RANK, hermitian=True) @ sums
        return np.asarray(means - means.mean())

    def _is_connected(self) -> bool:
        """Return whether cases compare, over several steps, any two combinations."""
        reached = self.patterns[0] > 0
        while True:
            wider = (self.patterns[(self.patterns @ reached) > 0].sum(axis=0) > 0) | reached
            if (wider == reached).all():
                return bool(reached.all())
            reached = wider

    def residuals(self, fitted: Floats) -> Floats:
        """Return scores minus fitted values, both centred by case; cases x combinations."""
        return np.asarray(self.centred - self.demeaned(fitted))

    def demeaned(self, fitted: Floats) -> Floats:
        """Return values of the combinations, centred by case; 0 where a case lacks a combination."""
        means = self.present @ fitted / np.maximum(self.present.sum(axis=1), 1)
        return np.asarray(self.present * (fitted - means[:, None]))

    def information(self, design: Floats, other: Floats | None = None) -> Floats:
        """Return sums of squares and products of designs within cases."""
        other = design if other is None else other
        weights = self.repeats / np.maximum(self.patterns.sum(axis=1), 1)
        squares = (design * self.present.sum(axis=0)[:, None]).T @ other
        return np.asarray(squares - (self.patterns @ design * weights[:, None]).T @ (self.patterns @ other))


def by_unit(contributions: Floats, units: Units) -> Floats:
    """Return the sums of cases over their units: units x columns."""
    if units is None:
        return contributions
    sums = np.zeros((int(units.max(initial=-1)) + 1, contributions.shape[1]))
    np.add.at(sums, units, contributions)
    return sums


class Model:
    """Blocks that are fitted together.

    Args:
        cases: The scores.
        blocks: Whose columns are independent of each other and of a constant.
    """

    def __init__(self, cases: CaseScores, blocks: Sequence[Block]) -> None:
        self._cases, self._blocks = cases, list(blocks)
        self._design = np.hstack([block.columns for block in blocks])
        information = cases.information(self._design)
        self._inverse = np.linalg.pinv(information, rcond=RANK, hermitian=True)
        self._coefficients = self._inverse @ (self._design.T @ cases.centred.sum(axis=0))
        self._fitted = self._design @ self._coefficients
        self._residuals = cases.residuals(self._fitted)

    def part(self, block: Block) -> Floats:
        """Return the contribution of a block to the mean of each combination."""
        return np.asarray(block.columns @ self._coefficients[self._place(block)])

    def evidence(self, block: Block) -> Evidence:
        """Return the effects of a block with the contributions of units."""
        place = self._place(block)
        coefficients = self._coefficients[place]
        moves = self._design @ self._inverse[:, place]
        influence = by_unit(self._residuals @ moves, self._cases.units)
        cleaned = self._cleaned(block.expansion @ coefficients, block.expansion @ influence.T)
        weights = moves @ block.expansion.T
        nearer = nearer_unseen(cleaned.effects, cleaned.influence, cleaned.weights, weights, self._cases.span)
        if self._cases.lost is not None:
            nearer = nearer + self._cases.lost.nearer(cleaned.effects, weights, self._filled)
        return replace(cleaned, nearer=nearer)

    @cached_property
    def _filled(self) -> Floats:
        """Scores, with the model's expectation for missing ones; cases x combinations."""
        cases = self._cases
        means = cases.present @ self._fitted / np.maximum(cases.present.sum(axis=1), 1)
        expected = cases.middles[:, None] + self._fitted - means[:, None]
        return np.where(cases.present > 0, cases.middles[:, None] + cases.centred, expected)

    def beyond(self) -> tuple[Floats, Floats]:
        """Return contributions to the directions outside of the model, and their variance in excess of chance.

        The first is units x directions, whose sums are the estimates.
        """
        cases = self._cases
        rest = complement(stack(self._blocks, len(self._design)))
        if not rest.shape[1]:
            return np.zeros((len(cases.weights), 0)), np.zeros(0)
        slope = self._inverse @ cases.information(self._design, rest)
        scale = cases.present.sum() / cases.present.shape[1]
        each = by_unit(self._residuals @ (rest - self._design @ slope), cases.units) / scale
        each[np.abs(each) <= _ROUNDING * self._scale() / len(each)] = 0.0
        estimates = each.sum(axis=0)
        chance = ((each - estimates * cases.weights[:, None]) ** 2).sum(axis=0)
        return each, np.asarray(estimates**2 - chance)

    def leverage(self, block: Block) -> Floats:
        """Return the variance of each effect of a block if the means of combinations vary by 1 around the model."""
        place = self._place(block)
        return np.asarray(((block.expansion @ self._gram_inverse[place, place]) * block.expansion).sum(axis=1))

    @cached_property
    def _gram_inverse(self) -> Floats:
        centred = self._design - self._design.mean(axis=0)
        return np.asarray(np.linalg.pinv(centred.T @ centred, rcond=RANK, hermitian=True))

    def _place(self, block: Block) -> slice:
        start = 0
        for other in self._blocks:
            if other is block:
                return slice(start, start + block.columns.shape[1])
            start += other.columns.shape[1]
        raise KeyError(block.factors)

    def _scale(self) -> float:
        return float(np.abs(self._cases.centred).max(initial=0.0))

    def _cleaned(self, effects: Floats, influence: Floats) -> Evidence:
        """Set values that come from rounding to 0."""
        small = _ROUNDING * self._scale()
        effects = np.where(np.abs(effects) <= small, 0.0, effects)
        noise = np.abs(influence).sum(axis=1, keepdims=True) <= small
        return Evidence(effects, np.where(noise, 0.0, influence), np.broadcast_to(self._cases.weights, influence.shape))
