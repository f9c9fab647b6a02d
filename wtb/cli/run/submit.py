"""The command `submit`: sweeps that workers run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options, pages
from wtb.cli.console import backend_elsewhere, prints_to_stderr, put, say, shared_context
from wtb.cli.results import watch
from wtb.cli.run.sweeps import only, prepare
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.display.json_text import as_json
from wtb.operations.running import local, submitting

if TYPE_CHECKING:
    from wtb.core.documents.plan import SubmittedDocument
    from wtb.operations.running.continuing import Continued


WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for its end, then show its matrix.")]
ResultFormat = Annotated[
    options.MatrixFormat, typer.Option("--format", "-f", help="Output format; without --wait table or json.")
]


@frozen
class _Form(options.MatrixForm):
    """The form of the result: the id at once, or the matrix at the end."""

    format: ResultFormat = options.MatrixFormat.table


_RESULT = _Form()


def submit(
    file: options.SweepFile,
    wait: WaitOption = False,
    priority: Annotated[
        int | None, typer.Option("--priority", help="Higher priorities run first \\[default: the file's, else 0].")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Submit even if no worker is running.")] = False,
    part: options.Part = options.WHOLE,
    breakpoints: options.Breakpoints = None,
    until: options.Until = None,
    final: options.HeldOut = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    form: _Form = _RESULT,
    quiet: options.Quiet = False,
    open_it: options.Open = False,
    published: options.Published = False,
) -> None:
    """Submit a sweep to the workers, and print its id.

    It is submitted completely or not at all, after the checks of `wtb run`. If the broker is down, it starts later.

    Through a server, and with --published, its code need not be here: it is checked against what workers publish.

    See also: `wtb watch` shows its progress; `wtb matrix`, its results.

    Examples: wtb submit sweep.yaml  |  wtb submit sweep.yaml --wait --format json -o matrix.json
    """
    check_format(form.format, wait)
    cells = only(part, final)
    if (backend := backend_elsewhere(published, db, broker, wait=wait)) is not None:
        from wtb.operations.running import published as elsewhere

        submitted = backend.call(
            elsewhere.submit_published,
            elsewhere.sweep_to_send(file),
            part=cells,
            max_cells=part.max_cells,
            session=session,
            priority=priority,
            anyway=anyway,
            breakpoints=breakpoints or (),
            until=until,
        )
        _put(submitted, form)
        _lead(submitted, db, open_it, quiet)
        return
    prepared = prepare(file, part, session, final=final)
    # Before the database is opened, so that a mistake in the options does not leave one behind.
    local.check_options(prepared, breakpoints=breakpoints or (), until=until)
    context = shared_context(db, broker)
    silent = replace(context, report=lambda _: None) if quiet else context
    with watch.interruptible() if wait else nullcontext(), prints_to_stderr():
        submitted = submitting.submit(
            silent, prepared, priority=priority, anyway=anyway, breakpoints=breakpoints or (), until=until
        )
    if wait:
        _say_when_it_starts(submitted)
        _lead(submitted, db, open_it, quiet)
        watch.wait_and_present(context, submitted.sweep, form, quiet)
    else:
        _put(submitted, form)
        _lead(submitted, db, open_it, quiet)


def _lead(submitted: submitting.Submitted, db: str | None, is_opened: bool, quiet: bool) -> None:
    """Print the address of the sweep's page, if it is known."""
    path = f"/sweeps/{submitted.sweep}"
    if is_opened:
        pages.open_page(path, db)
    elif not quiet and (url := pages.address(path, db)) is not None:
        say(f"its page is {url}")


def _say_when_it_starts(submitted: submitting.Submitted) -> None:
    if submitted.problem is not None:
        say(f"{submitted.problem}; the sweep is accepted, and starts when the broker is back")
    elif not submitted.workers:
        say("it starts when there is a worker")


def _put(submitted: submitting.Submitted, form: options.MatrixForm) -> None:
    _say_when_it_starts(submitted)
    put_submitted(submitted.sweep, submitted, form)


def check_format(format: options.MatrixFormat, wait: bool) -> None:
    if not wait and format not in (options.MatrixFormat.table, options.MatrixFormat.json):
        raise InputError(f"--format {format.value} is for a matrix, which exists only at the end; also give --wait")


def put_submitted(sweep: str, done: submitting.Submitted | Continued, form: options.MatrixForm) -> None:
    """Write the result of what returns at once: the sweep's id, or a document about it."""
    document: SubmittedDocument = {
        "sweep": sweep,
        "name": done.name,
        "cells": done.cells,
        "started": done.started,
        "workers": done.workers,
    }
    put(as_json(document) if form.format is options.MatrixFormat.json else sweep, form.output)
