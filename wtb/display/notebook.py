"""Results as a part of a page, for notebooks: no script, nothing fetched, and no colours but those of the notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.documents.event_texts import under
from wtb.core.values import Params
from wtb.display import recommendation, sentences, summary
from wtb.display.report.matrix_tables import matrix_tables
from wtb.display.report.page_templates import render
from wtb.display.text import comparisons, graphs

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument, RowComparisonDocument
    from wtb.core.documents.executions import ExecutionDocument
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.workflows import WorkflowDocument


WIDTH = 100  # of text
VALUE = 400  # characters of a value of a state


def matrix(document: MatrixDocument) -> str:
    """The answers, a table for each metric with the best first, and what it took; of many rows the best."""
    metrics = summary.metric_names(document)
    answers = [
        *recommendation.lines(document),
        *sentences.answers(document),
        *(sentences.noise(document, metric) for metric in metrics[:1]),
    ]
    return render(
        "notebook_matrix.html", matrix=document, answers=list(filter(None, answers)), **vars(matrix_tables(document))
    )


def execution(document: ExecutionDocument) -> str:
    """A single execution: its status, the steps it took and its state."""
    steps = [
        [str(step["step"]), under(step), step["status"], str(step["attempts"]), texts.took(step["duration_s"])]
        for step in document["path"]
    ]
    state = [[key, texts.short(value, VALUE)] for key, value in document["state"].items()]
    tables = [(["step", "node=variant", "status", "attempts", "time"], steps), (["key", "value"], state)]
    return render(
        "notebook_execution.html", about=document["execution"], tables=[table for table in tables if table[1]]
    )


def graph(document: WorkflowDocument, parameters: Mapping[str, Mapping[str, Params]]) -> str:
    """The graph of a workflow. parameters: node -> variant -> what its callable takes."""
    return _text(graphs.draw(document, parameters, WIDTH))


def comparison(document: ComparisonDocument) -> str:
    """Show what got worse or better between two sweeps."""
    return _text(comparisons.comparison(document, WIDTH))


def two_rows(document: RowComparisonDocument) -> str:
    """Two rows of a sweep over all cases."""
    return _text(comparisons.two_rows(document, WIDTH))


def _text(text: str) -> str:
    return render("notebook_text.html", lines=text.splitlines())
