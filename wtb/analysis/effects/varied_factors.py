"""The factors of combinations: a node without grids is one factor, a node with grids has one for each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wtb.analysis.statistics.effects.blocks import OUTSIDE, Levels

# (node, variant) -> {name of a factor such as "answer.model": label of its level}; grid points only.
GridLevels = Mapping[tuple[str, str], Mapping[str, str]]


@dataclass(frozen=True)
class VariedFactor:
    """Something that is varied.

    Attributes:
        name: "retrieve" of a node, "answer.model" of a parameter.
        node: Its node.
        levels: Labels, in the order in which they come.
        codes: For each combination the number of its level, -1 if its variant has none.
        within: The variants of the node that have it; None if all have.
    """

    name: str
    node: str
    levels: Sequence[str]
    codes: Sequence[int]
    within: Sequence[str] | None = None

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


def _of_node(node: str, chosen: Sequence[str], grids: GridLevels) -> list[VariedFactor]:
    variants = list(dict.fromkeys(chosen))
    levels = {variant: grids.get((node, variant), {}) for variant in variants}
    names = list(dict.fromkeys(name for each in levels.values() for name in each))
    if not names:
        return [_factor(node, node, chosen, {variant: variant for variant in variants})]
    kinds = {variant: _kind(node, variant, levels) for variant in variants}
    factors = [_factor(node, node, chosen, kinds)] if len(set(kinds.values())) > 1 else []
    for name in names:
        having = {variant: each[name] for variant, each in levels.items() if name in each}
        factors.append(_factor(name, node, chosen, having))
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


def _factor(name: str, node: str, chosen: Sequence[str], levels: Mapping[str, str]) -> VariedFactor:
    """Return a factor. levels: the level of each variant that has any."""
    labels = list(dict.fromkeys(levels.values()))
    codes = [labels.index(levels[variant]) if variant in levels else OUTSIDE for variant in chosen]
    within = None if all(variant in levels for variant in chosen) else list(levels)
    return VariedFactor(name, node, labels, codes, within)
