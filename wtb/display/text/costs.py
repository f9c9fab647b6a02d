"""What was spent, and what may be, in a terminal and as CSV. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from wtb.core.documents.costs import BudgetDocument, BudgetsDocument, CostRow, CostsDocument, CostTotal
from wtb.core.scoring.judgement import JUDGING, limit_name
from wtb.core.scoring.unknown_costs import sentences
from wtb.core.texts import money, took
from wtb.core.tree.stored_spec import Limits
from wtb.display.matrix import csv
from wtb.display.tables import grid, wrapped

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
    shown = [[_name(row, name) for name in by] + _figures(row) for row in document["rows"]]
    shown.append(["total", *[""] * (len(by) - 1), *_figures(whole)])
    headers = [*by, "spent", "failed", "innocent", "tokens in", "out", "attempts", "calls"]
    kept = [n for n, name in enumerate(headers) if n < len(by) or name == "spent" or any(row[n] for row in shown)]
    return grid(
        [headers[n] for n in kept],
        [[row[n] for n in kept] for row in shown],
        width,
        right=set(headers[len(by) :]),
        color=color,
    )


def _tools(document: CostsDocument, width: int, color: bool) -> str:
    """A row for each tool, and the total of their calls."""
    by, rows, whole = document["by"], document["rows"], document["total"]
    shown = [[_name(row, name) for name in by] + _of_tools(row, row["usd"]) for row in rows]
    spent = sum(row["usd"] for row in rows)
    shown.append(["total", *[""] * (len(by) - 1), *_of_tools(whole, spent)])
    headers = [*by, "calls", "failed", "undone", "time", "spent"]
    kept = [n for n, name in enumerate(headers) if n < len(by) or name == "calls" or any(row[n] for row in shown)]
    return grid(
        [headers[n] for n in kept],
        [[row[n] for n in kept] for row in shown],
        width,
        right=set(headers[len(by) :]),
        color=color,
    )


def _of_tools(row: CostRow | CostTotal, usd: float) -> list[str]:
    counts = [f"{count:,}" if count else "" for count in (row.get("failed_calls"), row.get("reversed_calls"))]
    return [f"{row['calls']:,}", *counts, took(row.get("duration_s", 0.0)), money(usd) if usd else ""]


def unknown(document: CostsDocument, width: int) -> str:
    """Return sentences about costs that are not known, as paragraphs; empty if all are."""
    return "".join(
        f"{line}\n" for text in sentences(document.get("unknown", [])) for line in wrapped(f"Warning: {text}.", width)
    )


def _name(row: CostRow, name: str) -> str:
    if name == "sweep":
        return str(row["sweep_name"] if row["sweep"] == row["sweep_name"] else f"{row['sweep_name']} ({row['sweep']})")
    found = row.get(name)
    return "(none)" if found is None else str(found)


def _figures(row: CostRow | CostTotal) -> list[str]:
    counts = [row["tokens_in"], row["tokens_out"], row["attempts"], row["calls"]]
    apart = [money(usd) if usd else "" for usd in (row["failed_usd"], row.get("innocent_usd"))]
    return [money(row["usd"]), *apart, *(f"{count:,}" if count else "" for count in counts)]


def as_csv(document: CostsDocument) -> str:
    """One line for each row, figures in full precision."""
    by = [name for one in document["by"] for name in ([one, "sweep_name"] if one == "sweep" else [one])]
    figures = (*_AS_CSV, *_TOOLS_AS_CSV) if "tool" in by else _AS_CSV
    columns = [*by, *figures]
    return csv.written([columns, *([row.get(name) for name in columns] for row in document["rows"])])


def budgets(document: BudgetsDocument, width: int, color: bool = False) -> str:
    """Budgets: what each is of, what is spent of it, and what attempts under way may still spend."""
    rows = [
        [
            one["scope"],
            _of(one),
            one["kind"].replace("_", " "),
            amount(one["kind"], one["most"]),
            amount(one["kind"], one["spent"]),
            f"{one['spent'] / one['most']:.0%}" if one["most"] else "",
            amount(one["kind"], one["reserved"]) if one["reserved"] else "",
        ]
        for one in document["budgets"]
    ]
    headers = ["of", "name", "kind", "most", "spent", "share", "reserved"]
    return grid(headers, rows, width, right=set(headers[3:]), color=color)


def _of(one: BudgetDocument) -> str:
    return f"{one['name']}: {one['node']}" if one["node"] else str(one["name"])


def amount(kind: str, figure: float | None) -> str:
    """An amount of a kind of budget."""
    if figure is None:
        return ""
    return money(figure) if kind == "usd" else f"{figure:,.0f}"


def limits(settings: Limits) -> list[str]:
    """Limits of a sweep as `--limits` takes them."""
    of_all = [("", settings, _LIMITS), (JUDGING, settings.get("judging", {}), _JUDGING_LIMITS)]
    of_nodes = [(node, of, _NODE_LIMITS) for node, of in settings.get("nodes", {}).items()]
    given: list[tuple[str, Mapping[str, Any], Sequence[str]]] = [*of_all, *of_nodes]
    return [
        f"{limit_name(node, key)}={value:g}"
        for node, of, keys in given
        for key in keys
        if (value := of.get(key)) is not None
    ]


def budgets_on_one_line(budgets: Sequence[BudgetDocument]) -> str:
    """Budgets on one line: `$0.50 of $2.00, 1,200 of 5,000 tokens; project x: ...`."""
    parts = []
    for one in budgets:
        unit = "" if one["kind"] == "usd" else f" {one['kind'].replace('_', ' ')}"
        node = one["node"]
        whose = "" if one["scope"] == "sweep" else f"{one['scope']}: "
        if node:
            whose = f"{node} " if node == JUDGING else f"node {node}: "
        parts.append(f"{whose}{amount(one['kind'], one['spent'])} of {amount(one['kind'], one['most'])}{unit}")
    return ", ".join(parts)
