"""Words for people: times, and values on one line. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from wtb.core.tree.combinations import in_words
from wtb.core.values import Json

_COLORS = {
    **dict.fromkeys(("succeeded", "completed", "ok", "alive"), "32"),
    **dict.fromkeys(("failed", "set_aside", "error", "problem", "dead"), "31"),
    **dict.fromkeys(("paused", "waiting", "warning", "cancelled", "skipped", "unknown"), "33"),
    **dict.fromkeys(("running", "forked"), "36"),
    **dict.fromkeys(("pending", "debug", "info", "missing"), "2"),
}


MISSING = "–"
LAG_SHOWN_S = 0.005  # a shorter lag of the event loop is not shown beside a duration


def colored(text: str, word: str, color: bool) -> str:
    """Return text in the colour of a status or severity, if colours are on and it has one."""
    code = _COLORS.get(word)
    return f"\x1b[{code}m{text}\x1b[0m" if color and code else text


def printable(text: object) -> str:
    """Return text with characters that a terminal would obey (escape sequences, line breaks) made visible."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def money(usd: float | None, largest: float | None = None) -> str:
    """Return dollars to three significant figures of the largest amount in the column, at least to the cent."""
    if usd is None:
        return MISSING
    scale = largest or usd
    # One precision for a whole column, so that its amounts can be compared at a glance.
    return f"${usd:,.{2 if not scale else max(2, 2 - math.floor(math.log10(scale)))}f}"


def duration(seconds: float | None) -> str:
    """Return a duration to two or three figures, in a suitable unit."""
    if seconds is None:
        return MISSING
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
    if seconds < 120:
        return f"{seconds:.{2 if seconds < 10 else 1}f} s"
    return f"{seconds / 60:.1f} min"


def cut_one(name: str, width: int, tail: int) -> str:
    """Return a name in at most `width` columns, of which `tail` keep its end."""
    from rich.cells import cell_len, chop_cells  # slow to import

    if cell_len(name) <= width:
        return name
    if width <= 1 + tail:
        return "…"
    end = name[len(name) - tail :]
    while cell_len(end) > tail:  # characters that are two columns wide
        end = end[1:]
    return chop_cells(name, width - 1 - tail)[0] + "…" + end


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 cell`, `2,000 cells`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed_names(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def ordinal(number: int) -> str:
    """Return an ordinal such as `third` or `21st`, from 1 on."""
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number:,}{'th' if number // 10 % 10 == 1 else ends.get(number % 10, 'th')}"


def moment(at: float | str | None, *, seconds: bool = False) -> str:
    """Return a time on this machine's clock, to the minute.

    Args:
        at: Seconds since 1970, or ISO 8601; None is a dash.
        seconds: Show the seconds, too.
    """
    if at is None:
        return MISSING
    return _local(at).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def _local(at: float | str) -> datetime:
    return datetime.fromtimestamp(datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at)


def brief_moment(at: float | str | None, now: float) -> str:
    """Return a time to the minute, without the year if it is the present one."""
    text = moment(at)
    return text[5:] if text[:4] == moment(now)[:4] else text


def clock(at: float | str) -> str:
    """Return the time of day to the millisecond, of seconds since 1970 or ISO 8601."""
    return _local(at).isoformat(sep=" ", timespec="milliseconds").partition(" ")[2]


def took(seconds: float | None) -> str:
    """Return a duration, in hours and days if it is long."""
    if seconds is None or seconds < 7200:
        return duration(seconds)
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


def bytes_of(count: float) -> str:
    """Return a size such as `512 B` or `1.5 MB`."""
    power = 0 if count < 1000 else min(4, int(math.log10(count) // 3))
    return f"{count / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def metadata(values: Mapping[str, Json]) -> str:
    """Return the metadata of a workflow on one line."""
    return ", ".join(f"{printable(name)}: {short(field)}" for name, field in values.items())


def describe_choices(choices: Mapping[str, str]) -> str:
    """Return choices such as `retrieve=bm25 answer=terse`."""
    return printable(in_words(choices))


def chosen_by_all(combinations: Sequence[Mapping[str, str]]) -> str:
    """Return the choices of several combinations: the variant if they agree, else how many there are."""
    by_node: dict[str, list[str]] = {}
    for choices in combinations:
        for node, variant in choices.items():
            if variant not in by_node.setdefault(node, []):
                by_node[node].append(variant)
    return describe_choices({node: v[0] if len(v) == 1 else f"({len(v)} variants)" for node, v in by_node.items()})


def short(value: Any, width: int = 60) -> str:
    """Return a value on one line of at most `width` columns; its size follows if it was cut."""
    from rich.cells import cell_len  # slow to import

    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    if cell_len(text) <= width:
        return text
    size = ""
    if isinstance(value, str):
        size = f" ({plural(len(value), 'character')})"
    elif isinstance(value, list | dict):
        size = f" ({plural(len(value), 'item' if isinstance(value, list) else 'key')})"
    room = width - cell_len(size)
    return cut_one(text, room, 0) + size if room > 8 else cut_one(text, width, 0)


def cut(text: str, width: int) -> str:
    """Return one line of at most `width` columns, with its end cut off if it is longer."""
    return cut_one(printable(text), width, 0)


def hinted(problem: str) -> str:
    """Return the first line of an error, for a table."""
    return printable(problem.strip().partition("\n")[0])


def line(nodes: Sequence[str]) -> list[str]:
    """Return nodes one after another; a repeated node is shown once with its count."""
    counts = [(node, len(list(same))) for node, same in groupby(nodes)]
    return [node if count == 1 else f"{node} x{count}" for node, count in counts]


def score(figure: Any) -> str:
    """Return a score to four figures, or the first line of the reason if there is none."""
    if isinstance(figure, float | int):
        return f"{figure:.4g}"
    return "–" if figure is None else hinted(str(figure))
