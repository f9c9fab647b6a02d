"""Results as GitHub-flavoured Markdown: a matrix, and a report short enough for a comment under a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.display import failure_causes, recommendation, row_view, sentences, short_table, summary
from wtb.display import figures as matrix_figures
from wtb.display.report import matrix_tables

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateDocument, MatrixDocument, RowDocument
    from wtb.core.documents.report import EvidenceDocument


ROWS, METRICS, CAUSES = 10, 4, 5  # of a report
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
# No HTML. The comment after `@` keeps GitHub from notifying a user of that name.
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


def gate_list(gates: Iterable[GateDocument]) -> str:
    """Gates as a list; those that do not hold stand out."""
    marks = [(gate, matrix_figures.mark(gate)) for gate in gates]
    return "\n".join(
        f"- {mark if gate['holds'] else f'**{mark}**'}: {escape(matrix_figures.gate_text(gate))}"
        for gate, mark in marks
    )


def _title(document: MatrixDocument) -> str:
    return f"### {escape(document['sweep']['name'])} ({escape(document['sweep']['status'])})"


def _decision(lines: Sequence[str]) -> list[str]:
    """The decision: what to ship in bold, what it rests on as a paragraph."""
    # The verdict of gates, if there are any, comes before the recommendation, and both are bold.
    bold = [f"**{escape(line)}**" for line in lines[:2]] if lines[:1] and "gate" in lines[0] else []
    bold = bold or [f"**{escape(line)}**" for line in lines[:1]]
    return [*bold, escape(" ".join(lines[len(bold) :]))]


def _warnings(warnings: Sequence[str]) -> list[str]:
    return [f"> **Warning:** {escape(warning)}" for warning in warnings]


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
    parts = [_title(document), *_decision(recommendation.lines(document)), gate_list(matrix_figures.found_in(document))]
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
    # Two blanks end a line in Markdown.
    parts.append("\n".join(f"{escape(sentence)}  " for sentence in sentences.closing(document)).rstrip())
    parts.append(bullets(failure_causes.lines(document["failures"], document["sweep"]["id"])))
    if summary.metric_names(document):
        parts.append(f"<sub>{escape(short_table.legend(document))}</sub>")
    return joined(parts)


def report(document: EvidenceDocument) -> str:
    """The answer, the gates, what to beware of, the best combinations; the rest folds."""
    matrix, names = document["matrix"], matrix_tables.metrics(document["matrix"])
    answers = [sentences.answer(matrix, metric) for metric in names[:METRICS]]
    answers += [noise for metric in names[:1] if (noise := sentences.noise(matrix, metric))]
    first = names[0] if names else None
    viewed = row_view.viewed_rows(matrix, first)
    # One less than ROWS, because the baseline is added if it is not among the best.
    rows = viewed[:ROWS] if "view" in matrix else [row for _, row in matrix_tables.ranked(matrix, first, ROWS - 1)]
    left_out = len(viewed) - len(rows)
    parts = [
        _title(matrix),
        *(
            _decision(recommendation.lines(matrix, document["gates"]))
            if names
            else [escape(sentences.unscored(matrix))]
        ),
        bullets(answers),
        gate_list(document["gates"]),
        *_warnings(matrix["warnings"][:ROWS]),
        escape(" ".join(row_view.words(matrix))),
        _figures(matrix, rows, names[:METRICS], brief=True) if rows else "",
        f"{texts.plural(left_out, 'more combination')}." if left_out else "",
        bullets(_failures(document)),
        _details(document, names),
    ]
    return joined(parts)


def _failures(document: EvidenceDocument) -> list[str]:
    matrix, failures = document["matrix"], document["failures"]
    lines = [
        (texts.plural(failure["cells"], "cell"), failure_causes.cause(failure, 200), failure["combinations"])
        for failure in failures["cells"][:CAUSES]
    ]
    lines += [
        (
            f"{texts.plural(failure['scores'], 'score')} of {failure['metric']}",
            failure["message"][:200],
            failure["combinations"],
        )
        for failure in failures["scores"][:CAUSES]
    ]
    return [f"{count} failed: {why} ({matrix_tables.concerned(matrix, rows)[:200]})" for count, why, rows in lines]


def _details(document: EvidenceDocument, names: Sequence[str]) -> str:
    """Yield what is of interest once the answer is known: what makes the difference, what it took, where to read on."""
    matrix, workflow = document["matrix"], document["provenance"]["workflow"]
    details = [sentence for metric in names for sentence in document["attribution"][metric]["sentences"]]
    details += sentences.closing(matrix)
    details.append(f"Sweep {matrix['sweep']['id']} of {workflow}; intervals are 95%.")
    return f"<details><summary>Details</summary>\n\n{bullets(details)}\n\n</details>"
