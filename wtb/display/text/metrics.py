"""Figures over time, for a terminal and for spreadsheets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.core.documents.costs import AllSeriesDocument
from wtb.display.matrix import csv
from wtb.display.tables import grid, wrapped

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 12  # of a sparkline


def metrics(document: AllSeriesDocument, width: int, color: bool = False) -> str:
    """A line for each series: its least, last and largest value, and how it went."""
    if not document["series"]:
        text = "no figures over time: nodes record them with ctx.metric, and what their processes use is measured while"
        return "".join(
            f"{line}\n" for line in wrapped(f"{text} they run for longer than WTB_SAMPLE_S (5 seconds)", width)
        )
    rows = [
        [
            one["case"] or "",
            f"{one['node']}={one['variant']}",
            one["name"],
            *(figure(one[key], one["unit"]) for key in ("min", "last", "max")),
            f"{one['n']:,}",
            sparkline([value for _, value in one["points"]]),
        ]
        for one in document["series"]
    ]
    headers = ["case", "node run", "name", "min", "last", "max", "n", "over time"]
    return grid(headers, rows, width, right={"min", "last", "max", "n"}, whole={"over time"}, color=color)


def figure(value: float, unit: str | None) -> str:
    """To four figures; sizes in MB."""
    return f"{value / 1e6:,.1f} MB" if unit == "bytes" else f"{value:.4g}"


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """Values as bars, put together evenly where there are more of them than columns; each bar is the largest."""
    finite = [value for value in values if abs(value) != float("inf") and value == value]
    if not finite:
        return ""
    groups = min(width, len(finite))
    most = [max(finite[len(finite) * n // groups : len(finite) * (n + 1) // groups]) for n in range(groups)]
    low, high = min(finite), max(finite)
    if high == low:
        return _BARS[0] * groups
    return "".join(_BARS[min(len(_BARS) - 1, int((value - low) / (high - low) * len(_BARS)))] for value in most)


def as_csv(document: AllSeriesDocument) -> str:
    """One line for each point."""
    lines: list[list[Any]] = [["case", "execution", "node_run", "node", "variant", "name", "at", "value"]]
    for one in document["series"]:
        about = [one[key] for key in ("case", "execution", "node_run", "node", "variant", "name")]
        for at, value in one["points"]:
            lines.append([*about, at, value])
    return csv.written(lines)
