"""Outputs as CSV (RFC 4180): one line for each cell of a page, for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from wtb.core.factors.factors import labels_of
from wtb.core.values import Json
from wtb.display.matrix import csv

if TYPE_CHECKING:
    from wtb.core.documents.results.outputs import CaseOutputs, CellOutputs, OutputsDocument, OutputValue


def outputs_csv(document: OutputsDocument) -> str:
    """Return a page of outputs as CSV with a header.

    A column whose name is taken by one before it is prefixed by its kind: `input.`, `output.` or `metric.`. Long texts
    are cut as in the document. Text that a spreadsheet would run as a formula starts with an apostrophe.
    """
    lines = [_line(case, cell, document) for case in document["cases"] for cell in case["cells"] if cell is not None]
    names = list(dict.fromkeys(name for line in lines for name in line))
    return csv.written([names, *([line.get(name) for name in names] for line in lines)])


def _line(case: CaseOutputs, cell: CellOutputs, document: OutputsDocument) -> dict[str, Json]:
    combination = next(row["combination"] for row in document["rows"] if row["row"] == cell["row"])
    line: dict[str, Json] = {
        "case": case["case"],
        "repeat": case["repeat"],
        "tags": ", ".join(case["tags"]),
        "row": cell["row"],
        **labels_of(combination),
        "status": cell["status"],
        "expected": None if case["expected"] is None else _text(case["expected"]),
    }
    for kind, values in _parts(case, cell, document):
        line |= {f"{kind}.{name}" if name in line else name: value for name, value in values.items()}
    comments = "\n".join(f"{one['by']}: {one['text']}" for one in cell.get("comments", []))
    return line | {
        "error": cell["error"],
        "latency_s": cell["latency_s"],
        "cost_usd": cell["cost_usd"],
        "tokens_in": cell["tokens_in"],
        "tokens_out": cell["tokens_out"],
        "comments": comments or None,
    }


def _parts(case: CaseOutputs, cell: CellOutputs, document: OutputsDocument) -> Iterator[tuple[str, Mapping[str, Json]]]:
    yield "input", {key: _text(value) for key, value in case["input"].items()}
    yield "output", {key: _text(cell["outputs"][key]) if key in cell["outputs"] else None for key in document["keys"]}
    for metric in document["metrics"]:
        score = cell["scores"].get(metric)
        value, reason = (None, None) if score is None else (score["value"], score["reason"])
        yield "metric", {metric: value, f"{metric}.reason": reason}


def _text(value: OutputValue) -> str:
    found = value["value"]
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
