"""What single changes do, for factors whose own effect the combinations do not tell from what they do with others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.effects.varied_factors import VariedFactor
from wtb.analysis.statistics.effects.blocks import OUTSIDE
from wtb.analysis.statistics.effects.joint_tests import Evidence, joint_tests
from wtb.analysis.statistics.effects.within_cases import by_unit
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.missing.worst_case import Claim, Pairs
from wtb.analysis.statistics.paired import subtract
from wtb.analysis.statistics.units import Units

if TYPE_CHECKING:
    from wtb.core.documents.report import SimpleEffect


def single_changes(
    scores: Floats,
    factors: Sequence[VariedFactor],
    apart: Collection[int],
    seed: int,
    units: Units,
    family: float,
    pairs: Pairs | None = None,
) -> list[SimpleEffect]:
    """Compare combinations that differ in one factor, each with the first one that has the same other levels.

    Args:
        scores: Combinations x cases, NaN where missing.
        factors: All that vary.
        apart: The numbers of those whose changes are compared.
        seed: Of the random signs.
        units: The cluster of each case.
        family: What p of all these changes together is multiplied by, beside their number.
        pairs: The scores with the cells that are missing; None if there are none.
    """
    changes = [change for number in sorted(apart) for change in _changes(factors, number)]
    if not changes:
        return []
    differences = subtract(scores[[row for _, row, _ in changes]], scores[[base for *_, base in changes]])
    evidence = [_evidence(row, units) for row in differences]
    if pairs is not None:
        evidence = [
            change_evidence and _at_worst(change_evidence, pairs, row, base)
            for change_evidence, (_, row, base) in zip(evidence, changes, strict=True)
        ]
    numbers = [number for number, change_evidence in enumerate(evidence) if change_evidence is not None]
    comparable = [change_evidence for change_evidence in evidence if change_evidence is not None]
    tests = joint_tests(comparable, [family * len(comparable)] * len(comparable), seed)
    effects: list[SimpleEffect] = []
    for number, change_evidence, tested in zip(numbers, comparable, tests, strict=True):
        factor, row, base = changes[number]
        low, high = tested.ci[0].tolist()
        effect: SimpleEffect = {
            "node": factor.node,
            "variant": factor.levels[factor.codes[row]],
            "over": factor.levels[factor.codes[base]],
            "beside": {
                other.name: label
                for other in factors
                if other is not factor and (label := other.label(row)) is not None
            },
            "effect": float(change_evidence.effects[0]),
            "ci": None if np.isnan(low) else [low, high],
            "p": tested.p,
            "p_adjusted": tested.p_adjusted,
        }
        if factor.is_parameter:
            effect["factor"] = factor.name
        effects.append(effect)
    return effects


def _changes(factors: Sequence[VariedFactor], number: int) -> list[tuple[VariedFactor, int, int]]:
    """Return (factor, combination, the one that it is compared with)."""
    factor = factors[number]
    first: dict[tuple[int, ...], int] = {}
    changes = []
    for row, code in enumerate(factor.codes):
        if code == OUTSIDE:
            continue
        base = first.setdefault(tuple(other.codes[row] for other in factors if other is not factor), row)
        if base != row:
            changes.append((factor, row, base))
    return changes


def _at_worst(evidence: Evidence, pairs: Pairs, row: int, base: int) -> Evidence:
    """Return what cases say of a change, which has to survive missing cells at their worst."""
    if not pairs.count_missing(row, base):
        return evidence
    size, side = abs(float(evidence.effects[0])), -1 if evidence.effects[0] < 0 else 1
    every, excess = pairs.fills(Claim(row, base, 1 if side > 0 else -1))
    remaining = side * excess.estimate if side * every.estimate > 0 else 0.0
    return replace(evidence, nearer=np.array([max(0.0, size - remaining)]))


def _evidence(differences: Floats, units: Units) -> Evidence | None:
    """Return what cases say of a mean difference; None if fewer than two have both scores."""
    present = np.isfinite(differences)
    count = int(present.sum())
    if count < 2:
        return None
    mean = float(differences[present].mean())
    influence = np.where(present, differences - mean, 0.0) / count
    influence[np.abs(influence) <= 1e-12 * abs(mean)] = 0.0
    both = by_unit(np.stack([influence, present / count], axis=1), units).T
    return Evidence(np.array([mean]), both[:1], both[1:])
