"""The command `log`: the events of a sweep for people, as they are written if need be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import orjson
import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, width, write_result
from wtb.cli.output import in_color, present_all
from wtb.core.errors import InputError
from wtb.display.text import executions
from wtb.operations.inspection import log as operations


def log(
    ref: options.SweepOrExecution,
    severity: Annotated[
        str, typer.Option("--severity", help="The lowest severity to show: debug, info, warning or error.")
    ] = "debug",
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only kinds with this prefix, such as cell or node_run.failed; repeatable."),
    ] = None,
    execution: Annotated[str | None, typer.Option("--execution", help="Only events of this execution.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until the sweep ends or pauses.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", help="Seconds between looks with --follow.")] = 0.5,
    values: Annotated[
        bool, typer.Option("--values", help="Include writes of nodes, and arguments and results of tools; for JSON.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print only the number of events of each kind.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Read the events of a sweep, oldest first.

    With --format json one JSON object a line.

    See also: `wtb history` shows the checkpoints of one execution; `wtb show EXECUTION`, what its nodes printed.

    Examples: wtb log nightly --severity warning  |  wtb log EXECUTION  |  wtb log nightly --kind cell --follow  |
    wtb log EXECUTION --kind model.called --kind tool. --kind decision --values --format json
    """
    if summary and follow:
        raise InputError("--summary is given with --follow; expected one of them")
    backend = open_backend(db)
    if summary:
        counted = backend.call(operations.count_events, ref, severity=severity, kinds=kinds or (), execution=execution)
        present_all("events", counted, executions.counts, form, "no event matches")
        return
    log_events = backend.call(
        operations.log,
        ref,
        severity=severity,
        kinds=kinds or (),
        execution=execution,
        follow=follow,
        interval_s=interval_s,
        cases=not form.is_json,
        values=values,
    )
    if form.is_json:
        _write((orjson.dumps(event, default=str).decode() for event in log_events), form.output)
    else:
        _write(executions.lines(log_events, width(), in_color(form.output)), form.output)


def _write(lines: Iterator[str], output: Path | None) -> None:
    """Write each line as it comes; a file is made whole, when all have come."""
    if output is not None:
        put("".join(f"{line}\n" for line in lines), output)
        return
    for line in lines:
        write_result([line, "\n"])
