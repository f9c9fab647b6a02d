"""Results as a part of a page, for notebooks: no script, nothing fetched, and no colours but those of the notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.core.documents.events.texts import under
from wtb.display.matrix import recommendation, sentences, short_table, summary
from wtb.display.report.html.environment import render
from wtb.display.text import comparisons, row_comparison
from wtb.display.text.inspect import graphs

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument, RowComparisonDocument
    from wtb.core.documents.executions import ExecutionDocument
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.workflows.graphs import WorkflowDocument


WIDTH = 100  # of text
VALUE = 400  # characters of a value of a state


@frozen
class ShownRow:
    """A row of a table. plot: where its mean and the ends of its interval lie, in per cent; empty without a mean."""

    marks: str
    is_best: bool
    is_baseline: bool
    plot: Sequence[float]


@frozen
class Table:
    """A metric's table: headers with the cells below them, of the nodes and of the figures."""

    title: str
    nodes: Sequence[tuple[str, Sequence[str]]]
    columns: Sequence[tuple[str, Sequence[str]]]
    rows: Sequence[ShownRow]


def matrix(document: MatrixDocument) -> str:
    """The answers, a table for each metric with the best first, and what it took; of many rows the best."""
    metrics = summary.metric_names(document)
    answers = [
        *recommendation.lines(document),
        *sentences.answers(document),
        *(sentences.noise(document, metric) for metric in metrics[:1]),
    ]
    tables = [_table(document, metric) for metric in summary.tabled(document)] if document["rows"] else []
    shown = summary.shortened(document, list(document["rows"]))
    return render(
        "notebook_matrix.html",
        matrix=document,
        answers=list(filter(None, answers)),
        tables=tables,
        legend=" ".join([short_table.legend(document), *_costs(document)]) if metrics else "",
        left_out=sentences.left_out(document, len(shown)),
    )


def _costs(document: MatrixDocument) -> list[str]:
    return [f"{one.name.capitalize()}: {one.means}" for one in summary.costs(document, document["rows"])]


def _table(document: MatrixDocument, metric: str | None) -> Table:
    """One metric's table: every row, or of many the best and the baseline."""
    rows = summary.shortened(document, summary.ranked(document, metric))
    metrics = [] if metric is None else [metric]
    columns = short_table.columns(document, rows, metrics)
    columns.append(("p95", [texts.duration(row["latency_s"]["p95"]) for row in rows]))
    ends = [end for row in document["rows"] for end in _ends(row, metric)]
    low, wide = (min(ends), (max(ends) - min(ends)) or 1.0) if ends else (0.0, 1.0)
    return Table(
        title=summary.table_title(document, metric),
        nodes=short_table.variants(document, rows),
        columns=columns,
        rows=[
            ShownRow(
                marks=", ".join(filter(None, short_table.marks(document, row, metric))),
                is_best=metric is not None and summary.is_best(document, row, metric),
                is_baseline=summary.is_baseline(document, row),
                plot=[100 * (end - low) / wide for end in _ends(row, metric)],
            )
            for row in rows
        ],
    )


def _ends(row: RowDocument, metric: str | None) -> list[float]:
    """What a plot of a row's mean shows: the mean and both ends of its interval."""
    found = summary.NOT_EVALUATED if metric is None else summary.estimate(row, metric)
    if found["mean"] is None:
        return []
    return [found["mean"], *(found["ci"] or (found["mean"], found["mean"]))]


def execution(document: ExecutionDocument) -> str:
    """A single execution: its status, the steps it took and its state."""
    steps = [
        [str(one["step"]), under(one), one["status"], str(one["attempts"]), texts.took(one["duration_s"])]
        for one in document["path"]
    ]
    state = [[key, texts.short(value, VALUE)] for key, value in document["state"].items()]
    tables = [(["step", "node=variant", "status", "attempts", "time"], steps), (["key", "value"], state)]
    return render("notebook_execution.html", about=document["execution"], tables=[one for one in tables if one[1]])


def graph(document: WorkflowDocument, parameters: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
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
