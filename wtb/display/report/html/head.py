"""The head of a page: the answer first, whether the gates hold, what to beware of, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.display.matrix import gates, recommendation, sentences
from wtb.display.report.html import layout

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import EvidenceDocument


@frozen
class Head:
    """The head of a page.

    Attributes:
        decision: What to ship; None for documents of earlier versions.
        title: The answer in a line.
        judged: Each gate in words, and whether it holds.
        warnings: Those that could change the decision, and the others.
        figures: Each a figure, what it is, and more of it.
        most: How many metrics the page shows at most.
    """

    facts: Sequence[str]
    decision: recommendation.Card | None
    title: str
    answers: Sequence[str]
    judged: Sequence[tuple[recommendation.Tone, str]]
    warnings: tuple[Sequence[str], Sequence[str]]
    figures: Sequence[tuple[str, str, str]]
    most: int


def head(document: EvidenceDocument) -> Head:
    """What was asked, and the answer: in a line, in a sentence, and how much of it could be noise."""
    matrix = document["matrix"]
    metrics = layout.metrics(matrix)
    decision = recommendation.card(matrix, document["gates"])
    undecided: list[tuple[recommendation.Tone, str]] = [
        ("open", f"{gates.mark(gate)}: {gates.gate_text(gate)}") for gate in document["gates"]
    ]
    headline = sentences.headline(matrix, metrics[0]) if metrics else sentences.unscored(matrix)
    return Head(
        facts=[fact for fact in _facts(document) if fact],
        decision=decision,
        title=decision.title if decision else headline,
        answers=_answers(matrix, metrics),
        judged=decision.gates if decision else undecided,
        warnings=_warnings(matrix),
        figures=_figures(matrix),
        most=layout.METRICS,
    )


def _facts(document: EvidenceDocument) -> list[str]:
    sweep = document["matrix"]["sweep"]
    parts = [texts.plural(len(document["matrix"]["rows"]), "combination")]
    if "provenance" in document:  # a page of a matrix alone has none
        size = document["provenance"]["size"]
        parts.append(texts.plural(size["cases"], "case"))
        parts += [f"{size['repeats']:,} repeats"] if size["repeats"] > 1 else []
    return [sweep["status"], " × ".join(parts), _times(sweep["started_at"], sweep["finished_at"])]


def _answers(matrix: MatrixDocument, metrics: list[str]) -> list[str]:
    if not metrics:
        return []
    first, *others = (sentences.answer(matrix, metric) for metric in metrics)
    return [*filter(None, [first, sentences.noise(matrix, metrics[0])]), *others]


def _warnings(matrix: MatrixDocument) -> tuple[Sequence[str], Sequence[str]]:
    first, _ = recommendation.warnings(matrix)
    return first, matrix["warnings"][len(first) :]


def _figures(matrix: MatrixDocument) -> list[tuple[str, str, str]]:
    """Cells, node runs, money and time: each a figure, what it is, and more of it."""
    cells, runs, cost = matrix["cells"], matrix["node_runs"], matrix["cost"]
    figures = [(f"{cells['succeeded']:,} of {cells['total']:,}", "cells succeeded", ", ".join(sentences.others(cells)))]
    if runs["unshared"] > runs["executed"]:
        saved = 1 - runs["executed"] / runs["unshared"]
        figures.append((f"{saved:.0%}", "of node runs saved", f"{runs['executed']:,} instead of {runs['unshared']:,}"))
    else:
        figures.append((f"{runs['executed']:,}", "node runs", ""))
    if cost.get("unknown"):
        figures.append((texts.MISSING, "spent", f"{texts.money(cost['usd'])} recorded, the rest is unknown"))
    elif cost["usd"]:
        alone = f"{texts.money(cost['unshared_usd'])} without sharing"
        figures.append((texts.money(cost["usd"]), "spent", alone if cost["unshared_usd"] > cost["usd"] else ""))
    if cost["tokens_in"] or cost["tokens_out"]:
        figures.append((f"{cost['tokens_in']:,}", "tokens in", f"{cost['tokens_out']:,} tokens out"))
    times = _moments(matrix["sweep"]["started_at"], matrix["sweep"]["finished_at"])
    if len(times) == 2:
        figures.append((texts.took((times[1] - times[0]).total_seconds()), "from submission to the end", ""))
    return figures


def _moments(*times: str | None) -> list[datetime]:
    return [datetime.fromisoformat(time) for time in times if time]


def _times(start: str | None, end: str | None) -> str:
    times = _moments(start, end)
    if not times:
        return "not started"
    if len({time.date() for time in times}) > 1:
        return " to ".join(f"{time:%Y-%m-%d %H:%M}" for time in times) + " UTC"
    hours = dict.fromkeys(f"{time:%H:%M}" for time in times)
    return f"{times[0]:%Y-%m-%d}, {' to '.join(hours)} UTC"
