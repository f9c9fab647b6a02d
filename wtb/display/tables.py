"""Plain tables for a terminal: columns as wide as they need, cut where the width is short."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from wtb.core import texts
from wtb.core.texts import cut_one, printable
from wtb.display.labels import cut, labels, least_width, shared_room

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
    shown = [[printable(cell) for cell in row] for row in rows]
    named = {header: found for header, found in (combinations or {}).items() if found}
    for header, found in named.items():
        for row, label in zip(shown, labels(found, 10_000)[0], strict=True):
            row[headers.index(header)] = label
    most, least = _widths(headers, shown, {*right, *whole}, named.keys())
    beside = len(headers)
    while beside > 1 and sum(least[:beside]) + GAP * (beside - 1) > width:
        beside -= 1
    widths = shared_room(most[:beside], least[:beside], width - GAP * (beside - 1))
    legend = _shorten(headers, shown, widths, named)
    to_the_right = set(right)
    lines = [
        _line(headers, headers, widths, to_the_right).rstrip(),
        "─" * min(width, sum(widths) + GAP * beside - GAP),
    ]
    for number, row in enumerate(shown):
        lines.append(_line(headers, row, widths, to_the_right, color).rstrip())
        below = ", ".join(
            f"{header} {cell}" for header, cell in zip(headers[beside:], row[beside:], strict=True) if cell
        )
        for note in filter(None, [below, notes[number] if notes else ""]):
            lines += wrapped(note, width, "  ")
    lines += [part for line in legend for part in wrapped(line, width)]
    return "\n".join(lines) + "\n"


def _widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], kept: set[str], named: Container[str]
) -> tuple[list[int], list[int]]:
    """How wide each column is where there is room, and how wide it has to be."""
    most = [max([cell_len(header), *(cell_len(row[number]) for row in rows)]) for number, header in enumerate(headers)]
    least = []
    for number, (header, wide) in enumerate(zip(headers, most, strict=True)):
        needed = (
            _LEAST_NAMED
            if header in named
            else max(_LEAST, min(_DISTINCT, least_width([row[number] for row in rows] or [""])))
        )
        least.append(wide if header in kept else min(wide, max(needed, cell_len(header))))
    return most, least


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
        padding = " " * (wide - cell_len(text))
        text = texts.colored(text, cell, color)
        padded.append(padding + text if header in right else text + padding)
    return (" " * GAP).join(padded)


def facts(pairs: Iterable[tuple[str, str]], width: int) -> str:
    """Names and what they are, below each other; long ones go on in the next line. Empty ones are left out."""
    given = [(name, text) for name, text in pairs if text]
    indent = max((cell_len(name) for name, _ in given), default=0) + GAP
    lines = []
    for name, text in given:
        found = wrapped(text, width, " " * indent)
        lines.append(set_cell_size(name, indent) + found[0].lstrip())
        lines += found[1:]
    return "\n".join(lines) + "\n" if lines else ""


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Text as lines of at most `width` columns; words that are longer than a line are broken."""
    room = max(8, width - cell_len(indent))
    lines = []
    for paragraph in text.split("\n"):
        start = " " * min(len(paragraph) - len(paragraph.lstrip()), room - 8)
        line = start
        for word in printable(paragraph).split():
            rest = word
            while cell_len(rest) > room - cell_len(start):
                space = room - cell_len(line) - (line != start)
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


def _fitting(text: str, width: int) -> str:
    """The longest beginning of a text that is at most `width` columns wide."""
    while cell_len(text) > width:
        text = text[: max(1, min(len(text) - 1, width))]
    return text
