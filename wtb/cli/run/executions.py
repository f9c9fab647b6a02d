"""The status of an execution at the end of a command that ran it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from wtb.analysis import failure_causes
from wtb.cli.console import put_json, say
from wtb.core.failures import Failure
from wtb.core.questions import how_to_answer
from wtb.core.stop import INTERRUPTED
from wtb.core.texts import printable
from wtb.display.views import executions
from wtb.execution.runtime import budgets
from wtb.store.control import executions as store
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.cli import options
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.store.database import Database
    from wtb.store.tables.executions import ExecutionRow


def present_execution(database: Database, execution_id: str, form: options.Form, ended: Ended | None = None) -> None:
    """Print the status of an execution, write its state or document, and exit with the code of its outcome."""
    row = queries.find_execution(database, execution_id)
    document = executions.execution_document(database, row)
    # Only an execution that a person forked has choices of its own.
    if ended is not None and row.choices is not None:
        why = f" ({ended.reason})" if ended.reason else ""
        say(f"execution {execution_id} is {ended.status}{why}; see: wtb show {execution_id}")
    if ended is not None and ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    for line in status_lines(database, row, ended):
        say(line)
    put_json(document if form.is_json else document["state"], form.output)
    if ended is not None and ended.reason == INTERRUPTED:
        raise typer.Exit(130)
    # A forked execution has gone well if all that it was forked into have.
    well = all(execution.status in ("completed", "forked") for execution in store.line_of(database, execution_id))
    raise typer.Exit(0 if well else 1)


def status_lines(database: Database, row: ExecutionRow, ended: Ended | None) -> list[str]:
    """Return the status of an execution and the commands that are possible, as lines."""
    name, status, reason = row.id, row.status, printable(row.reason or "")
    if status == "paused":
        return [f"paused: {reason}", f"continue with: wtb resume {name}"]
    if status == "waiting":
        rows = store.questions_of(database, row.id)
        question_texts = [f"{question.id}: {printable(question.question)}" for question in rows]
        answers = [how_to_answer(question.id, question.kind, question.options) for question in rows]
        return [
            f"waits for a person: {'; '.join(question_texts)}",
            *(f"answer with: {printable(command)}" for command in answers),
        ]
    if status == "failed":
        helped = failure_causes.execution_may_be_helped(database, row)
        how = "try again with" if helped else "trying again gives the same; once its cause is corrected"
        return [f"failed: {printable(str(Failure(**row.failure)) if row.failure else '')}", f"{how}: wtb retry {name}"]
    if status == "forked":
        return [f"forked by variants; its cells went on in others: wtb show {row.id}"]
    if status in ("pending", "running"):
        why = ended.reason if ended is not None and ended.reason else reason
        more, before = budgets.raising(
            None if ended is None else ended.limit, queries.find_sweep(database, row.sweep_id)
        )
        first = [] if before is None else [f"before that, raise the budget with: {before}"]
        return [f"{status}{f' ({why})' if why else ''}; continue with: wtb resume {name}{more}", *first]
    return [f"cancelled: {reason}"] if status == "cancelled" else []
