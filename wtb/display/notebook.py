"""Results as a part of a page, for notebooks: no script, nothing fetched, and no colours but those of the notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.documents.events.texts import under
from wtb.core.mappings import Params
from wtb.display.matrix import recommendation, sentences, summary
from wtb.display.report.html.environment import render
from wtb.display.report.html.matrix_tables import matrix_tables
from wtb.display.text import comparisons, row_comparison
from wtb.display.text.inspect import graphs

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument, RowComparisonDocument
    from wtb.core.documents.executions import ExecutionDocument
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.workflows.graphs import WorkflowDocument


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
        "notebook_matrix.html",
        matrix=document,
        answers=list(filter(None, answers)),
        **vars(matrix_tables(document)),
    )


def execution(document: ExecutionDocument) -> str:
    """A single execution: its status, the steps it took and its state."""
    steps = [
        [str(one["step"]), under(one), one["status"], str(one["attempts"]), texts.took(one["duration_s"])]
        for one in document["path"]
    ]
    state = [[key, texts.short(value, VALUE)] for key, value in document["state"].items()]
    tables = [(["step", "node=variant", "status", "attempts", "time"], steps), (["key", "value"], state)]
    return render("notebook_execution.html", about=document["execution"], tables=[one for one in tables if one[1]])


def graph(document: WorkflowDocument, parameters: Mapping[str, Mapping[str, Params]]) -> str:
    """The graph of a workflow. parameters: node -> variant -> what its callable takes."""
    return _text(graphs.draw(document, parameters, WIDTH))


def comparison(document: ComparisonDocument) -> str:
    """What got worse or better between two sweeps."""
    return _text(comparisons.comparison(document, WIDTH))


def two_rows(document: RowComparisonDocument) -> str:
    """Two rows of a sweep over all cases."""
    return _text(row_comparison.two_rows(document, WIDTH))


def _text(text: str) -> str:
    return render("notebook_text.html", lines=text.splitlines())
