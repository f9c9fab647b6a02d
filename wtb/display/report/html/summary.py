"""The head of the report: the answer first, whether the gates hold, what to beware of, and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from wtb.analysis.comparison.verdicts import is_unclear
from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import block, name, text

_HOLDS = {True: ("✓", "holds", "good"), False: ("✗", "does not hold", "bad"), None: ("?", "cannot tell", "unsure")}
_UNCLEAR = ("?", "is unclear", "unsure")


def head(document: Mapping[str, Any]) -> str:
    """What was asked, and the answer: in a line, in a sentence, and how much of it could be noise."""
    matrix, about = document["matrix"], document["provenance"]
    sweep, size = matrix["sweep"], about["size"]
    shape = [texts.plural(size["combinations"], "combination"), texts.plural(size["cases"], "case")]
    shape += [f"{size['repeats']:,} repeats"] if size["repeats"] > 1 else []
    said = [f"{sweep['status']}", " × ".join(shape), _times(sweep["started_at"], sweep["finished_at"])]
    facts = "".join(f"<li>{text(one)}</li>" for one in said if one)
    return block(
        "header",
        [
            f"<h1>{name(sweep['name'], 120)}</h1>",
            block("ul", facts, "facts"),
            *_answers(matrix),
        ],
    )


def _answers(matrix: dict[str, Any]) -> list[str]:
    names = layout.metrics(matrix)
    if not names:
        return [block("p", text(summary.unscored(matrix)), "hero")]
    first = summary.answer({**matrix, "choice": None}, names[0])
    noise = summary.noise(matrix, names[0])
    chosen = summary.answer(matrix, names[0]).removeprefix(first).strip()  # what `best` of the sweep file chooses
    said = [f'<p class="hero" dir="auto">{text(summary.headline(matrix, names[0]), 100)}</p>']
    said += [f'<p class="answer" dir="auto">{text(one, 2000)}</p>' for one in (first, noise) if one]
    said += [f'<p class="answer" dir="auto">{text(chosen, 2000)}</p>'] if chosen else []
    said += [f'<p class="answer" dir="auto">{text(summary.answer(matrix, metric), 2000)}</p>' for metric in names[1:]]
    left = len(matrix["metrics"]) - len(names)
    return [*said, f'<p class="note">{left} more metrics are in the JSON form of this report.</p>'] if left else said


def gates(found: Sequence[Mapping[str, Any]]) -> str:
    """Each gate with its figures; nothing where the sweep has none."""
    if not found:
        return ""
    rows = []
    for gate in found:
        sign, said, mood = _UNCLEAR if is_unclear(gate) else _HOLDS[gate["holds"]]
        values = ", ".join(
            f"{key} = {'–' if value is None else f'{value:.4g}'}" for key, value in gate["values"].items()
        )
        because = "; ".join(filter(None, [values, gate["because"]]))
        rows.append(
            f'<li class="{mood}"><b class="sign">{sign}</b> <code>{text(gate["gate"])}</code> '
            f"<b>{said}</b>{because and f' <span>{text(because, 1000)}</span>'}</li>"
        )
    held = sum(gate["holds"] is True for gate in found)
    title = f"Gates: {held} of {len(found)} hold" if len(found) > 1 else "Gate"
    return block("section", [f"<h2>{title}</h2>", block("ul", rows, "gates")], more='id="gates"')


def warnings(matrix: Mapping[str, Any]) -> str:
    told = [f"<li>{text(one, 1000)}</li>" for one in matrix["warnings"][:20]]
    return block("ul", told, "warnings", 'aria-label="Warnings"') if told else ""


def took(document: Mapping[str, Any]) -> str:
    """Four figures: cells, node runs, money, time."""
    matrix = document["matrix"]
    cells, runs, cost = matrix["cells"], matrix["node_runs"], matrix["cost"]
    others = [
        f"{count:,} {status.replace('_', ' ')}"
        for status, count in cells.items()
        if count and status not in ("total", "succeeded")
    ]
    figures = [(f"{cells['succeeded']:,} of {cells['total']:,}", "cells succeeded", ", ".join(others))]
    if runs["unshared"] > runs["executed"]:
        saved = 1 - runs["executed"] / runs["unshared"]
        figures.append((f"{saved:.0%}", "of node runs saved", f"{runs['executed']:,} in place of {runs['unshared']:,}"))
    else:
        figures.append((f"{runs['executed']:,}", "node runs", ""))
    if cost["usd"]:
        alone = f"{texts.money(cost['unshared_usd'])} without sharing"
        saves = cost["unshared_usd"] > cost["usd"]
        figures.append((texts.money(cost["usd"]), "spent", alone if saves else ""))
    elif cost["tokens_in"] or cost["tokens_out"]:
        figures.append((f"{cost['tokens_in']:,}", "tokens in", f"{cost['tokens_out']:,} tokens out"))
    seconds = _seconds(matrix["sweep"]["started_at"], matrix["sweep"]["finished_at"])
    if seconds is not None:
        figures.append((texts.took(seconds), "from submission to the end", ""))
    inside = "".join(
        f"<li><b>{text(figure)}</b> {escape(said)}{more and f'<small>{text(more)}</small>'}</li>"
        for figure, said, more in figures
    )
    return block("ul", inside, "took")


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _times(start: str | None, end: str | None) -> str:
    found = [datetime.fromisoformat(one) for one in (start, end) if one]
    if not found:
        return "not started"
    days = dict.fromkeys(f"{one:%Y-%m-%d}" for one in found)
    if len(days) > 1:
        return " to ".join(f"{one:%Y-%m-%d %H:%M}" for one in found) + " UTC"
    hours = dict.fromkeys(f"{one:%H:%M}" for one in found)
    return f"{next(iter(days))}, {' to '.join(hours)} UTC"
