"""The factors of combinations: a node without grids is one factor, a node with grids has one for each parameter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from wtb.analysis.statistics.effects.blocks import OUTSIDE, Levels
from wtb.core.classes.frozen import frozen

# (node, variant) -> {name of a factor such as "answer.model": label of its level}; grid points only.
GridLevels = Mapping[tuple[str, str], Mapping[str, str]]


@frozen
class VariedFactor:
    """Something that is varied.

    Attributes:
        name: "retrieve" of a node, "answer.model" of a parameter.
        node: Its node.
        levels: Labels, in the order in which they come.
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
        """Whether it is a parameter of a node, not the node itself."""
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
    """Return names as sentences write them: the parameter alone where no other factor is called so."""
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
    """Return for each kind the kinds that are one level of the node, because the level of a parameter says which it is.

    In `[{m: [1, 20], t: [0, 9]}, {m: [3], u: [1, 2]}]` the kind is known from m. It is no level beside those of m: the
    other parameters are nested in m. That needs one parameter which tells all kinds of a group apart; with several
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
    for group in list(merged.values()):
        if len({pairs[pair] for pair in itertools.combinations(group, 2)}) > 1:
            merged |= {kind: [kind] for kind in group}
    return merged


def _telling(first: Mapping[str, set[str]], second: Mapping[str, set[str]]) -> str | None:
    """Return the parameter whose levels tell two kinds apart; None if there is none, or several."""
    names = [name for name in first if name in second and not first[name] & second[name]]
    return names[0] if len(names) == 1 else None


def _comparable(name: str, levels: Mapping[str, Mapping[str, str]], of_node: Mapping[str, str]) -> dict[str, str]:
    """Return the levels of a parameter by variant: of all that have it, or of those within which it can be told.

    Kinds without a common level differ in the node, too. If only one of them has several levels, they are told in it.
    """
    groups: list[tuple[set[str], dict[str, str]]] = []
    for variant, each in levels.items():
        if name in each:
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
    """Return which parameters only variants with certain levels have, of a parameter that tells merged kinds apart."""
    if len({kinds[variant] for variant in having if len(merged[kinds[variant]]) > 1}) < 2:
        return {}
    sets: dict[str, list[set[str]]] = {}
    for variant, level in having.items():
        sets.setdefault(level, []).append(set(levels[variant]) - {name})
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
    """Return a factor. levels: the level of each variant that has any."""
    present = {variant: levels[variant] for variant in choices if variant in levels}
    labels = list(dict.fromkeys(present.values()))
    codes = [labels.index(levels[variant]) if variant in levels else OUTSIDE for variant in choices]
    within = None if all(variant in levels for variant in choices) else list(present)
    return VariedFactor(name, node, labels, codes, within, brings or {})
