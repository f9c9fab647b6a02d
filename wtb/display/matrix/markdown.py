"""The matrix as GitHub-flavoured Markdown, short enough to post under a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from wtb.core import texts
from wtb.display import failure_causes
from wtb.display.matrix import gates, summary
from wtb.display.matrix.summary import Document, Row

_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
# No HTML; and the comment keeps GitHub from telling somebody that they were mentioned.
_REPLACED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->"})


def render(document: Document) -> str:
    """The answers, one table for each metric with the best first, and what it took."""
    sweep, metrics = document["sweep"], summary.metric_names(document)
    parts = [f"### {escape(sweep['name'])} ({escape(sweep['status'])})"]
    answers = [f"**{escape(answer)}**" for answer in summary.answers(document)]
    parts.append("\n".join(f"- {answer}" for answer in answers) if len(answers) > 1 else "".join(answers))
    parts.append(listed_gates(document))
    parts += [f"> **Warning:** {escape(warning)}" for warning in document.get("warnings", ())]
    if document["rows"]:
        for metric in summary.tabled(document):
            parts.append(_table(document, metric))
    parts.append("\n".join(f"{escape(sentence)}  " for sentence in summary.closing(document)).rstrip())
    parts.append("\n".join(f"- {escape(line)}" for line in failure_causes.lines(document)))
    if metrics:
        parts.append(f"<sub>{escape(_legend(document))}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def listed_gates(document: Document) -> str:
    """A list of the gates of a judged matrix, empty where there are none; those that do not hold stand out."""
    return "\n".join(
        f"- {gates.mark(gate) if gate['holds'] else f'**{gates.mark(gate)}**'}: {escape(gates.gate_text(gate))}"
        for gate in document.get("gates", ())
    )


def _table(document: Document, metric: str | None) -> str:
    rows = summary.shortened(document, summary.ranked(document, metric))
    nodes = summary.shown_nodes(document)
    shown = _columns(document, metric)
    failed = any(row["failed"] for row in rows)
    costs = summary.costs(document, rows)
    named = partial(summary.heading, document)
    header = ["", *map(escape, nodes), named("n"), *([named("failed")] if failed else []), *shown]
    header += [*(one.name for one in costs), named("p50")]
    lines = [_line(header), _line(["---", *["---"] * len(nodes), *["---:"] * (len(header) - len(nodes) - 1)])]
    for number, row in enumerate(rows):
        cells = [_mark(document, row, metric)]
        cells += [escape(row["combination"].get(node, "")) for node in nodes]
        cells += [str(row["n"]), *([str(row["failed"])] if failed else [])]
        cells += _statistics(document, row, metric)
        cells += [one.cells[number] for one in costs]
        cells.append(texts.duration(row["latency_s"]["p50"]))
        lines.append(_line(cells))
    left_out = summary.left_out(document, len(rows))
    return "\n".join([*lines, "", escape(left_out)] if left_out else lines)


def _columns(document: Document, metric: str | None) -> list[str]:
    if metric is None:
        return []
    compared = ["Δ", summary.heading(document, "p")] if document["baseline"] is not None else []
    return [f"{escape(metric)} {summary.arrow(document, metric)} [95% interval]", *compared]


def _statistics(document: Document, row: Row, metric: str | None) -> list[str]:
    if metric is None:
        return []
    found, digits = summary.estimate(row, metric), summary.decimals(document, metric)
    cells = [summary.number(found.get("mean"), digits) + _interval(found.get("ci"), digits)]
    if document["baseline"] is None:
        return cells
    if summary.is_baseline(document, row):
        return [*cells, "", ""]
    delta = summary.signed(found.get("delta"), digits) + _interval(found.get("delta_ci"), digits)
    return [*cells, delta, escape(summary.probability(found.get("p_adjusted")))]


def _interval(ci: Sequence[float] | None, digits: int) -> str:
    return "" if ci is None else f" [{summary.number(ci[0], digits)}, {summary.number(ci[1], digits)}]"


def _mark(document: Document, row: Row, metric: str | None) -> str:
    mark = summary.mark(document, row, metric) if metric is not None else ""
    baseline = "baseline" if summary.is_baseline(document, row) else ""
    return ", ".join(filter(None, [mark and f"**{mark}**", baseline]))


def _legend(document: Document) -> str:
    legend = "95% intervals of the mean over cases. ↑, ↓: which way is better."
    return legend if document["baseline"] is None else legend + _differences(document)


def _differences(document: Document) -> str:
    """What Δ and p are, of each kind of metrics that there is."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for metric in summary.metric_names(document):
        kinds.setdefault(summary.differences_said(document, metric), []).append(texts.printable(metric))
    text = ""
    for (difference, test), metrics in kinds.items():
        of = f" of {', '.join(metrics)}" if len(kinds) > 1 else ""
        text += f" Δ{of}: {difference} over the cases that both have. p: of Δ, by {test}, Holm-corrected."
    return text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: object) -> str:
    """Text that Markdown shows as it is, on one line, also in the cell of a table."""
    return _SPECIAL.sub(r"\\\1", texts.printable(text)).translate(_REPLACED)
