"""Plain tables for a terminal: columns as wide as they need, cut where the width is short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from wtb.render import words
from wtb.render.columns import cut_one, shared_room
from wtb.render.summary import printable

GAP = 2
_LEAST = 6  # columns that may be cut keep so much


def grid(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = (),
    notes: Sequence[str] = (),
    color: bool = False,
) -> str:
    """A table of at most `width` columns.

    right: headers of columns of figures. whole: of columns that are never cut, such as ids. notes: for each row
    a text for lines of its own below it, wrapped; or empty.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = _widths(headers, shown, width, {*right, *whole})
    to_the_right = set(right)
    lines = [
        _line(headers, headers, widths, to_the_right).rstrip(),
        "─" * min(width, sum(widths) + GAP * len(widths) - GAP),
    ]
    for number, row in enumerate(shown):
        lines.append(_line(headers, row, widths, to_the_right, color).rstrip())
        if notes and notes[number]:
            lines += wrapped(notes[number], width, "  ")
    return "\n".join(lines) + "\n"


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, kept: set[str]) -> list[int]:
    most = [max([cell_len(header), *(cell_len(row[number]) for row in rows)]) for number, header in enumerate(headers)]
    least = [
        wide if header in kept else min(wide, max(_LEAST, cell_len(header)))
        for header, wide in zip(headers, most, strict=True)
    ]
    return shared_room(most, least, width - GAP * (len(headers) - 1))


def _line(
    headers: Sequence[str], cells: Sequence[str], widths: Sequence[int], right: set[str], color: bool = False
) -> str:
    made = []
    for header, cell, wide in zip(headers, cells, widths, strict=True):
        text = cut_one(cell, wide, 0)
        padding = " " * (wide - cell_len(text))
        text = words.colored(text, cell, color)
        made.append(padding + text if header in right else text + padding)
    return (" " * GAP).join(made)


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
