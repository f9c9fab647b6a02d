"""CSV (RFC 4180) for spreadsheets and pandas: the matrix, cells and outputs, and cells as rows of a data frame.

Figures are in full precision, undefined ones are empty. Text that a spreadsheet would run as a formula
starts with an apostrophe, which spreadsheets do not show (OWASP, "CSV Injection").
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from wtb.core.factors import label_columns, labels_of
from wtb.core.values import Json
from wtb.display import summary
from wtb.display.json_text import value_as_json

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.outputs import CaseOutputs, CellOutputs, OutputsDocument, OutputValue
    from wtb.core.documents.sweeps import CellDocument

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
Figure = str | float | None
_COSTS: Final[Sequence[summary.MoneyKey]] = (
    "cost_usd",
    "cost_failed_usd",
    "cost_per_success_usd",
    "cost_innocent_usd",
)
_COLUMNS = (
    *("metric", "better", "n", "failed", "lost_to_provider", "n_pairs"),
    *("mean", "ci_low", "ci_high", "delta", "delta_ci_low", "delta_ci_high"),
    *("p_adjusted", "p_uncorrected", "best", "clear", "baseline"),
    *_COSTS,
    *("latency_p50_s", "latency_p95_s", "exploratory", "within", "behind_low", "behind_high", "row"),
)


def render(document: MatrixDocument) -> str:
    """The matrix as CSV with a header.

    Args:
        document: The matrix.

    Returns:
        A line for each combination and metric; without evaluators one for each combination, its metric empty. `n` is
        of the metric; the columns `node.NAME` have the combination, one for each varied node, and `factor.NODE.NAME`
        the levels of factors. `p_adjusted` belongs to the interval of `delta`: both are corrected. `row` is
        the number of the combination in the matrix.
    """
    nodes = list(dict.fromkeys(node for row in document["rows"] for node in row["combination"]))
    factors = [key for key in label_columns([row["combination"] for row in document["rows"]]) if key not in nodes]
    lines: list[list[Figure]] = [
        ["sweep", *(f"node.{node}" for node in nodes), *(f"factor.{key}" for key in factors), *_COLUMNS]
    ]
    numbers = document["view"]["rows"] if "view" in document else range(len(document["rows"]))
    for number in numbers:
        row = document["rows"][number]
        names = [document["sweep"]["id"], *(row["combination"].get(node, "") for node in nodes)]
        names += [summary.label(row, key) for key in factors]
        for metric in summary.tabled(document):
            values = {**_values(document, row, metric), "row": number}
            lines.append([*names, *(values.get(column) for column in _COLUMNS)])
    return written(lines)


def _values(document: MatrixDocument, row: RowDocument, metric: str | None) -> dict[str, Figure]:
    values: dict[str, Figure] = {
        "failed": row["failed"],
        "lost_to_provider": row.get("lost_to_provider", 0),
        "baseline": _flag(summary.is_baseline(document, row)),
        **{key: row.get(key) for key in _COSTS},
        "latency_p50_s": row["latency_s"]["p50"],
        "latency_p95_s": row["latency_s"]["p95"],
        "exploratory": _flag(bool(row.get("exploratory"))),
    }
    if metric is None:
        return {**values, "n": row["n"]}
    estimate = summary.estimate(row, metric)
    low, high = estimate.get("ci") or (None, None)
    delta_low, delta_high = estimate.get("delta_ci") or (None, None)
    best = summary.is_best(document, row, metric)
    within = estimate.get("within")
    behind_low, behind_high = (within and within["behind"]) or (None, None)
    return {
        **values,
        "within": None if within is None else summary.within_words(within),
        "behind_low": behind_low,
        "behind_high": behind_high,
        "metric": metric,
        "better": summary.better(document, metric),
        "n": estimate["n"],
        "n_pairs": estimate.get("n_pairs"),
        "mean": estimate.get("mean"),
        "delta": estimate.get("delta"),
        "p_adjusted": estimate.get("p_adjusted"),
        "p_uncorrected": estimate.get("p"),
        "ci_low": low,
        "ci_high": high,
        "delta_ci_low": delta_low,
        "delta_ci_high": delta_high,
        "best": _flag(best),
        "clear": _flag(document["best"][metric]["clear"]) if best else None,
    }


def _flag(flag: bool) -> str:
    return "yes" if flag else "no"


def written(lines: Iterable[Iterable[Any]]) -> str:
    """Return lines as CSV (RFC 4180), with an apostrophe before text that a spreadsheet would run as a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(safe, line) for line in lines)
    return text.getvalue()


def safe(content: Any) -> Any:
    """The value, with an apostrophe before text that starts like a formula; numbers are left alone."""
    return f"'{content}" if isinstance(content, str) and content.startswith(_FORMULA) else content


# Measurements of a cell, and the metric that has the same figures.
Spent = Literal["latency_s", "cost_usd", "tokens_in", "tokens_out"]
_SPENT: Final[Mapping[Spent, str | None]] = {
    "latency_s": "latency",
    "cost_usd": "cost",
    "tokens_in": None,
    "tokens_out": None,
}
_MEASURED: Final = frozenset(_SPENT.values())  # of failed cells, too: they count as they are
_CELL: Final = ("case", "repeat", "tags", "expected", "status", "error", "execution")


def cell_row(cell: CellDocument, metrics: Sequence[str], keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return a cell as a row by column; the columns are the same for all cells of a sweep.

    Args:
        cell: The cell.
        metrics: The metrics of the sweep.
        keys: Keys of the final state that are columns, too.
    """
    combination, counted = cell["combination"], cell.get("counted", cell["scores"])
    row: dict[str, Any] = {**combination, **{k: v for k, v in labels_of(combination).items() if k not in combination}}
    parts = (
        ("cell", {key: cell[key] for key in _CELL}),
        ("metric", {metric: cell["scores"].get(metric) for metric in metrics}),
        ("counted", {f"{metric}.counted": counted.get(metric) for metric in metrics if metric not in _MEASURED}),
        ("spent", {key: cell[key] for key, metric in _SPENT.items() if metric not in metrics}),
        ("state", {key: cell["state"].get(key) for key in keys}),
    )
    for kind, columns in parts:
        # A node or a metric may have the name of another column. The later one gets its kind as a prefix.
        row |= {f"{kind}.{name}" if name in row else name: field for name, field in columns.items()}
    return row


def cells_as_csv(
    cells: Iterable[CellDocument],
    variants: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
    keys: Sequence[str] = (),
) -> Iterator[str]:
    """Yield cells as CSV (RFC 4180) with a header, line by line: they may be larger than memory.

    Lists and mappings are JSON. Text that a spreadsheet would run as a formula starts with an apostrophe.

    Args:
        cells: The cells.
        variants: The varied nodes of the sweep with the names of their variants.
        metrics: Its metrics.
        keys: Keys of the final state that are columns, too.
    """
    # From the variants of the sweep instead of the cells: every line needs the same columns, and a cell lacks the
    # factors of variants that it does not choose.
    levels = label_columns([{node: name} for node, names in variants.items() for name in names])
    factors = [*variants, *(name for name in levels if name not in variants)]
    header: list[str] = []
    for cell in cells:
        row = cell_row(cell, metrics, keys)
        if not header:
            header = [*factors, *(name for name in row if name not in factors)]
            yield written([header])
        yield written([[_plain(row.get(name)) for name in header]])


def _plain(value: Any) -> Any:
    """A value as it stands in a field: numbers and text as they are, everything else as JSON."""
    return value if value is None or isinstance(value, str | int | float) else value_as_json(value)


def outputs_csv(document: OutputsDocument) -> str:
    """Return a page of outputs as CSV with a header.

    A column whose name is taken by one before it is prefixed by its kind: `input.`, `output.` or `metric.`. Long texts
    are cut as in the document. Text that a spreadsheet would run as a formula starts with an apostrophe.
    """
    lines = [_line(case, cell, document) for case in document["cases"] for cell in case["cells"] if cell is not None]
    names = list(dict.fromkeys(name for line in lines for name in line))
    return written([names, *([line.get(name) for name in names] for line in lines)])


def _line(case: CaseOutputs, cell: CellOutputs, document: OutputsDocument) -> dict[str, Json]:
    combination = next(row["combination"] for row in document["rows"] if row["row"] == cell["row"])
    line: dict[str, Json] = {
        "case": case["case"],
        "repeat": case["repeat"],
        "tags": ", ".join(case["tags"]),
        "row": cell["row"],
        **labels_of(combination),
        "status": cell["status"],
        "expected": None if case["expected"] is None else _cell_text(case["expected"]),
    }
    for kind, values in _parts(case, cell, document):
        line |= {f"{kind}.{name}" if name in line else name: field for name, field in values.items()}
    comments = "\n".join(f"{comment['by']}: {comment['text']}" for comment in cell.get("comments", []))
    return line | {
        "error": cell["error"],
        "latency_s": cell["latency_s"],
        "cost_usd": cell["cost_usd"],
        "tokens_in": cell["tokens_in"],
        "tokens_out": cell["tokens_out"],
        "comments": comments or None,
    }


def _parts(case: CaseOutputs, cell: CellOutputs, document: OutputsDocument) -> Iterator[tuple[str, Mapping[str, Json]]]:
    yield "input", {key: _cell_text(output) for key, output in case["input"].items()}
    yield (
        "output",
        {key: _cell_text(cell["outputs"][key]) if key in cell["outputs"] else None for key in document["keys"]},
    )
    for metric in document["metrics"]:
        score = cell["scores"].get(metric)
        score_value, reason = (None, None) if score is None else (score["value"], score["reason"])
        yield "metric", {metric: score_value, f"{metric}.reason": reason}


def _cell_text(output: OutputValue) -> str:
    content = output["value"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
