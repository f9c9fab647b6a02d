"""What came out, as Markdown: a table for each promise, a row for each situation, a column for each size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simulations.promises import Found

# What was concluded before, as an independent check measured it, and the claims whose figures took its place.
BEFORE = (
    ("★ where another is as good", "43 to 69 at 20 and 50 cases", ("a best that is clear, and is not",)),
    ("worse, where nothing got worse", "44 to 100", ("worse is said where nothing got worse",)),
    ("worse, where it is so", "less with more cases: 62, 50, 28", ("worse is said where it is so",)),
    ("best, by failing where it is hard", "86 to 100", ("a row gets ahead by failing where it is hard",)),
    ("a difference of the size of `detectable` is seen", "16 to 50", ("a detectable difference is seen",)),
    ("an effect is told with missing cells", "0 with 10% missing", ("an effect of 0.3 of a node is told",)),
    (
        "effects are told in noise",
        "82 to 100",
        (
            "an effect of nodes that do nothing is told",
            "a share is said to come from neither nodes nor pairs, in noise",
        ),
    ),
    ("the interval of the best covers", "57 to 80", ("the interval of the best covers",)),
    ("a tie is given a number of cases", "46 to 100", ("a tie is given a number of cases that settles it",)),
    ("intervals cover where cases come from one source", "66 to 76", ("intervals over clusters cover",)),
    ("false alarms there", "9.5 to 28", ("a difference is seen between equal means of clusters",)),
    (
        "a false ★ while one looks again and again",
        "20 to 27",
        (
            "looking after every ten of 200 cases: a false star",
            "looking after every ten of 200 cases: a false best",
        ),
    ),
    ("intervals cover", "from 80", ("intervals of means cover",)),
    ("false alarms where differences are skewed", "7.5 to 16", ("a difference is seen between equal means",)),
)
BEGIN, END = "<!-- simulated -->", "<!-- end of simulated -->"


def render(found: Sequence[Found], share: float = 1.0) -> str:
    """Tables of percentages; a dash where nothing was simulated, bold where a bound is broken."""
    counts = [one.of for one in found if one.of]
    part = "" if share == 1 else f" (`--share {share:g}` of those of `make simulate`)"
    runs = (
        f"{len(found):,} figures, each of {min(counts):,} to {max(counts):,} simulated sweeps{part}." if counts else ""
    )
    parts = [runs, _overview(found)]
    for claim in dict.fromkeys(one.promise.claim for one in found):
        rows = [one for one in found if one.promise.claim == claim]
        sizes = list(dict.fromkeys(one.promise.size for one in rows))
        head = f"| {claim}, % ({_asked(rows)}) | " + " | ".join(sizes) + " |"
        lines = [head, "| --- " + "| ---: " * len(sizes) + "|"]
        for situation in dict.fromkeys(one.promise.situation for one in rows):
            shares = {one.promise.size: one for one in rows if one.promise.situation == situation}
            lines.append(f"| {situation} | " + " | ".join(_percent(shares.get(size)) for size in sizes) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(filter(None, parts)) + "\n"


def _overview(found: Sequence[Found]) -> str:
    """What was concluded before, and the lowest and the highest figure now; empty for a part of the promises."""
    lines = ["| %, where the truth is known | before | now | asked |", "| --- | --- | --- | --- |"]
    for concluded, before, claims in BEFORE:
        told = [one for one in found if one.promise.claim in claims and one.of]
        bound = [one for one in told if one.promise.has_bound]
        if not told:
            return ""
        elsewhere = [one for one in told if one not in bound]
        ranges = [_range(bound)] if bound else []
        if elsewhere:
            ranges.append(f"where nothing is asked {_range(elsewhere)}" if bound else _range(elsewhere))
        lines.append(f"| {concluded} | {before} | {'; '.join(ranges)} | {_asked(bound or told)} |")
    return "\n".join(lines)


def _range(found: Sequence[Found]) -> str:
    """From the lowest to the highest share, in percent."""
    low, high = (f"{100 * end(one.share for one in found):.1f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


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
    text = f"{100 * found.share:.1f}" + ("" if found.promise.has_bound else "\\*")
    return f"**{text}**" if found.broken else text
