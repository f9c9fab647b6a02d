"""What came out, as Markdown: a table for each promise, a row for each situation, a column for each size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simulations.promises import Found

BEGIN, END = "<!-- simulated -->", "<!-- end of simulated -->"


def render(found: Sequence[Found]) -> str:
    """Tables of percentages; a dash where nothing was simulated, bold where a bound is broken."""
    parts = []
    for claim in dict.fromkeys(one.promise.claim for one in found):
        rows = [one for one in found if one.promise.claim == claim]
        sizes = list(dict.fromkeys(one.promise.size for one in rows))
        head = f"| {claim}, % ({_asked(rows)}) | " + " | ".join(sizes) + " |"
        lines = [head, "| --- " + "| ---: " * len(sizes) + "|"]
        for situation in dict.fromkeys(one.promise.situation for one in rows):
            shares = {one.promise.size: one for one in rows if one.promise.situation == situation}
            lines.append(f"| {situation} | " + " | ".join(_percent(shares.get(size)) for size in sizes) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def replace(page: Path, text: str) -> None:
    """Put the tables between the marks of a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: expected the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _asked(rows: Sequence[Found]) -> str:
    low = dict.fromkeys(one.promise.at_least for one in rows if one.promise.at_least is not None)
    high = dict.fromkeys(one.promise.at_most for one in rows if one.promise.at_most is not None)
    bounds = [f"at least {100 * value:g}" for value in low] + [f"at most {100 * value:g}" for value in high]
    return ", ".join(bounds) or "told, no bound"


def _percent(found: Found | None) -> str:
    if found is None or math.isnan(found.share):
        return "–"
    free = found.promise.at_least is None and found.promise.at_most is None
    text = f"{100 * found.share:.1f}" + ("\\*" if free else "")
    return f"**{text}**" if found.broken else text
