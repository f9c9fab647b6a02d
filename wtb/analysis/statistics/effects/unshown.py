"""By how much effects could be nearer to 0 than they seem, because of what is missing or too rare to show.

A level that fails where its answers would be wrong looks better than it is. So an effect has to be clear with the
excess of missing cells at the worst score: what the combinations that would look too good lack more than the others,
for the same reason, beyond two standard deviations of what chance alone makes. So a few cells that are missing at
random cost nothing, and neither do those of a level that looks worse, though it fails more often. What both lack
equally often is as likely to hide wrong answers of the one as of the other.

Where few cells differ from the rest of their cases, chance may have put all of them into combinations that lower an
effect of one level. The signs of what cases show cannot tell, because none shows the opposite: the effect has to be
clear with one more case in which one such cell is of a combination that raises it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from wtb.analysis.statistics.comparing import Better
from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval
from wtb.analysis.statistics.missing.unseen_losses import RULE_OF_THREE
from wtb.core.classes.frozen import frozen

_SAME = 1e-9  # relative; weights that differ by less are the same
# How many cases differ: as many alike as have the same kurtosis. Of more, or of a larger part, signs tell enough.
_FEW, _RARE = 40, 0.25
_CHANCE = 2.0  # standard deviations of the excess of missing cells, if all combinations lack as many


@frozen
class LostCells:
    """Cells that should have a score and have none.

    Attributes:
        reasons: Reason -> the share of each cell that is missing (cases x combinations, 0 to 1).
        ends: The lowest and the highest score that they could have.
        better: Whether higher scores are better, or lower ones.
    """

    reasons: Mapping[str, Floats]
    ends: Interval
    better: Better = "higher"

    def nearer(self, effects: Floats, weights: Floats, filled: Floats) -> Floats:
        """Return by how much each effect is nearer to 0 with the excess of missing cells at the worst score.

        Args:
            effects: The effects.
            weights: Combinations x effects: by how much a cell moves an effect if it is higher by 1.
            filled: Cases x combinations: scores, and what is expected of missing ones.
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
    """Return what `limit` of a mass costs, the costliest part of it first."""
    order = np.argsort(-cost, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    return float((np.clip(limit - before, 0.0, mass[order]) * cost[order]).sum())


def nearer_unseen(
    effects: Floats, influence: Floats, shares: Floats, weights: Floats, span: float | None = None
) -> Floats:
    """Return by how much each effect is nearer to 0 with what is too rare to show.

    That is one more case that shows the opposite, if few cases differ; and all of it, if a case in which all is lost
    could cancel what all others show, and is so rare that none need show it (`unseen_losses`).

    Args:
        effects: The effects.
        influence: Effects x units: how far each moves its effect.
        shares: Effects x units: the part of the comparisons that each has.
        weights: Combinations x effects: by how much a cell moves an effect if it is higher by 1.
        span: How far two scores can be apart; None if nothing limits it.
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
