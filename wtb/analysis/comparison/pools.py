"""Pools: combinations that share what was changed between two sweeps, in which a fall shows that none shows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CodeChange


FEWEST = 2  # combinations; one alone is no pool


@frozen
class Pool:
    """Some combinations, by their numbers, and what they share: changed nodes, or the changed variant of one.

    what: the same in words.
    """

    rows: tuple[int, ...]
    what: str
    nodes: tuple[str, ...] = ()
    variant: str | None = None


def pools(choices: Sequence[Mapping[str, str]], changed_code: Sequence[CodeChange]) -> list[Pool]:
    """The pools of two sweeps, each set of combinations once: what goes through changed code, and all together.

    All together are always among them: WTB does not see every change.

    Args:
        choices: the combinations that both have.
        changed_code: `node` and `variant` of what has other code in the later one.
    """
    distinct: dict[tuple[int, ...], Pool] = {}
    for pool in (*_changed(choices, changed_code), _all(choices)):
        if len(pool.rows) >= FEWEST:
            distinct.setdefault(pool.rows, pool)
    return list(distinct.values())


def _changed(choices: Sequence[Mapping[str, str]], changed_code: Sequence[CodeChange]) -> Iterator[Pool]:
    variants: dict[str, list[str]] = {}
    for change in changed_code:
        variants.setdefault(change["node"], []).append(change["variant"])
    shared: dict[tuple[int, ...], list[str]] = {}
    for node, names in variants.items():
        # A node that is not varied is in no choice, and every combination goes through it.
        rows = tuple(row for row, choice in enumerate(choices) if choice.get(node) in (None, *names))
        shared.setdefault(rows, []).append(node)
    for rows, nodes in shared.items():
        named = f"{len(rows):,} combinations"
        named = f"all {named}, which" if len(rows) == len(choices) else f"the {named} that"
        changed = f"changed node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"
        yield Pool(rows, f"{named} share the {changed}", tuple(nodes))
    for node, names in variants.items():
        for name in names:
            rows = tuple(row for row, choice in enumerate(choices) if choice.get(node) == name)
            yield Pool(rows, f"the {len(rows):,} combinations with the changed {node}={name}", (node,), name)


def _all(choices: Sequence[Mapping[str, str]]) -> Pool:
    return Pool(tuple(range(len(choices))), f"all {len(choices):,} combinations")
