"""The fork tree: each node run that combinations share is one box, as high as the combinations that it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.core.documents.report import FoldedLevel

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument, Prefix, SharedNode


MOST = 200  # boxes that a report draws: whole levels, from the root on


@frozen
class Box:
    """Node runs that combinations share.

    Attributes:
        row: Of the grid, where it begins.
        height: How many rows it has.
        shade: How much was shared, in per cent of all that could be.
        times: How many node runs each stands for.
    """

    row: int
    height: int
    shade: float
    times: float
    variant: str | None
    title: str


@frozen
class Sharing:
    """The boxes of each node, and in words the levels that are not drawn."""

    levels: Sequence[tuple[SharedNode, Sequence[Box]]]
    folded: str


def sharing(document: EvidenceDocument) -> Sharing:
    """What was run once for many, by node, and what that saved."""
    tree, most = document["tree"], max(1, len(document["matrix"]["rows"]))
    drawn = list(accumulate(len(level["prefixes"]) for level in tree["levels"] or ()))
    levels = (tree["levels"] or [])[: sum(so_far <= MOST for so_far in drawn)]
    left = [FoldedLevel(node=one["node"], prefixes=len(one["prefixes"])) for one in tree["levels"] or ()][len(levels) :]
    totals = {node["node"]: node for node in tree["nodes"]}
    place = {
        number: row
        for row, leaf in enumerate(levels[-1]["prefixes"] if levels else ())
        for number in leaf["combinations"]
    }
    return Sharing(
        levels=[
            (totals[level["node"]], [_box(prefix, place, most) for prefix in level["prefixes"]]) for level in levels
        ],
        folded=", ".join(f"{one['node']} ({one['prefixes']:,} prefixes)" for one in (*left, *tree["folded"])),
    )


def _box(prefix: Prefix, place: Mapping[int, int], most: int) -> Box:
    rows = {place[number] for number in prefix["combinations"]}
    times = prefix["unshared"] / prefix["executed"] if prefix["executed"] else 0.0
    shade = 100 * math.log(max(1.0, times)) / math.log(most) if most > 1 else 0.0
    served = f"{texts.plural(prefix['executed'], 'run')} for {texts.plural(len(prefix['combinations']), 'combination')}"
    return Box(
        row=min(rows) + 2,
        height=len(rows),
        shade=min(100.0, shade),
        times=times,
        variant=prefix["variant"],
        title=f"{prefix['variant'] or ''}: {served}",
    )
