"""The data of a report: its evidence, with the figures of as many combinations and metrics as a small file has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wtb.core import texts
from wtb.core.documents.results.outputs import MOST_CASES, MOST_ROWS
from wtb.display.json_text import as_json
from wtb.display.report.html import layout
from wtb.display.views.executions import outline

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.documents.report import EvidenceDocument, SharingTree
    from wtb.core.documents.results.outputs import OutputsDocument

MOST_CELLS: Final = 1_000  # of which a file has the outputs
MOST_OUTPUT_BYTES: Final = 1_500_000  # as JSON
_MOST_PREFIXES: Final = 2_000  # of the tree: whole levels, from the root on
_SETTINGS: Final = 20_000  # characters
_CONTROL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u00([01][0-9a-fA-F])")  # as JSON escapes them
_VISIBLE: Final = {0x7F: "\u2421", **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")}
_T = TypeVar("_T")


def small_outputs(ask: Callable[..., OutputsDocument]) -> OutputsDocument | None:
    """Return the outputs of a sweep for its report; None if they are too many or too long for a file.

    Args:
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
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
    kept = layout.metrics(matrix)
    rows = layout.ranked(matrix, kept[0] if kept else None)
    shown = None if len(rows) == len(matrix["rows"]) else {number for number, _ in rows}
    evidence: dict[str, Any] = {**document, "matrix": _matrix(matrix, kept, shown)}
    for key in ("attribution", "pairs"):
        if key in document:
            evidence[key] = _only(document[key], kept)
    if "history" in document:
        evidence["history"] = {**document["history"], "metrics": _only(document["history"]["metrics"], kept)}
    if "tree" in document:
        evidence["tree"] = _tree(document["tree"])
    graph = None
    if "provenance" in document:
        settings = document["provenance"]["settings"]
        evidence["provenance"] = {**document["provenance"], "settings": _cut(settings)}
        graph = outline(document["provenance"]["graph"]) if document["provenance"]["graph"].get("nodes") else None
    return {"evidence": evidence, "outputs": outputs, "graph": graph, "shown": shown and sorted(shown)}


def json_of_script(data: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the script it is in, with control characters that can be seen."""
    text = _CONTROL.sub(lambda match: match[1] + chr(0x2400 + int(match[2], 16)), as_json(data, compact=True))
    return text.translate(_VISIBLE).replace("<", "\\u003c")


def _matrix(matrix: MatrixDocument, kept: list[str], shown: set[int] | None) -> dict[str, Any]:
    rows = [_row(row, kept, shown is None or number in shown) for number, row in enumerate(matrix["rows"])]
    by_metric = {key: _only(matrix[key], kept) for key in ("metrics", "best", "front")}
    return {**matrix, **by_metric, "rows": rows}


def _row(row: RowDocument, kept: list[str], is_shown: bool) -> dict[str, Any]:
    """Return a row with the metrics that are kept, or what it chooses alone."""
    if is_shown:
        return {**row, "metrics": _only(row["metrics"], kept)}
    return {"combination": row["combination"], "n": 0, "failed": 0, "cost_usd": None, "metrics": {}} | {
        "latency_s": {"p50": None, "p95": None}
    }


def _only(by_name: Mapping[str, _T], kept: list[str]) -> dict[str, _T]:
    return {name: by_name[name] for name in kept if name in by_name}


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
