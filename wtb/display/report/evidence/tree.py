"""The tree of a sweep: which combinations ran which node together, and what that saved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.store.database import Database
from wtb.store.read import evidence
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import FoldedLevel, Level, Prefix, SharedNode, SharedRuns, SharedVariant, SharingTree


MOST = 10_000  # prefixes that are listed: whole levels, from the root on

# (node, variant, the combinations of the group that ran it, what it came to)
Run = tuple[str, str, tuple[int, ...], "SharedRuns"]


def tree(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> SharingTree:
    """Node runs by node and variant, and by prefix: the choices up to a node, which are what runs are shared by.

    Runs are counted where they happened, so that what was not shared shows as not shared. Where nodes ran beside each
    other, a run is shared across variants of its neighbours: `levels` is then None, and `because` says so.
    """
    runs = [
        (node, variant, tuple(json.loads(group)), _counted(*counts))
        for node, variant, group, *counts in evidence.shared_runs(database, sweep.id)
    ]
    nodes: dict[str, SharedNode] = {}
    variants: dict[tuple[str, str], SharedVariant] = {}
    for node, variant, _, counts in runs:
        one = nodes.setdefault(node, {"node": node, "variants": [], **_counted()})
        if (node, variant) not in variants:
            variants[node, variant] = {"variant": variant, **_counted()}
            one["variants"].append(variants[node, variant])
        _add(one, counts)
        _add(variants[node, variant], counts)
    levels, folded, because = _levels(list(nodes), runs, [row["combination"] for row in matrix["rows"]])
    if sweep.collected_node_runs:
        because = because or "node runs that retention has collected since are not counted"
    return {"nodes": list(nodes.values()), "levels": levels, "folded": folded, "because": because}


def _counted(
    executed: int = 0, unshared: int = 0, failed: int = 0, seconds: float = 0.0, usd: float = 0.0
) -> SharedRuns:
    return {
        "executed": int(executed),
        "unshared": int(unshared),
        "failed": int(failed),
        "seconds": float(seconds),
        "usd": float(usd),
    }


def _add(total: SharedRuns, one: SharedRuns) -> None:
    total["executed"] += one["executed"]
    total["unshared"] += one["unshared"]
    total["failed"] += one["failed"]
    total["seconds"] += one["seconds"]
    total["usd"] += one["usd"]


def _levels(
    nodes: Sequence[str],
    runs: Sequence[Run],
    choices: Sequence[Mapping[str, str]],
) -> tuple[list[Level] | None, list[FoldedLevel], str | None]:
    """(levels with their prefixes in the order of the tree, the levels that would be too many, why there is none)."""
    if not runs:
        return None, [], "no node has run yet"
    path: list[str] = []  # the varied nodes up to a level
    levels: list[Level] = []
    folded: list[FoldedLevel] = []
    listed = 0
    for node in nodes:
        path += [node] if any(node in choice for choice in choices) else []
        prefixes: dict[tuple[str, ...], Prefix] = {}
        for number, choice in enumerate(choices):
            key = tuple(choice.get(name, "") for name in path)
            one = prefixes.setdefault(key, {"combinations": [], "variant": None, **_counted()})
            one["combinations"].append(number)
        for ran, variant, group, counts in runs:
            if ran != node:
                continue
            # An execution may stand at several nodes at once, for combinations that choose other variants of this one.
            its = [choices[number] for number in group if choices[number].get(node, variant) == variant]
            keys = {tuple(choice.get(name, "") for name in path) for choice in its}
            if len(keys) > 1:
                return None, [], f"runs of {node} are shared across variants of nodes that ran beside it"
            for key in keys:
                one = prefixes[key]
                one["variant"] = variant
                _add(one, counts)
        found = [one for _, one in sorted(prefixes.items(), key=lambda item: item[1]["combinations"][0])]
        if folded or listed + len(found) > MOST:
            folded.append({"node": node, "prefixes": len(found)})
            continue
        listed += len(found)
        levels.append({"node": node, "prefixes": found})
    return _nested(levels), folded, None


def _nested(levels: list[Level]) -> list[Level]:
    """The levels with the prefixes in an order in which those of the same parent lie side by side."""
    place: dict[int, tuple[int, ...]] = {}
    for level in levels:
        for position, one in enumerate(level["prefixes"]):
            for number in one["combinations"]:
                place[number] = (*place.get(number, ()), position)
    for level in levels:
        level["prefixes"].sort(key=lambda one: min(place[number] for number in one["combinations"]))
    return levels
