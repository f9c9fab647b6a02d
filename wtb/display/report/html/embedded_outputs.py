"""Views of the pages for the report, which is one file: the modules of the pages, and the data that they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wtb.core.documents.results.outputs import MOST_CASES, MOST_ROWS
from wtb.display.json_text import as_json
from wtb.display.report.html.bundle import WEB, bundle
from wtb.display.report.html.page import ScriptedViews

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument
    from wtb.core.documents.results.outputs import OutputsDocument

MOST_CELLS: Final = 1_000
MOST_VIEWED: Final = 500  # rows of a matrix that a file shows
_ENTRY: Final = "report_views.js"


def scripted_views(document: EvidenceDocument, ask: Callable[..., OutputsDocument]) -> ScriptedViews | None:
    """Return rows and outputs of a sweep for its report, each unless it is too much for a file; None if there is none.

    Args:
        document: What the report shows besides.
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
    first = ask(limit=1)
    cells = first["combinations"] * first["total"]
    has_outputs = 0 < cells <= MOST_CELLS and first["combinations"] <= MOST_ROWS
    matrix = document["matrix"]
    has_rows = matrix["primary"] is not None and 1 < len(matrix["rows"]) <= MOST_VIEWED
    titles = {"rows": "Rows and pivot"} if has_rows else {}
    titles |= {"outputs": "Outputs"} if has_outputs else {}
    if not titles:
        return None
    data = {
        "outputs": {**ask(limit=MOST_CASES), "other_keys": []} if has_outputs else None,
        "matrix": matrix,
        "failureScores": {name: metric["on_failure"] for name, metric in matrix["metrics"].items()},
        "style": _style(),
    }
    places = {"rows": "intervals", "outputs": "opened"}
    return ScriptedViews(titles, places, bundle(_ENTRY), as_json(data))


def _style() -> str:
    """Return the style of the pages for a part of a document: what is said of the whole is said of the part."""
    text = (WEB / "style.css").read_text("utf-8")
    text = re.sub(r":root((?:\[[^\]]*\]|:not\([^)]*\))+)", r":host(\1)", text)
    return (
        text.replace(":root", ":host")
        + ":host { display: block; color: var(--ink); background: var(--paper); overflow-wrap: normal; }"
    )
