"""What came out, as Markdown: a table for each experiment, a row for each kind of scores, a column for each size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simulations.experiments import Found

BEGIN, END = "<!-- simulated -->", "<!-- end of simulated -->"


def render(found: Sequence[Found]) -> str:
    """Tables of percentages; a dash where nothing was simulated."""
    parts = []
    for experiment in dict.fromkeys(one.experiment for one in found):
        rows = [one for one in found if one.experiment == experiment]
        sizes = sorted({one.cases for one in rows})
        runs = max(one.runs for one in rows)
        head = f"| {experiment}, % of {runs:,} | " + " | ".join(f"{n:,} cases" for n in sizes) + " |"
        lines = [head, "| --- " + "| ---: " * len(sizes) + "|"]
        for shape in dict.fromkeys(one.shape for one in rows):
            shares = {one.cases: one for one in rows if one.shape == shape}
            lines.append(f"| {shape} | " + " | ".join(_percent(shares.get(n)) for n in sizes) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def replace(page: Path, text: str) -> None:
    """Put the tables between the marks of a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: expected the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _percent(found: Found | None) -> str:
    if found is None or math.isnan(found.share):
        return "–"
    return f"{100 * found.share:.1f}" + ("*" if found.undefined > 0.01 else "")
