"""The command on the report: report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.core.errors import InputError
from wtb.display import markdown
from wtb.display.json_text import as_json
from wtb.display.matrix import csv as csvfile
from wtb.display.report import junit as junit_report
from wtb.display.report.html import page
from wtb.hosting.pages import embedded_outputs
from wtb.operations.outputs import side_by_side
from wtb.operations.results import matrix as operations

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument


Render = Callable[["EvidenceDocument"], str]


class ReportFormat(StrEnum):
    """Forms of the report."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"
    junit = "junit"


_SUFFIXES: Mapping[str, ReportFormat] = {
    ".html": ReportFormat.html,
    ".htm": ReportFormat.html,
    ".md": ReportFormat.md,
    ".csv": ReportFormat.csv,
    ".json": ReportFormat.json,
    ".xml": ReportFormat.junit,
}
FormatOption = Annotated[
    ReportFormat | None,
    typer.Option("--format", "-f", help="Its form \\[default: by the suffix of --output, else html]."),
]


def report(
    ref: options.Sweep,
    output: options.Output = None,
    format: FormatOption = None,
    full: Annotated[bool, typer.Option("--full", help="Open every case, with values as long as they are.")] = False,
    db: options.Db = None,
) -> None:
    """Write the results as one file for others, or for CI.

    It has the matrix with charts and cases, of a sweep that is finished or not: for a browser, a pull request or a CI
    system.

    See also: `wtb matrix` shows the figures alone, here.

    Examples: wtb report nightly -o report.html  |  wtb report nightly --full -o all.html
    """
    if format is None and output is not None and output.suffix.lower() not in _SUFFIXES:
        raise InputError(f"--output {output}: its suffix names no form of the report; give --format too")
    chosen = format or _of_suffix(output)
    if chosen is ReportFormat.html and output is None and sys.stdout.isatty():
        raise InputError("a page is of no use in a terminal; write it to a file, as with `-o report.html`")
    backend = open_backend(db)
    document = backend.call(operations.report, ref, full=full)
    if chosen is ReportFormat.html:
        part = embedded_outputs.outputs_part(document, partial(backend.call, side_by_side.outputs, ref))
        put(page.render(document, part), output)
    else:
        put(_renderer(chosen)(document), output)


def _of_suffix(output: Path | None) -> ReportFormat:
    return ReportFormat.html if output is None else _SUFFIXES[output.suffix.lower()]


def _renderer(format: ReportFormat) -> Render:
    renderers: Mapping[ReportFormat, Render] = {
        ReportFormat.md: markdown.report,
        ReportFormat.csv: lambda document: csvfile.render(document["matrix"]),
        ReportFormat.json: as_json,
        ReportFormat.junit: junit_report.render,
    }
    return renderers[format]
