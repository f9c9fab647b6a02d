"""Results as a part of a page, for notebooks: no script, nothing fetched, and no colours but those of the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from wtb.core import texts
from wtb.display import failure_causes
from wtb.display.matrix import gates, html, summary

VALUE = 400  # characters of a value of a state
# Everything is drawn in the colour of the notebook's own text, so that it is readable in the dark and in the light.
_STYLE = """
.wtb { font-size: 13px; line-height: 1.45; max-width: 72rem; font-variant-numeric: tabular-nums; color: inherit;
  --line: color-mix(in srgb, currentColor 22%, transparent); --wash: color-mix(in srgb, currentColor 8%, transparent); }
.wtb h4 { font-size: 15px; margin: 0 0 .3em; } .wtb p { margin: .3em 0; } .wtb .faint, .wtb caption { opacity: .75; }
.wtb .scroll { overflow-x: auto; margin: .7em 0; }
.wtb caption { text-align: left; caption-side: bottom; padding-top: .3em; }
.wtb table { border-collapse: collapse; margin: 0; font-size: inherit; }
.wtb h2 { font-size: 13px; margin: .8em 0 .2em; }
.wtb :is(th, td) { padding: .25em .7em; border: 0; border-bottom: 1px solid var(--line); text-align: left;
  background: none; }
.wtb :is(th, td).number { text-align: right; white-space: nowrap; } .wtb tr.best td { font-weight: 600; }
.wtb td:first-child { white-space: nowrap; }
.wtb tr.baseline td { background: var(--wash); } .wtb .note { border-left: 3px solid currentColor; padding-left: .7em; }
.wtb svg { width: 7em; height: 1em; overflow: visible; vertical-align: middle; }
.wtb svg line { stroke: currentColor; stroke-width: 2; opacity: .55; } .wtb svg circle { fill: currentColor; }
.wtb td.text { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 50rem; }
"""


def matrix(document: dict[str, Any]) -> str:
    """The answers, a table for each metric with the best first, and what it took; of many rows the best."""
    sweep = document["sweep"]
    metrics = summary.metric_names(document)
    parts = [f"<h4>{_text(sweep['name'])} ({_text(sweep['status'])})</h4>"]
    parts += [f"<p>{_text(answer)}</p>" for answer in summary.answers(document)]
    parts += [f"<p>{_text(said)}</p>" for metric in metrics[:1] if (said := summary.noise(document, metric))]
    parts += [f"<p><b>{gates.mark(gate)}:</b> {_text(gates.gate_text(gate))}</p>" for gate in document.get("gates", ())]
    shown = summary.shortened(document, list(document["rows"]))
    for metric in summary.tabled(document) if document["rows"] else ():
        parts.append(_scrolled(html.matrix_of(document, metric, many=summary.MANY)))
    if left := summary.left_out(document, len(shown)):
        parts.append(f'<p class="faint">{_text(left)}</p>')
    parts += [f'<p class="note"><b>Warning:</b> {_text(warning)}</p>' for warning in document["warnings"]]
    parts += [f'<p class="faint">{_text(" ".join(summary.closing(document)))}</p>']
    parts += [f"<p>{_text(line)}</p>" for line in failure_causes.lines(document)]
    return _whole(parts)


def execution(document: Mapping[str, Any]) -> str:
    """A single execution: how it stands, the steps it took and its state."""
    about = document["execution"]
    reason = f": {about['reason']}" if about["reason"] else ""
    parts = [f"<h4>{_text(about['sweep']['name'])} ({_text(about['id'])})</h4>"]
    parts.append(f"<p><b>{_text(about['status'])}</b>{_text(reason)}</p>")
    if about["error"]:
        parts.append(f'<p class="note">{_text(about["error"])}</p>')
    if document["path"]:
        rows = [
            [
                str(one["step"]),
                texts.under(one),
                one["status"],
                str(one["attempts"]),
                texts.took(one["duration_s"]),
            ]
            for one in document["path"]
        ]
        parts.append(_table(["step", "node=variant", "status", "attempts", "time"], rows))
    if document["state"]:
        parts.append(_table(["key", "value"], [[k, texts.short(v, VALUE)] for k, v in document["state"].items()]))
    return _whole(parts)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(header)}</th>" for header in headers)
    cells = ("".join(f'<td class="text">{_text(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return _scrolled(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _scrolled(inner: str) -> str:
    return f'<div class="scroll">{inner}</div>'


def _whole(parts: Sequence[str]) -> str:
    return f'<div class="wtb"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _text(value: object) -> str:
    return escape(texts.printable(value))
