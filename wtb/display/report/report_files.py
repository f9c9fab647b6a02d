"""Reports as files: the page, which needs nothing else and has its evidence in it, and the other forms."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from markupsafe import Markup

from wtb.core import texts
from wtb.core.documents.outputs import MOST_CASES, MOST_ROWS
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.display import csv, markdown, recommendation, sentences, short_table
from wtb.display import figures as matrix_figures
from wtb.display.json_text import as_json
from wtb.display.report import junit, matrix_tables, page_templates
from wtb.display.report.bundle import WEB, bundle, without_comments
from wtb.display.views.executions import outline

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.outputs import OutputsDocument
    from wtb.core.documents.report import EvidenceDocument, SharingTree

MOST_CELLS: Final = 1_000  # of which a file has the outputs
MOST_OUTPUT_BYTES: Final = 1_500_000  # as JSON
_MOST_PREFIXES: Final = 2_000  # of the tree: whole levels, from the root on
_SETTINGS: Final = 20_000  # characters
# After an even number of backslashes `\u00..` is an escape, after an odd number it is text.
_CONTROL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u00([01][0-9a-fA-F])")  # as JSON escapes them
# Characters that change the direction of text could make a value look like another one.
_VISIBLE: Final = {0x7F: "\u2421", **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")}
_T = TypeVar("_T")


def small_outputs(ask: Callable[..., OutputsDocument]) -> OutputsDocument | None:
    """Return the outputs of a sweep for its report; None if they are too many or too long for a file.

    Args:
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
    # One case is enough to learn how many there are. Reading all of them may take long.
    first = ask(limit=1)
    if not 0 < first["combinations"] * first["total"] <= MOST_CELLS or first["combinations"] > MOST_ROWS:
        return None
    outputs: OutputsDocument = {**ask(limit=MOST_CASES), "other_keys": []}
    return outputs if len(as_json(outputs, compact=True)) <= MOST_OUTPUT_BYTES else None


def embedded_data(document: EvidenceDocument, outputs: OutputsDocument | None) -> dict[str, Any]:
    """Return what the scripts of a report read.

    Args:
        document: The evidence, or the keys of it that a page of a matrix has.
        outputs: Outputs of all cells, if they are shown.
    """
    matrix = document["matrix"]
    metrics = matrix_tables.metrics(matrix)
    rows = matrix_tables.ranked(matrix, metrics[0] if metrics else None)
    shown_rows = None if len(rows) == len(matrix["rows"]) else {number for number, _ in rows}
    evidence: dict[str, Any] = {**document, "matrix": _matrix(matrix, metrics, shown_rows)}
    for key in ("attribution", "pairs"):
        if key in document:
            evidence[key] = _only(document[key], metrics)
    if "history" in document:
        evidence["history"] = {**document["history"], "metrics": _only(document["history"]["metrics"], metrics)}
    if "tree" in document:
        evidence["tree"] = _tree(document["tree"])
    graph = None
    if "provenance" in document:
        settings = document["provenance"]["settings"]
        evidence["provenance"] = {**document["provenance"], "settings": _cut(settings)}
        graph = outline(document["provenance"]["graph"]) if document["provenance"]["graph"].get("nodes") else None
    return {"evidence": evidence, "outputs": outputs, "graph": graph, "shown": shown_rows and sorted(shown_rows)}


def json_of_script(documents: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the script it is in, with control characters that can be seen."""
    text = _CONTROL.sub(lambda match: match[1] + chr(0x2400 + int(match[2], 16)), as_json(documents, compact=True))
    return text.translate(_VISIBLE).replace("<", "\\u003c")


def _matrix(matrix: MatrixDocument, metrics: list[str], shown_rows: set[int] | None) -> dict[str, Any]:
    rows = [_row(row, metrics, shown_rows is None or number in shown_rows) for number, row in enumerate(matrix["rows"])]
    by_metric = {key: _only(matrix[key], metrics) for key in ("metrics", "best", "front")}
    return {**matrix, **by_metric, "rows": rows}


def _row(row: RowDocument, metrics: list[str], is_shown: bool) -> dict[str, Any]:
    """Return a row with the metrics that are kept, or what it chooses alone."""
    if is_shown:
        return {**row, "metrics": _only(row["metrics"], metrics)}
    # Other parts refer to rows by their numbers, so rows that are not shown keep their place.
    return {"combination": row["combination"], "n": 0, "failed": 0, "cost_usd": None, "metrics": {}} | {
        "latency_s": {"p50": None, "p95": None}
    }


def _only(by_name: Mapping[str, _T], names: list[str]) -> dict[str, _T]:
    return {name: by_name[name] for name in names if name in by_name}


def _tree(tree: SharingTree) -> SharingTree:
    """Return the tree without the levels that have too many prefixes to draw."""
    levels, listed, folded = [], 0, list(tree["folded"])
    for level in tree["levels"] or ():
        listed += len(level["prefixes"])
        if listed > _MOST_PREFIXES:
            folded.append({"node": level["node"], "prefixes": len(level["prefixes"])})
        else:
            levels.append(level)
    return {**tree, "levels": None if tree["levels"] is None else levels, "folded": folded}


def _cut(settings: str) -> str:
    more = len(settings) - _SETTINGS
    return settings if more <= 0 else f"{settings[:_SETTINGS]}\n# … {texts.plural(more, 'more character')}"


@frozen
class Head:
    """The head of a page.

    Attributes:
        decision: What to ship; None for documents of earlier versions.
        title: The answer in a line.
        judged: Each gate in words, and whether it holds.
        warnings: Those that could change the decision, and the others.
        figures: Each a figure, what it is, and more of it.
        max_metrics: How many metrics the page shows at most.
    """

    facts: Sequence[str]
    decision: recommendation.Card | None
    title: str
    answers: Sequence[str]
    judged: Sequence[tuple[recommendation.Tone, str]]
    warnings: tuple[Sequence[str], Sequence[str]]
    figures: Sequence[tuple[str, str, str]]
    max_metrics: int


def head(document: EvidenceDocument) -> Head:
    """Return the question and the answer: in a line, in a sentence, and how much of it could be noise."""
    matrix = document["matrix"]
    metrics = matrix_tables.metrics(matrix)
    decision = recommendation.card(matrix, document["gates"])
    undecided: list[tuple[recommendation.Tone, str]] = [
        ("open", f"{matrix_figures.mark(gate)}: {matrix_figures.gate_text(gate)}") for gate in document["gates"]
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
        max_metrics=matrix_tables.METRICS,
    )


def _facts(document: EvidenceDocument) -> list[str]:
    sweep = document["matrix"]["sweep"]
    parts = [texts.plural(len(document["matrix"]["rows"]), "combination")]
    # `render_matrix` has no provenance.
    if "provenance" in document:
        size = document["provenance"]["size"]
        parts.append(texts.plural(size["cases"], "case"))
        parts += [f"{size['repeats']:,} repeats"] if size["repeats"] > 1 else []
    return [sweep["status"], " × ".join(parts), _times(sweep["started_at"], sweep["finished_at"])]


def _answers(matrix: MatrixDocument, metrics: list[str]) -> list[str]:
    if not metrics:
        return []
    first, *more_answers = (sentences.answer(matrix, metric) for metric in metrics)
    return [*filter(None, [first, sentences.noise(matrix, metrics[0])]), *more_answers]


def _warnings(matrix: MatrixDocument) -> tuple[Sequence[str], Sequence[str]]:
    first, _ = recommendation.warnings(matrix)
    return first, matrix["warnings"][len(first) :]


def _figures(matrix: MatrixDocument) -> list[tuple[str, str, str]]:
    """Cells, node runs, money and time: each a figure, what it is, and more of it."""
    cells, runs, cost = matrix["cells"], matrix["node_runs"], matrix["cost"]
    figures = [
        (
            f"{cells['succeeded']:,} of {cells['total']:,}",
            "cells succeeded",
            ", ".join(sentences.unsuccessful_counts(cells)),
        )
    ]
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


_ENTRY = "report.js"
_STYLES = ("style.css", "report.css")


def render(document: EvidenceDocument, outputs: OutputsDocument | None = None) -> str:
    """Return the page of a report as HTML.

    Args:
        document: The evidence, as `wtb.display.report.sweep_evidence.gather` returns it.
        outputs: Outputs of all cells of the sweep, if the page is to show them.
    """
    return _page(document, "report", outputs)


def render_matrix(matrix: MatrixDocument) -> str:
    """Return the page of a matrix: the parts of a report that need nothing else."""
    read = {"matrix": matrix, "gates": matrix_figures.found_in(matrix), "people": short_table.found_in(matrix)}
    return _page(cast("EvidenceDocument", read), "matrix", None)


def _page(document: EvidenceDocument, kind: str, outputs: OutputsDocument | None) -> str:
    script = bundle(_ENTRY)
    # Only this very script may run, and nothing may be fetched, whatever a name or message contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    style = "".join(without_comments((WEB / name).read_text("utf-8")) for name in _STYLES)
    embedded_json = json_of_script(embedded_data(document, outputs))
    return page_templates.render(
        "page.html",
        kind=kind,
        matrix=document["matrix"],
        made_at=document.get("made_at"),
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        data=Markup(embedded_json),
        **vars(matrix_tables.matrix_tables(document["matrix"])),
        **vars(head(document)),
    )


# Without html, which takes outputs as well: see `page_with_outputs`.
RENDERERS: Mapping[str, Callable[[EvidenceDocument], str]] = {
    "md": markdown.report,
    "csv": lambda document: csv.render(document["matrix"]),
    "json": as_json,
    "junit": junit.render,
}
_SUFFIXES: Mapping[str, str] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".csv": "csv",
    ".json": "json",
    ".xml": "junit",
}


def page_with_outputs(document: EvidenceDocument, ask: Callable[..., OutputsDocument]) -> str:
    """Return the report as a page that has the outputs of its sweep, unless they are too many for a file.

    Args:
        document: What the report shows.
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
    return render(document, small_outputs(ask))


def form_of(file: Path) -> str:
    """Return the form of the report that a file is to have by its suffix. Raises InputError."""
    form = _SUFFIXES.get(file.suffix.lower())
    if form is None:
        where = f"in the form {file.suffix!r}" if file.suffix else "in a file without a suffix"
        raise InputError(f"{file}: there is no report {where}; expected one of {', '.join(_SUFFIXES)}")
    return form
