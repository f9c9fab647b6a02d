"""The report as Markdown, short enough for a comment under a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.matrix.markdown import escape, listed_gates
from wtb.display.report.html import layout

ROWS, METRICS, CAUSES = 10, 4, 5


def render(document: Mapping[str, Any]) -> str:
    """The answer, the gates, what to beware of, the best combinations; the rest folds."""
    matrix = document["matrix"]
    names = layout.metrics(matrix)
    said = [f"**{escape(summary.headline(matrix, metric))}**" for metric in names[:1]]
    said += [f"- {escape(summary.answer(matrix, metric))}" for metric in names[:METRICS]]
    said += [f"- {escape(noise)}" for metric in names[:1] if (noise := summary.noise(matrix, metric))]
    parts = [
        f"### {escape(matrix['sweep']['name'])} ({escape(matrix['sweep']['status'])})",
        "".join(said[:1]) or escape(summary.unscored(matrix)),
        "\n".join(said[1:]),
        listed_gates({"gates": document["gates"]}),
        *(f"> **Warning:** {escape(warning)}" for warning in matrix["warnings"][:ROWS]),
        _table(matrix, names[:METRICS]),
        _failures(document),
        _details(document, names),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(matrix: dict[str, Any], names: list[str]) -> str:
    first = names[0] if names else None
    rows = layout.ranked(matrix, first, ROWS - 1)
    if not rows:
        return ""
    nodes = summary.shown_nodes(matrix)
    largest = summary.largest_cost(matrix, [row for _, row in rows])
    failed = any(row["failed"] for _, row in rows)
    named = partial(summary.heading, matrix)
    compared = matrix["baseline"] is not None and first is not None
    heads = [
        "",
        *map(escape, nodes),
        *([named("failed")] if failed else []),
        *(f"{escape(metric)} {summary.arrow(matrix, metric)}" for metric in names),
    ]
    heads += [f"Δ {escape(first)}", named("p")] if compared else []
    heads += [*([named("cost")] if largest else []), named("p50")]
    lines = [_line(heads), _line(["---"] * (1 + len(nodes)) + ["---:"] * (len(heads) - 1 - len(nodes)))]
    for _, row in rows:
        mark = summary.mark(matrix, row, first) if first else ""
        cells = [", ".join(filter(None, [mark, "baseline" if summary.is_baseline(matrix, row) else ""]))]
        cells += [escape(row["combination"].get(node, "")) for node in nodes]
        cells += [f"{row['failed']:,}"] if failed else []
        cells += [_score(matrix, row, metric) for metric in names]
        if compared and first is not None:
            found = summary.estimate(row, first)
            cells += [
                summary.signed(found.get("delta"), summary.decimals(matrix, first)),
                escape(summary.probability(found.get("p_adjusted"))),
            ]
        cells += [texts.money(row["cost_usd"], largest)] if largest else []
        lines.append(_line([*cells, texts.duration(row["latency_s"]["p50"])]))
    left = len(matrix["rows"]) - len(rows)
    return "\n".join([*lines, "", f"{texts.plural(left, 'more combination')}."] if left else lines)


def _score(matrix: dict[str, Any], row: Mapping[str, Any], metric: str) -> str:
    found, digits = summary.estimate(row, metric), summary.decimals(matrix, metric)
    ci = found.get("ci")
    between = "" if ci is None else f" [{summary.number(ci[0], digits)}, {summary.number(ci[1], digits)}]"
    return summary.number(found.get("mean"), digits) + between


def _failures(document: Mapping[str, Any]) -> str:
    lines = []
    for one in document["failures"]["cells"][:CAUSES]:
        where = f"{one['node']}: " if one["node"] else ""
        what = ": ".join(filter(None, [one["type"], one["message"]])) or "no error was recorded"
        who = layout.concerned(document["matrix"], one["combinations"])
        lines.append(
            f"- {texts.plural(one['cells'], 'cell')} failed: {escape(where + what[:200])} ({escape(who[:200])})"
        )
    for one in document["failures"]["scores"][:CAUSES]:
        who = layout.concerned(document["matrix"], one["combinations"])
        what = f"{one['metric']} failed: {one['message'][:200]}"
        lines.append(f"- {texts.plural(one['scores'], 'score')} of {escape(what)} ({escape(who[:200])})")
    return "\n".join(lines)


def _details(document: Mapping[str, Any], names: list[str]) -> str:
    """What is of interest once the answer is known: what makes the difference, what it took, where to read on."""
    matrix, about = document["matrix"], document["provenance"]
    said = [f"- {escape(one)}" for metric in names for one in document["attribution"][metric]["sentences"]]
    said += [f"- {escape(sentence)}" for sentence in summary.closing(matrix)]
    said.append(f"- Sweep {escape(matrix['sweep']['id'])} of {escape(about['workflow'])}; intervals are 95%.")
    return "\n".join(["<details><summary>Details</summary>", "", *said, "", "</details>"])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
