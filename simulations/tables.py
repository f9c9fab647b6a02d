"""The figures as Markdown: a table for each promise, a row for each situation, a column for each size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simulations.promises import Found, Promise

PAGE, FIGURES = Path("docs/simulated.md"), Path("simulations/figures.md")

# The summary of the page: what is claimed, and the claims whose figures it takes together.
OVERVIEW = (
    ("★ where another is as good", ("a best that is clear, and is not",)),
    ("`worse` where nothing got worse", ("worse is said where nothing got worse",)),
    ("`worse` where it is so", ("worse is said where it is so",)),
    ("best by failing on hard cases", ("a row gets ahead by failing where it is hard",)),
    (
        "★ where another is as good, and a provider failed",
        ("a star although both rows are as good, and a provider failed",),
    ),
    ("a difference as large as `detectable` is found", ("a detectable difference is seen",)),
    ("an effect is found with missing cells", ("an effect of 0.3 of a node is told",)),
    (
        "an effect is found in noise",
        (
            "an effect of nodes that do nothing is told",
            "a share is said to come from neither nodes nor pairs, in noise",
        ),
    ),
    ("a main effect of 0.08 is found", ("a main effect of 0.08 is found",)),
    ("an interaction of 0.10 is found", ("an interaction of 0.10 is found",)),
    (
        "any false effect of factors and pairs",
        (
            "an effect of factors that is not there is claimed",
            "an effect of factors that is not there is claimed, in hard situations",
        ),
    ),
    ("the interval of the best covers", ("the interval of the best covers",)),
    (
        "the cases that the next step asks for settle it",
        ("as many cases as are said settle it, if the leads are real",),
    ),
    ("the cases that a margin asks for show it", ("as many cases as are planned show that no row lost its margin",)),
    ("good enough: yes, although it is not", ("good enough: yes, although it is not",)),
    ("good enough: no, although it is", ("good enough: no, although it is",)),
    ("good enough: yes, and it is", ("good enough: yes, and it is",)),
    (
        "false alarms over equal inputs under several ids",
        ("a difference is seen between equal rows over equal inputs",),
    ),
    ("intervals over equal inputs cover", ("intervals over equal inputs cover",)),
    ("some night of 20 is alarmed, though nothing changed", ("some night of 20 is alarmed",)),
    ("one night with a fall of 0.15 is alarmed", ("one night with a fall of 0.15 is alarmed",)),
    ("a slide from 0.9 to 0.7 by night 20 is alarmed", ("a slide from 0.9 to 0.7 by night 20 is alarmed",)),
    ("intervals over clusters cover", ("intervals over clusters cover",)),
    ("false alarms over clusters", ("a difference is seen between equal means of clusters",)),
    (
        "a false ★ when looking again and again",
        (
            "looking after every ten of 200 cases: a false star",
            "looking after every ten of 200 cases: a false best",
        ),
    ),
    ("a false gain in all looks at the same cases together", ("all looks together, though nothing differs: a gain",)),
    ("a false `*` or ★ in all of these", ("all looks together, though nothing differs: any * or ★",)),
    (
        "a false `*` or ★ for a row that lacks its wrong answers",
        ("cells are missing: a false * for the row that lacks them", "cells are missing: a false star for the best"),
    ),
    ("`worse` where nothing got worse, and cells are missing", ("cells are missing: worse, though nothing changed",)),
    ("a true gain is found, and cells are missing", ("cells are missing: a true gain is found",)),
    (
        "a false claim where losses are rare and large",
        ("rare large losses: a false * or star for small gains", "rare large losses: a false verdict of two nights"),
    ),
    ("a wrong interval from labels not drawn at random", ("labels not drawn at random: a wrong interval is shown",)),
    (
        "a sequence without bounds misses, at any look",
        ("looking after every ten cases: a sequence without bounds misses",),
    ),
    ("intervals of means cover", ("intervals of means cover",)),
    (
        "intervals of figures over all cells of a row cover",
        (
            "intervals of figures over all cells of a row cover",
            "intervals of differences of figures over all cells of a row cover",
        ),
    ),
    (
        "intervals of figures over few cases of a class cover",
        (
            "intervals of figures over few cases of a class cover",
            "intervals of differences of figures over few cases of a class cover",
        ),
    ),
    ("intervals of pass@k and pass^k cover", ("intervals of pass@k and pass^k cover",)),
    ("false alarms by pass@k", ("a difference is seen between equal rows by pass@k",)),
    (
        "false alarms by figures over all cells of a row",
        (
            "a difference is seen between equal figures over all cells of a row",
            "a best by a figure over all cells of a row is clear, and is not",
        ),
    ),
    ("false alarms with skewed differences", ("a difference is seen between equal means",)),
    (
        "intervals of labels with judgements cover",
        (
            "intervals of labels with judgements cover",
            "intervals of differences of labels with judgements cover",
            "intervals of labels drawn with unequal chances cover",
        ),
    ),
    (
        "intervals of what a judge is biased by cover",
        (
            "intervals of what a judge adds for its own family cover",
            "intervals of how much more often a judge gives a level cover",
        ),
    ),
    (
        "intervals of agreement cover",
        ("intervals of agreement cover", "intervals of agreement cover where one rating is rare"),
    ),
    ("figures of comparisons of two rows cover", ("figures of comparisons of two rows cover",)),
    (
        "the best row is ruled out while comparing what tells most",
        ("the best row is ruled out while comparing what tells most",),
    ),
)
# The tables that a reader decides by: how many cases a sweep needs. The rest is in FIGURES.
ON_THE_PAGE = (
    "good enough: yes, although it is not",
    "good enough: yes, and it is",
    "worse is said where it is so",
    "not worse is said where nothing was changed",
    "a better row is clearly best",
    "a difference is claimed that is not there",
)
BEGIN, END = "<!-- simulated -->", "<!-- end of simulated -->"


def render(figures: Sequence[Found], share: float = 1.0) -> str:
    """Return tables of percentages: a dash means not simulated, bold means a broken bound."""
    counts = [figure.of for figure in figures if figure.of]
    part = "" if share == 1 else f" (`--share {share:g}` of those of `make simulate`)"
    runs = f"{len(figures):,} figures, each of {min(counts):,} to {max(counts):,} observations{part}." if counts else ""
    return _joined(
        [runs, *(_table(figures, claim) for claim in dict.fromkeys(figure.promise.claim for figure in figures))]
    )


def summary(figures: Sequence[Found]) -> str:
    """Return the tables of the page: the range of each promise, and the most important claims."""
    claims = [claim for claim in ON_THE_PAGE if any(figure.promise.claim == claim for figure in figures)]
    return _joined([_overview(figures), *(_table(figures, claim) for claim in claims)])


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(figures: Sequence[Found], claim: str) -> str:
    rows = [figure for figure in figures if figure.promise.claim == claim]
    sizes = list(dict.fromkeys(figure.promise.size for figure in rows))
    head = f"| {claim}, % ({_bound(rows)}) | " + " | ".join(sizes) + " |"
    lines = [head, "| --- " + "| ---: " * len(sizes) + "|"]
    for situation in dict.fromkeys(figure.promise.situation for figure in rows):
        shares = {figure.promise.size: figure for figure in rows if figure.promise.situation == situation}
        lines.append(f"| {situation} | " + " | ".join(_percent(shares.get(size)) for size in sizes) + " |")
    return "\n".join(lines)


def _overview(every_figure: Sequence[Found]) -> str:
    """The lowest and the highest figure of each promise, with its bound."""
    lines = ["| % of simulated sweeps | measured | bound | without a bound |", "| --- | --- | --- | --- |"]
    for promised, claims in OVERVIEW:
        figures = [figure for figure in every_figure if figure.promise.claim in claims and figure.of]
        if not figures:
            continue
        bound = [figure for figure in figures if figure.promise.has_bound]
        rest = [figure for figure in figures if figure not in bound]
        lines.append(f"| {promised} | {_range(bound)} | {_bound(bound)} | {_range(rest)} |")
    return "\n".join(lines)


def _range(figures: Sequence[Found]) -> str:
    """Return the lowest to the highest share, in percent; empty if there is none."""
    if not figures:
        return ""
    low, high = (f"{100 * end(figure.share for figure in figures):.1f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def partly(promises: Sequence[Promise], all_promises: Sequence[Promise]) -> list[str]:
    """Return the lines and tables of which only some promises were selected, so that they cannot be written."""
    left_out = {promise.claim for promise in all_promises if promise not in promises}
    claims_by_text = [
        *((promised, set(claims)) for promised, claims in OVERVIEW),
        *((promise.claim, {promise.claim}) for promise in all_promises),
    ]
    claimed = {promise.claim for promise in promises}
    return [promised for promised, claims in claims_by_text if claims & claimed and claims & left_out]


def _merged(before: str, text: str) -> str:
    """Return tables with those of some promises replaced: whole ones by heading, of the overview its lines."""
    tables = {table.partition("%")[0]: table for table in text.strip().split("\n\n")}
    overview = next((table for table in tables.values() if table.startswith("| % of")), "")
    lines = {line.split("|")[1]: line for line in overview.splitlines()[2:]}
    merged = []
    for table in before.strip().split("\n\n"):
        if table.startswith("| % of"):
            anew = (lines.get(line.split("|")[1], line) for line in table.splitlines())
            merged.append("\n".join(anew))
        else:
            merged.append(tables.get(table.partition("%")[0], table))
    known_headings = {table.partition("%")[0] for table in before.strip().split("\n\n")}
    new = [table for heading, table in tables.items() if table.startswith("|") and heading not in known_headings]
    return "\n\n".join([*merged, *new]) + "\n"


def replace(page: Path, text: str, *, whole: bool) -> None:
    """Put the tables between the marks of a page. whole: replace all, else only those with the same heading."""
    before, begin, rest = page.read_text().partition(BEGIN)
    tables, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: expected the lines {BEGIN} and {END}")
    if not whole:
        text = _merged(tables, text)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _bound(figures: Sequence[Found]) -> str:
    low = dict.fromkeys(figure.promise.at_least for figure in figures if figure.promise.at_least is not None)
    high = dict.fromkeys(figure.promise.at_most for figure in figures if figure.promise.at_most is not None)
    bounds = [f"at least {100 * share:g}" for share in low] + [f"at most {100 * share:g}" for share in high]
    return ", ".join(bounds) or "no bound"


def _percent(figure: Found | None) -> str:
    if figure is None or math.isnan(figure.share):
        return "–"
    text = f"{100 * figure.share:.1f}" + ("" if figure.promise.has_bound else "\\*")
    return f"**{text}**" if figure.broken else text
