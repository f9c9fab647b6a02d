"""Spending and its limits, and figures of nodes over time, in a terminal and as CSV. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from wtb.core.documents.plan import (
    AllSeriesDocument,
    BudgetDocument,
    BudgetsDocument,
    CostRow,
    CostsDocument,
    CostTotal,
)
from wtb.core.scoring.scores import JUDGING, limit_name
from wtb.core.scoring.unknown_costs import sentences
from wtb.core.texts import money, took
from wtb.core.tree.stored_spec import Limits
from wtb.display import csv
from wtb.display.tables import grid, paragraphs

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 12  # of a sparkline


def metrics(document: AllSeriesDocument, width: int, color: bool = False) -> str:
    """A line for each series: its least, last and largest value, and how it went."""
    if not document["series"]:
        text = "no figures over time: nodes record them with ctx.metric, and what their processes use is measured while"
        return paragraphs([f"{text} they run for longer than WTB_SAMPLE_S (5 seconds)"], width)
    rows = [
        [
            series["case"] or "",
            f"{series['node']}={series['variant']}",
            series["name"],
            *(figure(series[key], series["unit"]) for key in ("min", "last", "max")),
            f"{series['n']:,}",
            sparkline([number for _, number in series["points"]]),
        ]
        for series in document["series"]
    ]
    headers = ["case", "node run", "name", "min", "last", "max", "n", "over time"]
    return grid(headers, rows, width, right={"min", "last", "max", "n"}, whole={"over time"}, color=color)


def figure(number: float, unit: str | None) -> str:
    """To four figures; sizes in MB."""
    return f"{number / 1e6:,.1f} MB" if unit == "bytes" else f"{number:.4g}"


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """Values as bars, put together evenly where there are more of them than columns; each bar is the largest."""
    # NaN is the only value that differs from itself.
    finite = [number for number in values if abs(number) != float("inf") and number == number]
    if not finite:
        return ""
    groups = min(width, len(finite))
    peaks = [max(finite[len(finite) * n // groups : len(finite) * (n + 1) // groups]) for n in range(groups)]
    low, high = min(finite), max(finite)
    if high == low:
        return _BARS[0] * groups
    # The largest value would be one step above the last bar.
    return "".join(_BARS[min(len(_BARS) - 1, int((number - low) / (high - low) * len(_BARS)))] for number in peaks)


def metrics_as_csv(document: AllSeriesDocument) -> str:
    """One line for each point."""
    lines: list[list[Any]] = [["case", "execution", "node_run", "node", "variant", "name", "at", "value"]]
    for series in document["series"]:
        about = [series[key] for key in ("case", "execution", "node_run", "node", "variant", "name")]
        for at, number in series["points"]:
            lines.append([*about, at, number])
    return csv.written(lines)


_AS_CSV: Final = (
    *("usd", "tokens_in", "tokens_out", "attempts", "calls"),
    *("failed_attempts", "failed_usd", "innocent_attempts", "innocent_usd"),
)
_TOOLS_AS_CSV: Final = ("failed_calls", "duration_s", "reversed_calls")
_LIMITS: Sequence[Literal["cell_timeout", "node_runs", "usd", "tokens", "wall"]] = (
    "cell_timeout",
    "node_runs",
    "usd",
    "tokens",
    "wall",
)
_NODE_LIMITS: Sequence[Literal["usd", "tokens", "node_runs"]] = ("usd", "tokens", "node_runs")
_JUDGING_LIMITS: Sequence[Literal["usd"]] = ("usd",)


def costs(document: CostsDocument, width: int, color: bool = False) -> str:
    """A row for each of what was asked for, and the total."""
    by = document["by"]
    if "tool" in by:
        return _tools(document, width, color)
    whole = document["total"]
    table_rows = [[_name(row, name) for name in by] + _figures(row) for row in document["rows"]]
    table_rows.append(["total", *[""] * (len(by) - 1), *_figures(whole)])
    figures = ["spent", "failed", "innocent", "tokens in", "out", "attempts", "calls"]
    return _table(by, figures, table_rows, width, color)


def _tools(document: CostsDocument, width: int, color: bool) -> str:
    """A row for each tool, and the total of their calls."""
    by, rows, whole = document["by"], document["rows"], document["total"]
    table_rows = [[_name(row, name) for name in by] + _of_tools(row, row["usd"]) for row in rows]
    spent = sum(row["usd"] for row in rows)
    table_rows.append(["total", *[""] * (len(by) - 1), *_of_tools(whole, spent)])
    return _table(by, ["calls", "failed", "undone", "time", "spent"], table_rows, width, color)


def _table(by: Sequence[str], figures: Sequence[str], rows: Sequence[Sequence[str]], width: int, color: bool) -> str:
    """Return a table without figures that no row has; the first one stays."""
    headers = [*by, *figures]
    visible = [n for n in range(len(headers)) if n <= len(by) or any(row[n] for row in rows)]
    shown_rows = [[row[n] for n in visible] for row in rows]
    return grid([headers[n] for n in visible], shown_rows, width, right=figures, color=color)


def _of_tools(row: CostRow | CostTotal, usd: float) -> list[str]:
    counts = [f"{count:,}" if count else "" for count in (row.get("failed_calls"), row.get("reversed_calls"))]
    return [f"{row['calls']:,}", *counts, took(row.get("duration_s", 0.0)), money(usd) if usd else ""]


def unknown(document: CostsDocument, width: int) -> str:
    """Return sentences about costs that are not known, as paragraphs; empty if all are."""
    return paragraphs((f"Warning: {text}." for text in sentences(document.get("unknown", []))), width)


def _name(row: CostRow, name: str) -> str:
    if name == "sweep":
        return str(row["sweep_name"] if row["sweep"] == row["sweep_name"] else f"{row['sweep_name']} ({row['sweep']})")
    group = row.get(name)
    return "(none)" if group is None else str(group)


def _figures(row: CostRow | CostTotal) -> list[str]:
    counts = [row["tokens_in"], row["tokens_out"], row["attempts"], row["calls"]]
    apart = [money(usd) if usd else "" for usd in (row["failed_usd"], row.get("innocent_usd"))]
    return [money(row["usd"]), *apart, *(f"{count:,}" if count else "" for count in counts)]


def as_csv(document: CostsDocument) -> str:
    """One line for each row, figures in full precision."""
    by = [
        name
        for grouping in document["by"]
        for name in ([grouping, "sweep_name"] if grouping == "sweep" else [grouping])
    ]
    figures = (*_AS_CSV, *_TOOLS_AS_CSV) if "tool" in by else _AS_CSV
    columns = [*by, *figures]
    return csv.written([columns, *([row.get(name) for name in columns] for row in document["rows"])])


def budgets(document: BudgetsDocument, width: int, color: bool = False) -> str:
    """Budgets: what each is of, what is spent of it, and what attempts under way may still spend."""
    rows = [
        [
            budget["scope"],
            f"{budget['name']}: {budget['node']}" if budget["node"] else str(budget["name"]),
            budget["kind"].replace("_", " "),
            amount(budget["kind"], budget["most"]),
            amount(budget["kind"], budget["spent"]),
            f"{budget['spent'] / budget['most']:.0%}" if budget["most"] else "",
            amount(budget["kind"], budget["reserved"]) if budget["reserved"] else "",
        ]
        for budget in document["budgets"]
    ]
    headers = ["of", "name", "kind", "most", "spent", "share", "reserved"]
    return grid(headers, rows, width, right=set(headers[3:]), color=color)


def amount(kind: str, figure: float | None) -> str:
    """An amount of a kind of budget."""
    if figure is None:
        return ""
    return money(figure) if kind == "usd" else f"{figure:,.0f}"


def limits(settings: Limits) -> list[str]:
    """Limits of a sweep as `--limits` takes them."""
    of_all = [("", settings, _LIMITS), (JUDGING, settings.get("judging", {}), _JUDGING_LIMITS)]
    of_nodes = [(node, of, _NODE_LIMITS) for node, of in settings.get("nodes", {}).items()]
    scopes: list[tuple[str, Mapping[str, Any], Sequence[str]]] = [*of_all, *of_nodes]
    return [
        f"{limit_name(node, key)}={limit_value:g}"
        for node, of, keys in scopes
        for key in keys
        if (limit_value := of.get(key)) is not None
    ]


def budgets_on_one_line(budgets: Sequence[BudgetDocument]) -> str:
    """Budgets on one line: `$0.50 of $2.00, 1,200 of 5,000 tokens; project x: ...`."""
    parts = []
    for budget in budgets:
        unit = "" if budget["kind"] == "usd" else f" {budget['kind'].replace('_', ' ')}"
        node = budget["node"]
        whose = "" if budget["scope"] == "sweep" else f"{budget['scope']}: "
        if node:
            whose = f"{node} " if node == JUDGING else f"node {node}: "
        parts.append(
            f"{whose}{amount(budget['kind'], budget['spent'])} of {amount(budget['kind'], budget['most'])}{unit}"
        )
    return ", ".join(parts)
