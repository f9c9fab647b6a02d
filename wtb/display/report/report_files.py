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

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument

RENDERERS: Mapping[str, Callable[[EvidenceDocument], str]] = {
    "html": page.render,
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


def form_of(file: Path) -> str:
    """Return the form of the report that a file is to have by its suffix. Raises InputError."""
    form = _SUFFIXES.get(file.suffix.lower())
    if form is None:
        found = f"in the form {file.suffix!r}" if file.suffix else "in a file without a suffix"
        raise InputError(f"{file}: there is no report {found}; expected one of {', '.join(_SUFFIXES)}")
    return form
