"""Results as GitHub-flavoured Markdown: a matrix, and a report short enough for a comment under a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.display import failure_causes
from wtb.display.matrix import gates, recommendation, sentences, short_table, summary
from wtb.display.pivot import row_view
from wtb.display.report.html import layout

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, MatrixDocument, RowDocument
    from wtb.core.documents.report import EvidenceDocument


ROWS, METRICS, CAUSES = 10, 4, 5  # of a report
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
# No HTML; and the comment keeps GitHub from notifying somebody that they were mentioned.
_REPLACED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@<!-- -->"})


def escape(text: object) -> str:
    """Text that Markdown shows as it is, on one line, also in the cell of a table."""
    return _SPECIAL.sub(r"\\\1", texts.printable(text)).translate(_REPLACED)


def joined(parts: Iterable[str]) -> str:
    """Paragraphs as a document; empty ones are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return "\n".join(f"- {escape(sentence)}" for sentence in sentences)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """Cells as a table, of which the last `figures` columns are figures. Cells are Markdown; headers are text."""
    rules = ["---"] * (len(headers) - figures) + ["---:"] * figures
    return "\n".join(f"| {' | '.join(line)} |" for line in (list(map(escape, headers)), rules, *rows))


def fenced(lines: Iterable[str], language: str) -> str:
    """Lines as a block of code; none of them can end it."""
    return "\n".join([f"````{language}", *(texts.printable(line).replace("````", "```") for line in lines), "````"])


def gate_list(found: Iterable[GateDocument]) -> str:
    """Gates as a list; those that do not hold stand out."""
    return "\n".join(
        f"- {gates.mark(gate) if gate['holds'] else f'**{gates.mark(gate)}**'}: {escape(gates.gate_text(gate))}"
        for gate in found
    )


def _title(document: MatrixDocument) -> str:
    return f"### {escape(document['sweep']['name'])} ({escape(document['sweep']['status'])})"


def _decision(lines: Sequence[str]) -> list[str]:
    """The decision: what to ship in bold, what it rests on as a paragraph."""
    bold = [f"**{escape(line)}**" for line in lines[:2]] if lines[:1] and "gate" in lines[0] else []
    bold = bold or [f"**{escape(line)}**" for line in lines[:1]]
    return [*bold, escape(" ".join(lines[len(bold) :]))]


def _warnings(found: Sequence[str]) -> list[str]:
    return [f"> **Warning:** {escape(warning)}" for warning in found]


def _figures(
    document: MatrixDocument, rows: Sequence[RowDocument], metrics: Sequence[str], *, brief: bool = False
) -> str:
    """The table of some rows; `metrics` as `short_table.columns` takes them."""
    nodes = short_table.variants(document, rows)
    columns = short_table.columns(document, rows, metrics, brief=brief)
    lines = []
    for number, row in enumerate(rows):
        mark, baseline = short_table.marks(document, row, metrics[0] if metrics else None)
        marks = ", ".join(filter(None, [f"**{mark}**" if mark and not brief else mark, baseline]))
        figures = (cells[number].translate(_REPLACED) for _, cells in columns)
        lines.append([marks, *(escape(cells[number]) for _, cells in nodes), *figures])
    return table(["", *(header for header, _ in [*nodes, *columns])], lines, len(columns))


def matrix(document: MatrixDocument) -> str:
    """The answers, one table for each metric with the best first, and what it took."""
    parts = [_title(document), *_decision(recommendation.lines(document)), gate_list(gates.found_in(document))]
    answers = [escape(answer) for answer in sentences.answers(document)]
    parts.append("\n".join(f"- {answer}" for answer in answers) if len(answers) > 1 else "".join(answers))
    parts += _warnings(document["warnings"])
    parts += [escape(" ".join(row_view.words(document)))]
    every = row_view.viewed_rows(document, None)
    for metric in summary.tabled(document) if every else ():
        viewed = row_view.viewed_rows(document, metric)
        rows = viewed if "view" in document else summary.shortened(document, viewed)
        parts += [_figures(document, rows, [] if metric is None else [metric])]
        parts += [escape(sentences.left_out(document, len(every) - len(rows)))]
    parts.append("\n".join(f"{escape(sentence)}  " for sentence in sentences.closing(document)).rstrip())
    parts.append(bullets(failure_causes.lines(document["failures"], document["sweep"]["id"])))
    if summary.metric_names(document):
        parts.append(f"<sub>{escape(short_table.legend(document))}</sub>")
    return joined(parts)


def report(document: EvidenceDocument) -> str:
    """The answer, the gates, what to beware of, the best combinations; the rest folds."""
    found, names = document["matrix"], layout.metrics(document["matrix"])
    answers = [sentences.answer(found, metric) for metric in names[:METRICS]]
    answers += [noise for metric in names[:1] if (noise := sentences.noise(found, metric))]
    first = names[0] if names else None
    viewed = row_view.viewed_rows(found, first)
    rows = viewed[:ROWS] if "view" in found else [row for _, row in layout.ranked(found, first, ROWS - 1)]
    left_out = len(viewed) - len(rows)
    parts = [
        _title(found),
        *(_decision(recommendation.lines(found, document["gates"])) if names else [escape(sentences.unscored(found))]),
        bullets(answers),
        gate_list(document["gates"]),
        *_warnings(found["warnings"][:ROWS]),
        escape(" ".join(row_view.words(found))),
        _figures(found, rows, names[:METRICS], brief=True) if rows else "",
        f"{texts.plural(left_out, 'more combination')}." if left_out else "",
        bullets(_failures(document)),
        _details(document, names),
    ]
    return joined(parts)


def _failures(document: EvidenceDocument) -> list[str]:
    found, failures = document["matrix"], document["failures"]
    lines = [
        (texts.plural(one["cells"], "cell"), failure_causes.cause(one, 200), one["combinations"])
        for one in failures["cells"][:CAUSES]
    ]
    lines += [
        (f"{texts.plural(one['scores'], 'score')} of {one['metric']}", one["message"][:200], one["combinations"])
        for one in failures["scores"][:CAUSES]
    ]
    return [f"{count} failed: {why} ({layout.concerned(found, rows)[:200]})" for count, why, rows in lines]


def _details(document: EvidenceDocument, names: Sequence[str]) -> str:
    """What is of interest once the answer is known: what makes the difference, what it took, where to read on."""
    found, workflow = document["matrix"], document["provenance"]["workflow"]
    details = [one for metric in names for one in document["attribution"][metric]["sentences"]]
    details += sentences.closing(found)
    details.append(f"Sweep {found['sweep']['id']} of {workflow}; intervals are 95%.")
    return f"<details><summary>Details</summary>\n\n{bullets(details)}\n\n</details>"
