"""The matrix as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from wtb.analysis.comparison.verdicts import passes
from wtb.core import texts
from wtb.display import failure_causes
from wtb.display.matrix import gates, summary
from wtb.display.matrix.summary import Document, Row

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 20%, transparent);
  --faint: color-mix(in srgb, currentColor 65%, transparent); --best: light-dark(#0a7a3d, #5fd893);
  --warn: light-dark(#8a5a00, #f0c060); --bad: light-dark(#a4161a, #ff8a8a); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.faint, caption { color: var(--faint); font-size: .9rem; text-align: left; }
.answer { font-size: 1.1rem; } .warning { color: var(--warn); } .failed { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; }
.number { text-align: right; white-space: nowrap; }
.best { font-weight: 600; } .best td:first-child { color: var(--best); white-space: nowrap; }
.baseline { background: color-mix(in srgb, currentColor 6%, transparent); }
svg { width: 7rem; height: 1rem; vertical-align: middle; overflow: visible; }
svg line { stroke: currentColor; stroke-width: 2; opacity: .55; } svg circle { fill: currentColor; }
@media (min-width: 46rem) and (max-width: 80rem) { table { display: block; overflow-x: auto; } svg { width: 4rem; } }
@media (max-width: 46rem) {
  thead { position: absolute; clip-path: inset(50%); } table, tbody, tr, td, caption { display: block; }
  tr { padding: .6rem 0; border-bottom: 1px solid var(--line); }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem .6rem; }
  td:empty { display: none; } td::before { content: attr(data-label); color: var(--faint); }
}
@media print { :root { color-scheme: light; } body { font-size: 10px; max-width: none; margin: 0; }
  tr { break-inside: avoid; } }
"""


def render(document: Document) -> str:
    """One page: the answers, a table for each metric with the best first, and what it took."""
    sweep = document["sweep"]
    name = _text(sweep["name"])
    times = " to ".join(str(sweep[key]) for key in ("started_at", "finished_at") if sweep[key])
    about = ", ".join(filter(None, [sweep["status"], f"sweep {sweep['id']}", times]))
    body = [f"<h1>{name}</h1>", f'<p class="faint">{_text(about)}</p>']
    body += [f'<p class="answer">{_text(answer)}</p>' for answer in summary.answers(document)]
    for gate in document.get("gates", ()):
        kind = "" if passes(gate) else ' class="failed"'
        body.append(f"<p{kind}><strong>{gates.mark(gate)}:</strong> {_text(gates.gate_text(gate))}</p>")
    body += [matrix_of(document, metric) for metric in summary.tabled(document) if document["rows"]]
    body += [
        f'<p class="warning"><strong>Warning:</strong> {_text(warning)}</p>' for warning in document.get("warnings", ())
    ]
    body += ["<h2>What it took</h2>", *(f"<p>{_text(sentence)}</p>" for sentence in summary.closing(document))]
    body += [f'<p class="failed">{_text(line)}</p>' for line in failure_causes.lines(document)]
    body.append(_node_runs(document["node_runs"]["by_node"]))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{name}: matrix</title><style>{_STYLE}</style></head>",
            "<body>",
            *filter(None, body),
            "</body>",
            "</html>",
            "",
        ]
    )


def matrix_of(document: Document, metric: str | None, many: int | None = None) -> str:
    """One metric's table with its heading: every row, or of more than `many` the best and the baseline."""
    nodes, compared = summary.shown_nodes(document), document["baseline"] is not None
    named = partial(summary.heading, document)
    headers = ["", *nodes, named("n"), named("failed")]
    title, note = "Combinations", ""
    if metric is not None:
        headers += ["mean", "95% interval", "", *(["Δ", "95% interval of Δ", named("p")] if compared else [])]
        better, arrow = summary.better(document, metric), summary.arrow(document, metric)
        title = f"By {texts.printable(metric)} {arrow}, {better} is better"
        note = "Intervals are of the mean over cases."
        difference, test = summary.differences_said(document, metric)
        note += f" Δ: {difference} over the cases both have." if compared else ""
        note += f" {named('p')}: of Δ, by {test}, Holm-corrected." if compared else ""
    ranked = summary.ranked(document, metric)
    listed = ranked if many is None else summary.shortened(document, ranked, many)
    costs = summary.costs(document, listed)
    headers += [*("cost of a cell" if one.name == "cost" else one.name for one in costs), named("p50"), "p95"]
    note += "".join(f" {one.name.capitalize()}: {one.means}" for one in costs if one.key != "cost_usd")
    digits = 0 if metric is None else summary.decimals(document, metric)
    scale = _scale(document, metric)
    rows = []
    for number, row in enumerate(listed):
        cells = [_marks(document, row, metric)]
        cells += [_text(row["combination"].get(node, "")) for node in nodes]
        cells += [str(row["n"]), str(row["failed"])]
        if metric is not None:
            cells += _statistics(document, row, metric, digits, scale)
        cells += [one.cells[number] for one in costs]
        cells += [texts.duration(row["latency_s"][key]) for key in ("p50", "p95")]
        rows.append(_row(headers, cells, len(nodes) + 1, _kind(document, row, metric)))
    return f"<h2>{escape(title)}</h2>\n{_table(headers, len(nodes) + 1, rows, note)}"


def _statistics(document: Document, row: Row, metric: str, digits: int, scale: tuple[float, float]) -> list[str]:
    found = summary.estimate(row, metric)
    ci, delta_ci = found.get("ci"), found.get("delta_ci")
    cells = [summary.number(found.get("mean"), digits), _interval(ci, digits), _plot(found, scale)]
    if document["baseline"] is None:
        return cells
    if summary.is_baseline(document, row):
        return [*cells, "", "", ""]
    tested = escape(summary.probability(found.get("p_adjusted")))
    return [*cells, summary.signed(found.get("delta"), digits), _interval(delta_ci, digits), tested]


def _interval(ci: Sequence[float] | None, digits: int) -> str:
    return "" if ci is None else f"{summary.number(ci[0], digits)} to {summary.number(ci[1], digits)}"


def _scale(document: Document, metric: str | None) -> tuple[float, float]:
    """Where the plots of a metric begin, and how wide they are, so that all its combinations compare."""
    every = [summary.estimate(row, metric) for row in document["rows"]] if metric is not None else []
    ends = [end for each in every for end in each.get("ci") or ()]
    ends += [each["mean"] for each in every if each.get("mean") is not None]
    return (min(ends), (max(ends) - min(ends)) or 1.0) if ends else (0.0, 1.0)


def _plot(found: Mapping[str, Any], scale: tuple[float, float]) -> str:
    """The mean as a dot on its interval; the figures beside it say the same."""
    if found.get("mean") is None:
        return ""
    ends = (found["mean"], *(found.get("ci") or (found["mean"], found["mean"])))
    dot, left, right = (f"{100 * (end - scale[0]) / scale[1]:.1f}%" for end in ends)
    line = f'<line x1="{left}" x2="{right}" y1="50%" y2="50%"/>'
    return f'<svg aria-hidden="true">{line}<circle cx="{dot}" cy="50%" r="3"/></svg>'


def _marks(document: Document, row: Row, metric: str | None) -> str:
    mark = summary.mark(document, row, metric) if metric is not None else ""
    return ", ".join(filter(None, [mark, "baseline" if summary.is_baseline(document, row) else ""]))


def _kind(document: Document, row: Row, metric: str | None) -> str:
    best = metric is not None and summary.is_best(document, row, metric)
    return " ".join(["best"] * best + ["baseline"] * summary.is_baseline(document, row))


def _node_runs(by_node: Mapping[str, Mapping[str, int]]) -> str:
    if not by_node:
        return ""
    headers = ["node", "executed", "without sharing", "attempts"]
    rows = [
        _row(
            headers,
            [_text(node), *(f"{count[key]:,}" for key in ("executed", "unshared", "attempts"))],
            1,
            "",
        )
        for node, count in by_node.items()
    ]
    return _table(headers, 1, rows, "Node runs by node.")


def _table(headers: Sequence[str], names: int, rows: Sequence[str], note: str) -> str:
    """A table of which the first `names` columns are text and the others figures."""
    kinds = ["" if i < names else ' class="number"' for i in range(len(headers))]
    head = "".join(f"<th{kind}>{_text(header)}</th>" for kind, header in zip(kinds, headers, strict=True))
    lines = ["<table>", f"<caption>{escape(note)}</caption>" if note else ""]
    lines += [f"<thead><tr>{head}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>"]
    return "\n".join(filter(None, lines))


def _row(headers: Sequence[str], cells: Sequence[str], names: int, kind: str) -> str:
    """A row of cells that are HTML already; each knows its header, which a phone shows beside it."""
    shown = []
    for i, (header, cell) in enumerate(zip(headers, cells, strict=True)):
        number = "" if i < names else ' class="number"'
        shown.append(f'<td{number} data-label="{_text(header)}">{cell}</td>')
    return f'<tr class="{kind}">{"".join(shown)}</tr>' if kind else f"<tr>{''.join(shown)}</tr>"


def _text(value: object) -> str:
    return escape(texts.printable(value))
