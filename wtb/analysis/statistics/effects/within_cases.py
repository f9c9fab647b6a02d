"""Least squares with an effect for each case, so that cells may be missing: a case compares what it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from wtb.analysis.statistics.effects.blocks import Block, complement, stack
from wtb.analysis.statistics.effects.joint_tests import Evidence
from wtb.analysis.statistics.effects.unshown import LostCells, nearer_unseen
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.units import Units
from wtb.core.classes.frozen import frozen

_ROUNDING = 1e-10  # of the largest score; a smaller effect comes from solving for it
_RANK = 1e-9  # relative; a direction of the design with less information is not there


@frozen
class CaseScores:
    """Scores with the mean of each case taken away, over the combinations that it has.

    Attributes:
        centred: Cases x combinations, 0 where missing.
        present: Cases x combinations, 0 or 1.
        patterns: The different rows of `present`: few, since most cases lack nothing.
        repeats: How many cases have each pattern.
        units: The cluster of each case.
        weights: The share of the comparisons within cases that each unit has.
        middles: The mean of each case.
        lost: The cells that are missing and should not be; None if there are none.
        span: How far two scores can be apart; None if nothing limits it.
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
        """Return the mean of each combination, had it met all cases, less the mean of all combinations."""
        sums = self.centred.sum(axis=0)
        if self.present.all():
            return np.asarray(sums / len(self.present))
        information = self.information(np.eye(len(sums)))
        if self._is_connected():
            information += np.full_like(information, float(np.trace(information)) / len(sums) ** 2)
            means = np.linalg.solve(information, sums)
        else:
            means = np.linalg.pinv(information, rcond=_RANK, hermitian=True) @ sums
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
        """Return scores less fitted values, both with the mean of the case taken away; cases x combinations."""
        return np.asarray(self.centred - self.demeaned(fitted))

    def demeaned(self, fitted: Floats) -> Floats:
        """Return values of the combinations, less their mean in each case; 0 where a case lacks a combination."""
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
        self._inverse = np.linalg.pinv(information, rcond=_RANK, hermitian=True)
        self._coefficients = self._inverse @ (self._design.T @ cases.centred.sum(axis=0))
        self._fitted = self._design @ self._coefficients
        self._residuals = cases.residuals(self._fitted)

    def part(self, block: Block) -> Floats:
        """Return what a block adds to the mean of each combination."""
        return np.asarray(block.columns @ self._coefficients[self._place(block)])

    def evidence(self, block: Block) -> Evidence:
        """Return the effects of a block, and what each unit says of them."""
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
        """Scores, and what the model expects of missing ones; cases x combinations."""
        cases = self._cases
        means = cases.present @ self._fitted / np.maximum(cases.present.sum(axis=1), 1)
        expected = cases.middles[:, None] + self._fitted - means[:, None]
        return np.where(cases.present > 0, cases.middles[:, None] + cases.centred, expected)

    def beyond(self) -> tuple[Floats, Floats]:
        """Return what each unit says of the directions that the model leaves, and the variance there, less chance.

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
        return np.asarray(np.linalg.pinv(centred.T @ centred, rcond=_RANK, hermitian=True))

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
        """Leave out what comes from rounding."""
        small = _ROUNDING * self._scale()
        effects = np.where(np.abs(effects) <= small, 0.0, effects)
        noise = np.abs(influence).sum(axis=1, keepdims=True) <= small
        return Evidence(effects, np.where(noise, 0.0, influence), np.broadcast_to(self._cases.weights, influence.shape))
