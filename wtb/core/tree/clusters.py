"""Clusters of cases: those that cases name, and those of cases whose inputs are equal."""

from __future__ import annotations

from collections.abc import Sequence

_EQUAL_INPUTS = " equal inputs "  # begins with a space, which names that cases give never do


def equal_inputs_cluster(number: int) -> str:
    """Return the name of the cluster of the cases that have an input, by the number of the first of them."""
    return f"{_EQUAL_INPUTS}{number}"


def is_of_equal_inputs(cluster: str | None) -> bool:
    """Return whether WTB made a cluster because the inputs of its cases are equal."""
    return cluster is not None and cluster.startswith(_EQUAL_INPUTS)


def united(*clusterings: Sequence[str | None]) -> list[str | None]:
    """Return clusters such that cases which share a cluster by any of some clusterings share one.

    Args:
        clusterings: The cluster of each case, None of one without; of each clustering in the same order.

    Returns:
        The cluster of each case, by one of its names; None if it has none.
    """
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = parents[parent]
            name = parent
        return name

    by_case = [[name for name in names if name is not None] for names in zip(*clusterings, strict=True)]
    for names in by_case:
        for name in names[1:]:
            parents[root(name)] = root(names[0])
    return [root(names[0]) if names else None for names in by_case]
