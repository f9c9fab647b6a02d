"""The view of outputs for the report, which is one file: the modules of the pages, and the data that they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wtb.core.documents.results.outputs import MOST_CASES, MOST_ROWS
from wtb.display.json_text import as_json
from wtb.display.report.html.bundle import WEB, bundle
from wtb.display.report.html.page import ScriptedPart

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument
    from wtb.core.documents.results.outputs import OutputsDocument

MOST_CELLS: Final = 1_000
_ENTRY: Final = "report_outputs.js"


def outputs_part(document: EvidenceDocument, ask: Callable[..., OutputsDocument]) -> ScriptedPart | None:
    """Return the outputs of a sweep for its report; None of one with too many cells for a file, or without any.

    Args:
        document: What the report shows besides.
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
    first = ask(limit=1)
    cells = first["combinations"] * first["total"]
    if not 0 < cells <= MOST_CELLS or first["combinations"] > MOST_ROWS:
        return None
    matrix = document["matrix"]
    data = {
        "outputs": {**ask(limit=MOST_CASES), "other_keys": []},
        "matrix": matrix,
        "failureScores": {name: metric["on_failure"] for name, metric in matrix["metrics"].items()},
        "style": _style(),
    }
    return ScriptedPart("outputs", "Outputs", bundle(_ENTRY), as_json(data))


def _style() -> str:
    """Return the style of the pages for a part of a document: what is said of the whole is said of the part."""
    text = (WEB / "style.css").read_text("utf-8")
    text = re.sub(r":root((?:\[[^\]]*\]|:not\([^)]*\))+)", r":host(\1)", text)
    return text.replace(":root", ":host") + ":host { display: block; color: var(--ink); background: var(--paper); }"
