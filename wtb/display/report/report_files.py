"""Reports as files: the forms that there are, and which of them a file has by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wtb.core.errors import InputError
from wtb.display import markdown
from wtb.display.json_text import as_json
from wtb.display.matrix import csv
from wtb.display.report import junit
from wtb.display.report.html import page
from wtb.display.report.html.embedded_data import small_outputs

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument
    from wtb.core.documents.results.outputs import OutputsDocument

RENDERERS: Mapping[str, Callable[[EvidenceDocument], str]] = {
    "md": markdown.report,
    "csv": lambda document: csv.render(document["matrix"]),
    "json": as_json,
    "junit": junit.render,
}
_SUFFIXES: Mapping[str, str] = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".csv": "csv",
    ".json": "json",
    ".xml": "junit",
}


def page_with_outputs(document: EvidenceDocument, ask: Callable[..., OutputsDocument]) -> str:
    """Return the report as a page that has the outputs of its sweep, unless they are too many for a file.

    Args:
        document: What the report shows.
        ask: Returns outputs of the sweep, given the arguments of the operation `outputs` that follow its reference.
    """
    return page.render(document, small_outputs(ask))


def form_of(file: Path) -> str:
    """Return the form of the report that a file is to have by its suffix. Raises InputError."""
    form = _SUFFIXES.get(file.suffix.lower())
    if form is None:
        found = f"in the form {file.suffix!r}" if file.suffix else "in a file without a suffix"
        raise InputError(f"{file}: there is no report {found}; expected one of {', '.join(_SUFFIXES)}")
    return form
