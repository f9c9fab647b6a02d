"""The factors of a sweep: derived from the levels of its variants, as the sweep is stored, and kept nowhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from wtb.core.classes.frozen import frozen
from wtb.core.factors.file_levels import FileReference, file_reference
from wtb.core.factors.level_names import canonical, level_label, point_name, split_name
from wtb.core.values import Json

Vary = Mapping[str, Literal["all"] | Sequence[Any]]  # `StoredSpec.vary`


@frozen
class Level:
    """A value of a factor.

    Attributes:
        value: In JSON; of a file `file://PATH#SHA256`.
        label: A short text, different for each level of the factor.
        variants: The names of the variants of the node that have it.
    """

    value: Json
    label: str
    variants: tuple[str, ...]

    @property
    def file(self) -> FileReference | None:
        """The file whose text it is, if it is one."""
        return file_reference(self.value)


@frozen
class Factor:
    """A parameter of a node that is varied.

    Attributes:
        node: The node's name.
        parameter: The parameter's name.
        levels: In the order of the sweep file.
        is_nested: Whether some variants of the node do not have it.
    """

    node: str
    parameter: str
    levels: tuple[Level, ...]
    is_nested: bool

    @property
    def name(self) -> str:
        """`node.parameter`."""
        return f"{self.node}.{self.parameter}"

    def level_of(self, variant: str) -> Level | None:
        """Return the level of a variant of the node; None if the variant has none."""
        return next((level for level in self.levels if variant in level.variants), None)


def factors_of(vary: Vary) -> Mapping[str, tuple[Factor, ...]]:
    """Return the factors of a sweep.

    Args:
        vary: As the sweep is stored (`StoredSpec.vary`).

    Returns:
        Node -> its factors, in the order of the sweep file. Nodes without factors are left out.
    """
    by_node = {node: _factors(node, refs) for node, refs in vary.items() if not isinstance(refs, str)}
    return {node: factors for node, factors in by_node.items() if factors}


def _factors(node: str, refs: Sequence[Any]) -> tuple[Factor, ...]:
    points = {str(ref["name"]): levels_of(ref) for ref in refs}
    by_parameter: dict[str, dict[str, tuple[Json, list[str]]]] = {}
    for variant, levels in points.items():
        for parameter, value in levels.items():
            by_parameter.setdefault(parameter, {}).setdefault(canonical(value), (value, []))[1].append(variant)
    return tuple(
        Factor(
            node,
            parameter,
            tuple(Level(value, level_label(value), tuple(variants)) for value, variants in levels.values()),
            any(parameter not in levels for levels in points.values()),
        )
        for parameter, levels in by_parameter.items()
    )


def levels_of(ref: Mapping[str, Any] | str) -> Mapping[str, Json]:
    """Return the levels of a variant, parameter -> level in declared order.

    Args:
        ref: A variant as a sweep is stored: a grid point has `levels`, a list of pairs, and a name made from them.

    Returns:
        The levels; nothing of a variant that is no grid point.
    """
    pairs = ref.get("levels") if isinstance(ref, Mapping) else None
    if not isinstance(ref, Mapping) or not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        return {}
    levels = dict(pairs)
    return levels if levels and point_name(levels, base_name(ref.get("of"), ref.get("with"))) == ref["name"] else {}


def base_name(of: str | None, source: str | None) -> str | None:
    """Return what the name of a grid point begins with: the variant, or the name of the callable, it derives from."""
    return of or (None if source is None else re.split("[:.]", source)[-1])


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)


def labels_of(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a combination by factor.

    Args:
        choices: Node -> variant.

    Returns:
        `node.parameter` -> label of its level, for grid points; `node` -> variant for others, and for what a grid point
        derives from.
    """
    labels: dict[str, str] = {}
    for node, variant in choices.items():
        base, levels = split_name(variant)
        if base is not None:
            labels[node] = base
        labels.update({f"{node}.{parameter}": label for parameter, label in levels.items()})
    return labels


def label_columns(combinations: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys of `labels_of` over combinations: nodes in their order, each before its own factors."""
    by_node: dict[str, dict[str, None]] = {}
    for choices in combinations:
        for node, variant in choices.items():
            by_node.setdefault(node, {}).update(dict.fromkeys(labels_of({node: variant})))
    columns: list[str] = []
    for node, keys in by_node.items():
        columns += [key for key in keys if key == node] + [key for key in keys if key != node]
    return columns
