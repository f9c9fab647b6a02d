"""Which columns of a terminal table fit in its width, and how short the names in them have to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.display.labels import abbreviations, cut, labels, least_width, shared_room
from wtb.display.matrix import summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


GAP = 2
_WHOLE_LEAST = 22  # a whole combination in a narrower column says too little
NUMBERED = 6  # columns that the number of a combination has
# What goes first where width is short; a column of rank 0 stays.
NEEDED, COUNT, INTERVAL, SECONDARY, COST, LATENCY = range(6)


@frozen
class Column:
    """A column of text, what ranks it when width is short, and what a reader should know of it."""

    header: str
    cells: Sequence[str]
    rank: int = NEEDED
    is_name: bool = False
    legend: str = ""

    @property
    def width(self) -> int:
        return max(map(cell_len, [self.header, *self.cells]))


@frozen
class Node:
    """A node or factor that tells combinations apart, and how wide its column can be."""

    name: str
    variants: list[str]
    least: int
    most: int

    @classmethod
    def of(cls, document: MatrixDocument, name: str) -> Node:
        variants = list(dict.fromkeys(variant(row, name) for row in document["rows"]))
        most = max(map(cell_len, [texts.printable(name), *variants]))
        return cls(name, variants, min(most, least_width(variants)), most)

    def shortened(self, width: int) -> dict[str, str]:
        """Its variants as they are shown in so many columns."""
        return dict(zip(self.variants, cut(self.variants, width) or self.variants, strict=True))


def variant(row: RowDocument, node: str) -> str:
    return texts.printable(summary.label(row, node))


def fit(
    document: MatrixDocument, rows: Sequence[RowDocument], front: list[Column], columns: list[Column], width: int
) -> tuple[list[Column], bool]:
    """`front`, the combination and those of `columns` that fit, and whether all that are needed do.

    Cost and latency go first, then names are shortened, then other statistics go. With too many nodes
    for a column each, the whole combination is one column, in as few words as the width allows.
    """
    nodes = [Node.of(document, name) for name in summary.shown_nodes(document)]
    most, least = [node.most for node in nodes], [node.least for node in nodes]
    for needed, last_to_go in ((most, COST), (least, COUNT)):
        kept = _drop(columns, width - _taken(front) - sum(needed) - GAP * len(nodes), last_to_go)
        if nodes and kept is not None:
            room = width - _taken(front) - _taken(kept) - GAP * (len(nodes) - 1)
            widths = shared_room(most, least, room)
            headers = [texts.printable(node.name) for node in nodes]
            shown = [(cut(headers, wide) or headers)[number] for number, wide in enumerate(widths)]
            variants = [node.shortened(wide) for node, wide in zip(nodes, widths, strict=True)]
            legend = "\n".join(abbreviations([dict(zip(headers, shown, strict=True)), *variants]))
            named = [
                Column(header, [short[variant(row, node.name)] for row in rows], is_name=True, legend=legend)
                for node, header, short in zip(nodes, shown, variants, strict=True)
            ]
            return [*front, *named, *kept], True
    choices = [{node.name: variant(row, node.name) for node in nodes} for row in rows]
    widest = max((cell_len(summary.combination_name(document, row)) for row in rows), default=0)
    kept = _drop(columns, width - _taken(front) - min(widest, _WHOLE_LEAST) - GAP, COUNT)
    fits = kept is not None
    kept = [column for column in columns if column.rank == NEEDED] if kept is None else kept
    names, legend_lines = labels(choices, max(NUMBERED, min(widest, width - _taken(front) - _taken(kept))))
    whole = Column("combination", names, is_name=True, legend="\n".join(legend_lines))
    return [*front, whole, *kept], fits


def _drop(columns: list[Column], room: int, last_to_go: int) -> list[Column] | None:
    """What is left of the columns when the highest ranks, down to one, made way; None if that is too wide."""
    kept = list(columns)
    while kept and _taken(kept) - GAP > room:
        worst = max(reversed(kept), key=lambda column: column.rank)
        if worst.rank < last_to_go:
            return None
        kept.remove(worst)
    return kept


def _taken(columns: list[Column]) -> int:
    return sum(column.width + GAP for column in columns)
