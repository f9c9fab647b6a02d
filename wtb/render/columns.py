"""Which columns of a terminal table fit in its width, and how short the names in them have to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from wtb.render import summary
from wtb.render.summary import Document, Row

GAP = 2
_NAME_LEAST = 4  # no name is cut shorter
_WHOLE_LEAST = 22  # a whole combination in a narrower column is too broken up to be read
# What goes first where width is short; a column of rank 0 stays.
NEEDED, COUNT, INTERVAL, SECONDARY, COST, LATENCY = range(6)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Node:
    """A node that tells combinations apart, and how wide its column can be."""

    name: str
    variants: list[str]
    least: int
    most: int

    @classmethod
    def of(cls, document: Document, name: str) -> Node:
        variants = list(dict.fromkeys(variant(row, name) for row in document["rows"]))
        most = max(map(cell_len, [summary.printable(name), *variants]))
        return cls(name, variants, min(most, least_width(variants)), most)

    def column(self, rows: Sequence[Row], width: int, header: str) -> Column:
        short = dict(zip(self.variants, cut(self.variants, width) or self.variants, strict=True))
        return Column(header, [short[variant(row, self.name)] for row in rows], is_name=True)


def variant(row: Row, node: str) -> str:
    return summary.printable(row["combination"].get(node, ""))


def fit(
    document: Document, rows: Sequence[Row], front: list[Column], columns: list[Column], width: int
) -> tuple[list[Column], bool]:
    """`front`, the combination and those of `columns` that fit, and whether all that are needed do.

    Cost and latency go first, then names are shortened, then other statistics go. With too many nodes
    for a column each, the whole combination is one column, broken over lines.
    """
    nodes = [Node.of(document, name) for name in summary.shown_nodes(document)]
    most, least = [node.most for node in nodes], [node.least for node in nodes]
    for needed, last_to_go in ((most, COST), (least, COUNT)):
        kept = _drop(columns, width - _taken(front) - sum(needed) - GAP * len(nodes), last_to_go)
        if nodes and kept is not None:
            room = width - _taken(front) - _taken(kept) - GAP * (len(nodes) - 1)
            widths = shared_room(most, least, room)
            headers = [summary.printable(node.name) for node in nodes]
            named = [
                node.column(rows, width, (cut(headers, width) or headers)[i])
                for i, (node, width) in enumerate(zip(nodes, widths, strict=True))
            ]
            return [*front, *named, *kept], True
    names = [summary.combination_name(document, row) for row in rows]
    whole = Column("combination", names, is_name=True)
    kept = _drop(columns, width - _taken(front) - min(whole.width, _WHOLE_LEAST) - GAP, COUNT)
    needed_only = [column for column in columns if column.rank == NEEDED]
    return [*front, whole, *(needed_only if kept is None else kept)], kept is not None


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


def cut(names: Sequence[str], width: int) -> list[str] | None:
    """Names in at most `width` columns, cut at the end or in the middle; None if two would look alike."""
    for tail in (0, (width - 1) // 2):
        found = [cut_one(name, width, tail) for name in names]
        if len(set(found)) == len(set(names)):
            return found
    return None


def cut_one(name: str, width: int, tail: int) -> str:
    """One name in at most `width` columns, of which `tail` keep its end."""
    if cell_len(name) <= width:
        return name
    end = name[len(name) - tail :]
    while cell_len(end) > tail:  # characters that are two columns wide
        end = end[1:]
    return chop_cells(name, width - 1 - tail)[0] + "…" + end


def least_width(names: Sequence[str]) -> int:
    """The smallest width from 4 up to which all the names can be cut."""
    widest = max(map(cell_len, names))
    return next((width for width in range(_NAME_LEAST, widest) if cut(names, width)), max(widest, _NAME_LEAST))


def shared_room(most: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths between `least` and `most` that add up to `room` if possible; the widest give way first."""
    widths = list(most)
    while sum(widths) > room and widths != list(least):
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths
