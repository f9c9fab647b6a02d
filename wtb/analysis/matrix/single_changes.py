"""Effects of single changes, for factors whose own effect cannot be separated from their interactions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.statistics.claims import Claim, Pairs
from wtb.analysis.statistics.effect_designs import OUTSIDE, Levels, by_unit
from wtb.analysis.statistics.effect_tests import Evidence, joint_tests
from wtb.analysis.statistics.intervals import Floats, Units
from wtb.analysis.statistics.paired import subtract
from wtb.core.frozen import frozen

if TYPE_CHECKING:
    from wtb.core.documents.report import SimpleEffect

# (node, variant) -> {name of a factor such as "answer.model": label of its level}; grid points only.
GridLevels = Mapping[tuple[str, str], Mapping[str, str]]


@frozen
class VariedFactor:
    """A factor that is varied: a node, or a parameter of a node.

    Attributes:
        name: "retrieve" of a node, "answer.model" of a parameter.
        node: Its node.
        levels: Labels, in order of appearance.
        codes: For each combination the number of its level, -1 if its variant has none.
        within: The variants of the node that have it; None if all have.
        brings: Level -> the parameters that only variants with this level have, if the levels differ in that.
    """

    name: str
    node: str
    levels: Sequence[str]
    codes: Sequence[int]
    within: Sequence[str] | None = None
    brings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_parameter(self) -> bool:
        """True for a parameter of a node, false for the node itself."""
        return self.name != self.node

    def label(self, combination: int) -> str | None:
        """Return the level of a combination."""
        code = self.codes[combination]
        return None if code == OUTSIDE else self.levels[code]


def varied_factors(choices: Sequence[Mapping[str, str]], grids: GridLevels) -> list[VariedFactor]:
    """Return the factors that have several levels in these combinations, in the order of nodes and parameters."""
    nodes = dict.fromkeys(node for row in choices for node in row)
    factors = [factor for node in nodes for factor in _of_node(node, [row[node] for row in choices], grids)]
    return [factor for factor in factors if len(factor.levels) > 1]


def level_codes(factors: Sequence[VariedFactor]) -> Levels:
    """Return combinations x factors: numbers of levels."""
    return np.array([factor.codes for factor in factors], dtype=np.int64).T


def short_names(factors: Sequence[VariedFactor]) -> list[str]:
    """Return names as sentences write them: the parameter alone if no other factor has that name."""
    shorts = [factor.name.removeprefix(f"{factor.node}.") for factor in factors]
    return [
        short if shorts.count(short) == 1 and short not in {other.node for other in factors} else factor.name
        for short, factor in zip(shorts, factors, strict=True)
    ]


def _of_node(node: str, choices: Sequence[str], grids: GridLevels) -> list[VariedFactor]:
    variants = list(dict.fromkeys(choices))
    levels = {variant: grids.get((node, variant), {}) for variant in variants}
    names = list(dict.fromkeys(name for each in levels.values() for name in each))
    if not names:
        return [_factor(node, node, choices, {variant: variant for variant in variants})]
    kinds = {variant: _kind(node, variant, levels) for variant in variants}
    merged = _merged_kinds(levels, kinds)
    of_node = {variant: " or ".join(merged[kind]) for variant, kind in kinds.items()}
    factors = [_factor(node, node, choices, of_node)] if len(set(of_node.values())) > 1 else []
    for name in names:
        having = _comparable(name, levels, of_node)
        factors.append(_factor(name, node, choices, having, _brought(name, having, levels, kinds, merged)))
    return factors


def _kind(node: str, variant: str, levels: Mapping[str, Mapping[str, str]]) -> str:
    """Return the level of the node itself that a variant has: its name, or of a grid point the parameters that vary.

    Grid points that agree in all levels differ in what they are points of, which their names begin with.
    """
    if not levels[variant]:
        return variant
    parameters = " x ".join(name.removeprefix(f"{node}.") for name in levels[variant])
    equal = [other for other, each in levels.items() if each == levels[variant]]
    return parameters if len(equal) == 1 else f"{parameters} ({equal.index(variant) + 1})"


def _merged_kinds(levels: Mapping[str, Mapping[str, str]], kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """Return for each kind the kinds that form one level of the node, because the level of a parameter identifies them.

    In `[{m: [1, 20], t: [0, 9]}, {m: [3], u: [1, 2]}]` the kind is known from m. It is no level beside those of m: the
    other parameters are nested in m. That needs one parameter which distinguishes all kinds of a group; with several
    nobody knows which of them makes the difference.
    """
    values: dict[str, dict[str, set[str]]] = {kind: {} for kind in kinds.values()}
    for variant, each in levels.items():
        for name, level in each.items():
            values[kinds[variant]].setdefault(name, set()).add(level)
    merged = {kind: [kind] for kind in values}
    pairs = {pair: _telling(values[pair[0]], values[pair[1]]) for pair in itertools.combinations(values, 2)}
    for (first, second), telling in pairs.items():
        if telling is not None:
            group = [kind for kind in values if kind in merged[first] or kind in merged[second]]
            merged |= dict.fromkeys(group, group)
    # Merging is transitive, so a group may need two parameters to tell its kinds apart; it is split again.
    for group in list(merged.values()):
        if len({pairs[pair] for pair in itertools.combinations(group, 2)}) > 1:
            merged |= {kind: [kind] for kind in group}
    return merged


def _telling(first: Mapping[str, set[str]], second: Mapping[str, set[str]]) -> str | None:
    """Return the parameter whose levels distinguish two kinds; None if there is none, or several."""
    names = [name for name in first if name in second and not first[name] & second[name]]
    return names[0] if len(names) == 1 else None


def _comparable(name: str, levels: Mapping[str, Mapping[str, str]], of_node: Mapping[str, str]) -> dict[str, str]:
    """Return the levels of a parameter by variant: of all variants that have it, or of those in which it can be
    estimated.

    Kinds without a common level differ in the node, too. If only one of them has several levels, it reports them.
    """
    groups: list[tuple[set[str], dict[str, str]]] = []
    for variant, each in levels.items():
        if name in each:
            # A new variant may connect groups that were separate so far, and merges all of them.
            same = [group for group in groups if of_node[variant] in group[0] or each[name] in group[1].values()]
            kinds = {of_node[variant]}.union(*(group[0] for group in same))
            having = {v: level for group in same for v, level in group[1].items()} | {variant: each[name]}
            groups = [group for group in groups if group not in same] + [(kinds, having)]
    several = [having for _, having in groups if len(set(having.values())) > 1]
    return several[0] if len(several) == 1 else {v: level for _, having in groups for v, level in having.items()}


def _brought(
    name: str,
    having: Mapping[str, str],
    levels: Mapping[str, Mapping[str, str]],
    kinds: Mapping[str, str],
    merged: Mapping[str, Sequence[str]],
) -> dict[str, list[str]]:
    """Return the parameters that come with each level of a parameter that distinguishes merged kinds."""
    if len({kinds[variant] for variant in having if len(merged[kinds[variant]]) > 1}) < 2:
        return {}
    sets: dict[str, list[set[str]]] = {}
    for variant, level in having.items():
        sets.setdefault(level, []).append(set(levels[variant]) - {name})
    # If variants of one level differ in their parameters, the level alone does not determine what comes with it.
    if any(len({frozenset(parameters) for parameters in each}) > 1 for each in sets.values()):
        return {}
    common = set[str].intersection(*(parameters for each in sets.values() for parameters in each))
    return {level: sorted(each[0] - common) for level, each in sets.items() if each[0] - common}


def _factor(
    name: str,
    node: str,
    choices: Sequence[str],
    levels: Mapping[str, str],
    brings: Mapping[str, Sequence[str]] | None = None,
) -> VariedFactor:
    """Return a factor from the level of each variant that has one."""
    present = {variant: levels[variant] for variant in choices if variant in levels}
    labels = list(dict.fromkeys(present.values()))
    codes = [labels.index(levels[variant]) if variant in levels else OUTSIDE for variant in choices]
    within = None if all(variant in levels for variant in choices) else list(present)
    return VariedFactor(name, node, labels, codes, within, brings or {})


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
        factors: All varied factors.
        apart: The numbers of the factors whose changes are compared.
        seed: The seed of the random signs.
        units: The cluster of each case.
        family: The factor of the correction for all these changes together, besides their number.
        pairs: The scores with the missing cells; None if none are missing.
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
    """Return (factor, combination, the combination it is compared with) for each single change."""
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
    """Return the evidence for a change, reduced by the effect of missing cells at their worst."""
    if not pairs.count_missing(row, base):
        return evidence
    size, side = abs(float(evidence.effects[0])), -1 if evidence.effects[0] < 0 else 1
    every, excess = pairs.fills(Claim(row, base, 1 if side > 0 else -1))
    remaining = side * excess.estimate if side * every.estimate > 0 else 0.0
    return replace(evidence, nearer=np.array([max(0.0, size - remaining)]))


def _evidence(differences: Floats, units: Units) -> Evidence | None:
    """Return the evidence for a mean difference; None if fewer than two cases have both scores."""
    present = np.isfinite(differences)
    count = int(present.sum())
    if count < 2:
        return None
    mean = float(differences[present].mean())
    influence = np.where(present, differences - mean, 0.0) / count
    # Rounding must not look like spread: equal differences have no error at all.
    influence[np.abs(influence) <= 1e-12 * abs(mean)] = 0.0
    both = by_unit(np.stack([influence, present / count], axis=1), units).T
    return Evidence(np.array([mean]), both[:1], both[1:])
