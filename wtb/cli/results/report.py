"""The command on the report: report."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.core.errors import InputError
from wtb.display.report import report_files
from wtb.operations.results import matrix as operations
from wtb.operations.results import side_by_side


class ReportFormat(StrEnum):
    """Forms of the report."""

    html = "html"
    md = "md"
    csv = "csv"
    json = "json"
    junit = "junit"


FormatOption = Annotated[
    ReportFormat | None,
    typer.Option("--format", "-f", help="Its form \\[default: by the suffix of --output, else html]."),
]


def report(
    ref: options.Sweep,
    output: options.Output = None,
    format: FormatOption = None,
    full: Annotated[bool, typer.Option("--full", help="Expand every case, with untruncated values.")] = False,
    where: options.Where = None,
    within: options.Within = False,
    sort: options.Sort = None,
    db: options.Db = None,
) -> None:
    """Write the results to one file, to share or for CI.

    Writes the matrix with charts and cases, even if the sweep has not finished, for a browser, a pull request or a CI
    system.

    See also: `wtb matrix` shows the figures alone, here.

    Examples: wtb report nightly -o report.html  |  wtb report nightly --full -o all.html
    """
    report_format = format or ReportFormat("html" if output is None else report_files.form_of(output))
    if report_format is ReportFormat.html and output is None and sys.stdout.isatty():
        raise InputError("an HTML page cannot be shown in a terminal; write it to a file, as with `-o report.html`")
    backend = open_backend(db)
    if (where or within or sort) and report_format not in (ReportFormat.md, ReportFormat.csv, ReportFormat.json):
        raise InputError("--where, --within and --sort are for md, csv and json; other forms show the whole matrix")
    document = backend.call(operations.report, ref, full=full, where=where or (), within=within, sort=sort)
    if report_format is ReportFormat.html:
        put(report_files.page_with_outputs(document, partial(backend.call, side_by_side.outputs, ref)), output)
    else:
        put(report_files.RENDERERS[report_format](document), output)
