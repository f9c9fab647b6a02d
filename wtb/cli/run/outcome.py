"""The end of a sweep, its matrix and the exit code, for the commands that run one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from wtb.analysis import gates
from wtb.cli import options
from wtb.cli.console import put_json, put_matrix, say
from wtb.core.stop import INTERRUPTED
from wtb.execution.runtime import budgets
from wtb.operations import context as contexts
from wtb.operations.running import local
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.core.documents.matrix import JudgedMatrixDocument
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.operations.context import Backend, Context
    from wtb.operations.running.added_rows import AddedRow
    from wtb.operations.running.extending import Extended
    from wtb.operations.running.local import Ran


def say_how_it_ended(ran: Ran) -> None:
    """Print why a sweep did not complete, and the command that continues it."""
    row, ended = ran.sweep, ran.ended
    if ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    if ended.status == "completed" and ended.reason:
        say(f"completed early ({ended.reason})")
    if ended.status == "paused":
        more, before = budgets.raising(ended.limit, row)
        say(f"paused ({ended.reason}); continue with: wtb resume {row.id}{more}")
        if before is not None:
            say(f"before that, raise the budget with: {before}")


def present(context: Context, ran: Ran, form: options.MatrixForm, *, strict: bool = False) -> None:
    """Show the matrix of a sweep, and exit with the code of its outcome."""
    from wtb.analysis import kept_matrix  # which the first node does not wait for

    document = kept_matrix.judged(context.database, ran.sweep)
    put_matrix(document, form)
    raise typer.Exit(exit_code(document, ran.ended, strict=strict))


def document_of(added: AddedRow | Extended) -> dict[str, Any]:
    """Return what was added to a sweep, without `ended`, which describes the run in this process."""
    return {key: field for key, field in asdict(added).items() if key != "ended"}


def present_added(backend: Backend, added: AddedRow | Extended, ended: Ended, form: options.Form) -> NoReturn:
    """Show what was added to a sweep and ran here, as JSON or by the matrix, and exit with the matrix's code."""
    from wtb.operations.results import matrix as results  # which the first node does not wait for

    assert isinstance(backend, contexts.Context), "through a server nothing runs here"
    say_how_it_ended(local.Ran(queries.find_sweep(backend.database, added.sweep), ended))
    matrix = backend.call(results.matrix, added.sweep)
    if form.is_json:
        put_json(document_of(added), form.output)
    else:
        put_matrix(matrix, options.MatrixForm(output=form.output))
    raise typer.Exit(exit_code(matrix, ended))


def exit_code(document: JudgedMatrixDocument, ended: Ended | None, *, strict: bool = False) -> int:
    """0 all well; 1 cells failed, a gate does not hold or the sweep is not at its end; 130 interrupted.

    Cells that a sweep skipped by its own rule are as planned.
    """
    # 130 is the exit code of a program that Ctrl-C ended.
    if ended is not None and ended.status == "paused" and ended.reason == INTERRUPTED:
        return 130
    cells = document["cells"]
    ended_well = document["sweep"]["status"] == "completed" and cells["succeeded"] + cells["skipped"] == cells["total"]
    return 0 if ended_well and gates.all_hold(document["gates"], strict=strict) else 1
