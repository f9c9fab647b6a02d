"""What combinations are called where width is short: by what differs between them, with a legend for the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

from wtb.core.texts import cut_one, printable

NAME_LEAST = 4  # columns; no name is cut shorter
LEAST = 16  # columns; in fewer, combinations are numbered
_BETWEEN = (" · ", "·")  # the second where the first has no room
Choices = Mapping[str, str]


def labels(combinations: Sequence[Choices], width: int) -> tuple[list[str], list[str]]:
    """A name of at most `width` columns for each, and the lines of a legend; names differ where combinations do.

    Nodes that choose the same everywhere stand in the legend. With less and less width the names are `node=variant`,
    variants alone, variants cut short, and numbers.
    """
    nodes = list(dict.fromkeys(node for choices in combinations for node in choices))
    columns = {node: [printable(choices.get(node, "–")) for choices in combinations] for node in nodes}
    varied = [node for node in nodes if len(set(columns[node])) > 1] or nodes
    same = [f"{printable(node)}={columns[node][0]}" for node in nodes if node not in varied]
    legend = [f"all with: {' '.join(same)}"] if same else []
    full = [
        " ".join(f"{printable(node)}={choices[node]}" for node in varied if node in choices) for choices in combinations
    ]
    full = [printable(name) or "the workflow as it is" for name in full]
    if _fit(full, width):
        return full, legend
    for between in _BETWEEN if varied else ():
        if found := _variants({node: columns[node] for node in varied}, width, between):
            return found[0], [*found[1], *legend]
    numbers = {name: f"#{number}" for number, name in enumerate(dict.fromkeys(full), 1)}
    return [numbers[name] for name in full], [*(f"{number}: {name}" for name, number in numbers.items()), *legend]


def _fit(names: Sequence[str], width: int) -> bool:
    return max(map(cell_len, names), default=0) <= width


def _variants(columns: Mapping[str, Sequence[str]], width: int, between: str) -> tuple[list[str], list[str]] | None:
    """Names by variants alone, cut where need be; None where they do not fit."""
    distinct = [list(dict.fromkeys(column)) for column in columns.values()]
    most = [max(map(cell_len, names)) for names in distinct]
    least = [min(wide, max(NAME_LEAST, least_width(names))) for wide, names in zip(most, distinct, strict=True)]
    room = width - cell_len(between) * (len(most) - 1)
    if width < LEAST or sum(least) > room:
        return None
    shown: list[dict[str, str]] = []
    for names, wide in zip(distinct, shared_room(most, least, room), strict=True):
        shown.append(dict(zip(names, cut(names, wide) or names, strict=True)))
    joined = [
        between.join(short[variant] for short, variant in zip(shown, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    if len(set(joined)) < len(set(zip(*columns.values(), strict=True))):  # a name has the separator in it
        return None
    return joined, [f"variants of: {_BETWEEN[0].join(map(printable, columns))}", *abbreviations(shown)]


def abbreviations(shown: Sequence[Mapping[str, str]]) -> list[str]:
    """A line that says what names were cut short, or none. shown: for each column, names as they are shown."""
    cut_short = dict.fromkeys(pair for names in shown for pair in names.items() if pair[0] != pair[1])
    pairs = ", ".join(f"{short} {name}" for name, short in cut_short)
    return [f"short for: {pairs}"] if pairs else []


_CHOICE_LEAST = 5  # columns of `n…=v…` with at least two for each part


def cut(names: Sequence[str], width: int) -> list[str] | None:
    """Names in at most `width` columns, cut at the end or in the middle; None if two would look alike.

    Of `node=variant` both parts are cut.
    """
    ways: list[Callable[[str], str]] = [lambda name: cut_one(name, width, 0)]
    ways.append(lambda name: cut_one(name, width, (width - 1) // 2))
    if width >= _CHOICE_LEAST and all("=" in name for name in names if cell_len(name) > width):
        ways.insert(0, lambda name: _cut_choice(name, width))
    for way in ways:
        found = [way(name) for name in names]
        if len(set(found)) == len(set(names)):
            return found
    return None


def _cut_choice(name: str, width: int) -> str:
    """`node=variant`, of which the longer part gives way first."""
    if cell_len(name) <= width:
        return name
    node, _, variant = name.partition("=")
    wide = shared_room([cell_len(node), cell_len(variant)], [2, 2], width - 1)
    return f"{cut_one(node, wide[0], 0)}={cut_one(variant, wide[1], 0)}"


def least_width(names: Sequence[str]) -> int:
    """The smallest width from 4 up to which all the names can be cut."""
    widest = max(map(cell_len, names))
    return next((width for width in range(NAME_LEAST, widest) if cut(names, width)), max(widest, NAME_LEAST))


def shared_room(most: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths between `least` and `most` that add up to `room` if possible; the widest give way first."""
    widths = list(most)
    while sum(widths) > room and widths != list(least):
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths
