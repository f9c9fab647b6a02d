"""Tables, facts and wrapped lines for a terminal, and short labels for combinations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from wtb.core import texts
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
    if max(map(cell_len, full), default=0) <= width:
        return full, legend
    for between in _BETWEEN if varied else ():
        if naming := _variants({node: columns[node] for node in varied}, width, between):
            return naming[0], [*naming[1], *legend]
    numbers = {name: f"#{number}" for number, name in enumerate(dict.fromkeys(full), 1)}
    return [numbers[name] for name in full], [*(f"{number}: {name}" for name, number in numbers.items()), *legend]


def _variants(columns: Mapping[str, Sequence[str]], width: int, between: str) -> tuple[list[str], list[str]] | None:
    """Names by variants alone, cut where need be; None where they do not fit."""
    distinct = [list(dict.fromkeys(column)) for column in columns.values()]
    full_widths = [max(map(cell_len, names)) for names in distinct]
    least = [min(wide, max(NAME_LEAST, least_width(names))) for wide, names in zip(full_widths, distinct, strict=True)]
    room = width - cell_len(between) * (len(full_widths) - 1)
    if width < LEAST or sum(least) > room:
        return None
    short_names: list[dict[str, str]] = []
    for names, wide in zip(distinct, shared_room(full_widths, least, room), strict=True):
        short_names.append(dict(zip(names, cut(names, wide) or names, strict=True)))
    joined = [
        between.join(short[variant] for short, variant in zip(short_names, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    # Names that contain the separator can make two combinations look alike.
    if len(set(joined)) < len(set(zip(*columns.values(), strict=True))):
        return None
    return joined, [f"variants of: {_BETWEEN[0].join(map(printable, columns))}", *abbreviations(short_names)]


def abbreviations(short_names: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a legend line for names that were cut short. short_names: for each column, its names as shown."""
    cut_short = dict.fromkeys(pair for names in short_names for pair in names.items() if pair[0] != pair[1])
    pairs = ", ".join(f"{short} {name}" for name, short in cut_short)
    return [f"short for: {pairs}"] if pairs else []


_CHOICE_LEAST = 5  # columns of `n…=v…` with at least two for each part


def cut(names: Sequence[str], width: int) -> list[str] | None:
    """Names in at most `width` columns, cut at the end or in the middle; None if two would look alike.

    Of `node=variant` both parts are cut.
    """
    ways: list[Callable[[str], str]] = [lambda name: cut_one(name, width, 0)]
    # Names that differ only at their ends still differ if they are cut in the middle.
    ways.append(lambda name: cut_one(name, width, (width - 1) // 2))
    if width >= _CHOICE_LEAST and all("=" in name for name in names if cell_len(name) > width):
        ways.insert(0, lambda name: _cut_choice(name, width))
    for way in ways:
        cut_names = [way(name) for name in names]
        if len(set(cut_names)) == len(set(names)):
            return cut_names
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


def shared_room(full_widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths between `least` and `full_widths` that add up to `room` if possible; the widest give way first."""
    widths = list(full_widths)
    while sum(widths) > room and widths != list(least):
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


GAP = 2
_LEAST = 6  # columns that may be cut keep so much
_DISTINCT = 30  # ... and where they differ only further on, up to so much
_LEAST_NAMED = 24  # columns of a combination


def grid(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = (),
    notes: Sequence[str] = (),
    combinations: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    color: bool = False,
) -> str:
    """A table of at most `width` columns. Columns that have no room stand below their rows.

    Args:
        headers: The names of the columns.
        rows: Cells of each row.
        width: Columns of the terminal.
        right: Headers of columns of figures.
        whole: Headers of columns that are never cut, such as ids.
        notes: For each row a text for lines of its own below it, wrapped; or empty.
        combinations: For a column, what each row chooses: it has `labels` of these in place of its cells, with their
            legend below the table.
        color: Colour the words that have a colour.

    Returns:
        Lines that end with a line break.
    """
    cell_rows = [[printable(cell) for cell in row] for row in rows]
    named = {header: choices for header, choices in (combinations or {}).items() if choices}
    for header, choices in named.items():
        # Wider than any label, because the full width of the column is measured first.
        for row, label in zip(cell_rows, labels(choices, 10_000)[0], strict=True):
            row[headers.index(header)] = label
    full_widths, least = _widths(headers, cell_rows, {*right, *whole}, named.keys())
    beside = len(headers)
    while beside > 1 and sum(least[:beside]) + GAP * (beside - 1) > width:
        beside -= 1
    widths = shared_room(full_widths[:beside], least[:beside], width - GAP * (beside - 1))
    legend = _shorten(headers, cell_rows, widths, named)
    to_the_right = set(right)
    lines = [_line(headers, headers, widths, to_the_right).rstrip(), "─" * min(width, sum(widths) + GAP * beside - GAP)]
    for number, row in enumerate(cell_rows):
        lines.append(_line(headers, row, widths, to_the_right, color).rstrip())
        overflow = ", ".join(
            f"{header} {cell}" for header, cell in zip(headers[beside:], row[beside:], strict=True) if cell
        )
        for note in filter(None, [overflow, notes[number] if notes else ""]):
            lines += wrapped(note, width, "  ")
    lines += [part for line in legend for part in wrapped(line, width)]
    return "\n".join(lines) + "\n"


def _widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], uncut: set[str], named: Container[str]
) -> tuple[list[int], list[int]]:
    """Return the width of each column if there is room, and the least width that it needs."""
    full_widths = [
        max([cell_len(header), *(cell_len(row[number]) for row in rows)]) for number, header in enumerate(headers)
    ]
    least = []
    for number, (header, wide) in enumerate(zip(headers, full_widths, strict=True)):
        needed = (
            _LEAST_NAMED
            if header in named
            else max(_LEAST, min(_DISTINCT, least_width([row[number] for row in rows] or [""])))
        )
        least.append(wide if header in uncut else min(wide, max(needed, cell_len(header))))
    return full_widths, least


def _shorten(
    headers: Sequence[str],
    rows: list[list[str]],
    widths: Sequence[int],
    named: Mapping[str, Sequence[Mapping[str, str]]],
) -> list[str]:
    """Cut the cells to the widths of their columns, so that what differs still does. Returns a legend."""
    legend = []
    for number, (header, wide) in enumerate(zip(headers, widths, strict=False)):
        column = [row[number] for row in rows]
        if header in named:
            column, more = labels(named[header], wide)
            legend += more
        else:
            # If the cells cannot stay distinct, they stay whole here, and `_line` cuts each by itself.
            column = cut(column, wide) or column
        for row, cell in zip(rows, column, strict=True):
            row[number] = cell
    return legend


def _line(
    headers: Sequence[str], cells: Sequence[str], widths: Sequence[int], right: set[str], color: bool = False
) -> str:
    padded = []
    for header, cell, wide in zip(headers, cells, widths, strict=False):
        text = cut_one(cell, wide, 0)
        # Measured before it is coloured, because escape sequences have no width on a screen.
        padding = " " * (wide - cell_len(text))
        text = texts.colored(text, cell, color)
        padded.append(padding + text if header in right else text + padding)
    return (" " * GAP).join(padded)


def facts(pairs: Iterable[tuple[str, str]], width: int) -> str:
    """Names and what they are, below each other; long ones go on in the next line. Empty ones are left out."""
    filled = [(name, text) for name, text in pairs if text]
    indent = max((cell_len(name) for name, _ in filled), default=0) + GAP
    lines = []
    for name, text in filled:
        text_lines = wrapped(text, width, " " * indent)
        lines.append(set_cell_size(name, indent) + text_lines[0].lstrip())
        lines += text_lines[1:]
    return "\n".join(lines) + "\n" if lines else ""


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Text as lines of at most `width` columns; words that are longer than a line are broken."""
    # Shorter lines could not be read, so text may be wider than a very narrow terminal.
    room = max(8, width - cell_len(indent))
    lines = []
    for paragraph in text.split("\n"):
        start = " " * min(len(paragraph) - len(paragraph.lstrip()), room - 8)
        line = start
        for word in printable(paragraph).split():
            rest = word
            while cell_len(rest) > room - cell_len(start):
                space = room - cell_len(line) - (line != start)
                # A word is not broken to fill fewer columns than this at the end of a line.
                if space < 8:
                    lines.append(line)
                    line = start
                    continue
                piece = _fitting(rest, space)
                lines.append(f"{line} {piece}" if line != start else line + piece)
                rest, line = rest[len(piece) :], start
            if not rest:
                continue
            if line != start and cell_len(line) + 1 + cell_len(rest) > room:
                lines.append(line)
                line = start
            line = f"{line} {rest}" if line != start else line + rest
        lines.append(line)
    return [indent + line for line in lines]


def paragraphs(texts: Iterable[str], width: int) -> str:
    """Return texts that are wrapped, each from a line of its own."""
    return "".join(f"{line}\n" for text in texts for line in wrapped(text, width))


def _fitting(text: str, width: int) -> str:
    """The longest beginning of a text that is at most `width` columns wide."""
    while cell_len(text) > width:
        # Wide characters take two columns, so one cut may not suffice. `wrapped` advances by at least one character.
        text = text[: max(1, min(len(text) - 1, width))]
    return text
