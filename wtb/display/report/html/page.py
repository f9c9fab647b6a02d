"""The report as one HTML file that needs nothing else: the views of the pages, and the evidence that they show.

Without scripts it shows the decision, the matrix and its intervals.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, cast

from markupsafe import Markup

from wtb.display.matrix import gates, people
from wtb.display.report.html import environment
from wtb.display.report.html.bundle import WEB, bundle, without_comments
from wtb.display.report.html.embedded_data import embedded_data, json_of_script
from wtb.display.report.html.head import head
from wtb.display.report.html.matrix_tables import matrix_tables

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import EvidenceDocument
    from wtb.core.documents.results.outputs import OutputsDocument

_ENTRY = "report.js"
_STYLES = ("style.css", "report.css")


def render(document: EvidenceDocument, outputs: OutputsDocument | None = None) -> str:
    """Return the page of a report as HTML.

    Args:
        document: The evidence, as `wtb.display.report.evidence.gather` returns it.
        outputs: Outputs of all cells of the sweep, if the page is to show them.
    """
    return _page(document, "report", outputs)


def render_matrix(matrix: MatrixDocument) -> str:
    """Return the page of a matrix: the parts of a report that need nothing else."""
    read = {"matrix": matrix, "gates": gates.found_in(matrix), "people": people.found_in(matrix)}
    return _page(cast("EvidenceDocument", read), "matrix", None)


def _page(document: EvidenceDocument, kind: str, outputs: OutputsDocument | None) -> str:
    script = bundle(_ENTRY)
    # Only this very script may run, and nothing may be fetched, whatever a name or message contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    style = "".join(without_comments((WEB / name).read_text("utf-8")) for name in _STYLES)
    data = json_of_script(embedded_data(document, outputs))
    return environment.render(
        "page.html",
        kind=kind,
        matrix=document["matrix"],
        made_at=document.get("made_at"),
        policy=Markup(policy),
        style=Markup(style),
        script=Markup(script),
        data=Markup(data),
        **vars(matrix_tables(document["matrix"])),
        **vars(head(document)),
    )
