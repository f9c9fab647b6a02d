"""The figures of storms as tables, on a terminal and in a page."""

from __future__ import annotations

import os
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.figures import Figures
from tests.chaos.recovery import percentile

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"

_COLUMNS = (
    "faults",
    "cells",
    "lost",
    "doubled",
    "wrong",
    "stale",
    "orphaned",
    "node runs",
    "repeated",
    "by hand",
    "minutes",
)


def render(storms: Sequence[Figures], machine: str) -> str:
    """Tables in Markdown: what was counted, which faults there were, and how long it took until work went on."""
    return "\n\n".join([_counted(storms), _faults(storms), _times(storms), machine]) + "\n"


def machine(load: float, began: str) -> str:
    """Return where and when it was measured: cores, Python, and the load of the machine over the storms."""
    cores = os.cpu_count() or 1
    return (
        f"Measured {began} on Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}, "
        f"{cores} cores, with a mean load of {load:.1f} (storms included)."
    )


def replace(page: Path, text: str) -> None:
    """Put the tables between the marks of a page."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: expected the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", "utf-8")


def _counted(storms: Sequence[Figures]) -> str:
    lines = [_row("storm over", *_COLUMNS), _row("---", *["---:"] * len(_COLUMNS))]
    for storm in storms:
        share = f" ({storm.repeated / storm.node_runs:.1%})" if storm.node_runs else ""
        counts = (storm.cells, storm.lost, storm.doubled, storm.wrong, storm.stale, storm.orphaned, storm.node_runs)
        minutes = f"{storm.seconds / 60:.1f}"
        cells = (f"{count:,}" for count in counts)
        repeated = f"{storm.repeated:,}{share}"
        lines.append(_row(storm.name, sum(storm.faults.values()), *cells, repeated, storm.by_hand, minutes))
    return "\n".join(lines)


def _faults(storms: Sequence[Figures]) -> str:
    counts = sum((Counter(dict(storm.faults)) for storm in storms), Counter[str]())
    return "\n".join([_row("fault", "times"), _row("---", "---:"), *(_row(*count) for count in counts.most_common())])


def _times(storms: Sequence[Figures]) -> str:
    times: dict[str, list[float]] = defaultdict(list)
    for storm in storms:
        for what, seconds in storm.times.items():
            times[what] += seconds
    lines = [_row("seconds until work goes on after", "times", "p50", "p90", "p99", "most"), _row("---", *["---:"] * 5)]
    for what, seconds in sorted(times.items(), key=lambda timing: -len(timing[1])):
        shares = (f"{percentile(seconds, share):.1f}" for share in (0.5, 0.9, 0.99, 1.0))
        lines.append(_row(what, len(seconds), *shares))
    return "\n".join(lines)


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
