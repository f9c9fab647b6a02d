"""Which cells go on together: the tree of a sweep, one step at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Choices = tuple[str, ...]


def groups(
    nodes: Sequence[str], combinations: Sequence[int], variant_of: Callable[[int, str], str]
) -> dict[Choices, list[int]]:
    """Group combinations by the variants that they choose for the next nodes, in order of first appearance.

    One group: the execution goes on. Several: it forks, and each group goes on as its own execution.
    """
    found: dict[Choices, list[int]] = {}
    for number in combinations:
        found.setdefault(tuple(variant_of(number, node) for node in nodes), []).append(number)
    return found


def agreed(choices: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The variants that all of some combinations choose, by node."""
    first = choices[0]
    return {node: variant for node, variant in first.items() if all(one[node] == variant for one in choices)}


def node_runs(nodes: Sequence[str], grouped: Mapping[Choices, Sequence[int]]) -> dict[tuple[str, str], int]:
    """The distinct (node, variant) of a step, each to be run once, with the number of cells that take part."""
    cells: dict[tuple[str, str], int] = {}
    for choices, members in grouped.items():
        for node, variant in zip(nodes, choices, strict=True):
            cells[node, variant] = cells.get((node, variant), 0) + len(members)
    return cells
