"""Commands on questions to people: approvals lists them, answer answers one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import open_database, prints_to_stderr, say
from wtb.cli.control.answers import Filters, answer_all, report_who_continues
from wtb.cli.input_files import parse_json, read_json, read_text
from wtb.cli.output import present, put_as
from wtb.cli.run.executions import present_execution, run_with_events
from wtb.cli.run.sweeps import rebind, run_again
from wtb.core.errors import InputError
from wtb.core.questions import how_to_answer
from wtb.display.text import approvals as approvals_text
from wtb.display.views import sweeps
from wtb.execution.runtime import code_drift, fork_run
from wtb.operations.control import answers, pause_cancel
from wtb.store.control import approvals as store
from wtb.store.control import questions
from wtb.store.read import queries
from wtb.store.runs import leases

if TYPE_CHECKING:
    from wtb.store.database import Database

MOST = 1_000  # questions that a list shows
GIVEN = 1_000_000  # bytes of a file


def approvals(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION|SWEEP|EXECUTION]", help="A question, a sweep or an execution; else all."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Each by itself, and answered ones, too.")] = False,
    each: Annotated[bool, typer.Option("--each", help="Each by itself, also those that ask the same.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List the questions that wait for a person, or show one.

    Of one it shows what there is to look at. Those that ask the same at the same node of a sweep stand on one line.
    Which variants ask is not shown, so that the answer does not depend on it.

    See also: `wtb answer` answers them.

    Examples: wtb approvals  |  wtb approvals nightly --all  |  wtb approvals 1ng62xyrfv95
    """
    database = open_database(db)
    store.expire(database)
    if ref is not None and (found := _question(database, ref)) is not None:
        present(answers.document(database, found, whole=True), approvals_text.one, format, output)
        return
    sweep, execution = (None, None) if ref is None else _whose(database, ref)
    shown: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    if all_ or each or format is options.Format.json:
        rows = questions.approval_rows(database, sweep_id=sweep, execution_id=execution, closed=all_, limit=MOST + 1)
        shown["approvals"] = [answers.document(database, row) for row in rows[:MOST]]
    if not (all_ or each):
        groups = questions.question_groups(database, sweep_id=sweep, execution_id=execution, limit=MOST + 1)
        shown["groups"] = [answers.group_document(row) for row in groups[:MOST]]
        rows = max(rows, groups, key=len)
    if rows or format is options.Format.json:
        present(shown, approvals_text.listed if all_ or each else approvals_text.grouped, format, output)
    else:
        say("nobody is asked anything" if all_ else "nothing waits for a person")
    if len(rows) > MOST:
        say(f"there are more than {MOST:,}; name a sweep")


def _question(database: Database, ref: str) -> dict[str, Any] | None:
    """The question that is meant, unless a sweep is."""
    try:
        return questions.find_approval(database, ref)
    except InputError:
        return None


def _whose(database: Database, ref: str) -> tuple[str | None, str | None]:
    """The sweep, or the execution, whose questions are wanted."""
    try:
        kind, row = sweeps.find(database, ref)
    except InputError as error:
        raise InputError(f"there is no question {ref!r} either; `wtb approvals` lists them", *error.problems) from None
    return (row["id"], None) if kind == "sweep" else (None, row["id"])


def answer(
    question: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The question; or what waits for this answer only. Not with --all.", show_default=False
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTION",
            help="approve, reject or modify; or one of its options, which approves. With a value: approve.",
            show_default=False,
        ),
    ] = None,
    choose: Annotated[str | None, typer.Option("--choose", metavar="OPTION", help="Which of its options.")] = None,
    feedback: Annotated[
        str | None, typer.Option("--feedback", metavar="TEXT", help="Text for the node; the response to a prompt.")
    ] = None,
    feedback_file: Annotated[
        Path | None, typer.Option("--feedback-file", metavar="FILE", help="The same from a file; - is stdin.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="The answer that the node gets, as any JSON value.")
    ] = None,
    value_file: Annotated[
        Path | None, typer.Option("--value-file", metavar="FILE", help="The same from a file; - is stdin.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With modify: a key of the state; @FILE reads a file."),
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Do not go on with a single execution here.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Answer all open questions that the next options leave.")] = False,
    sweep: Annotated[str | None, typer.Option("--sweep", metavar="SWEEP", help="With --all: those of a sweep.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="With --all: those of a node.")] = None,
    same: Annotated[
        str | None,
        typer.Option("--question", metavar="ID|TEXT", help="With --all: those that ask the same, or have this text."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Answer a question that waits for a person, or many at once.

    An answer is for all cells that share the state, and they go on with it. A rejection that the node does not handle
    cancels its cells. Of two people who answer, the first wins, and the other gets an error.

    See also: `wtb approvals` lists the questions.

    Examples: wtb answer 1ng62xyrfv95 approve  |  wtb answer 1ng62xyrfv95 reject --feedback 'too long'  |  wtb answer
    1ng62xyrfv95 modify --set draft=@draft.md  |  wtb answer 1ng62xyrfv95 --value '{"decisions": [{"type": "approve"}]}'
    |  wtb answer --all --sweep nightly --node review send
    """
    if feedback is not None and feedback_file is not None:
        raise InputError("--feedback and --feedback-file: expected one of them")
    if value is not None and value_file is not None:
        raise InputError("--value and --value-file: expected one of them")
    if feedback_file is not None and feedback_file == value_file:
        raise InputError(f"--feedback-file and --value-file are both {value_file}; expected two files")
    if feedback_file is not None:
        feedback = read_text("--feedback-file", feedback_file, GIVEN).strip()
    value_given = _value(value, value_file)
    if all_:
        if action is not None or set_:
            what = "--set changes the state of one" if set_ else f"{question!r} {action!r}: an action alone is expected"
            raise InputError(f"--all: {what}; choose the questions with --question, --node and --sweep")
        action = question or (None if value_given is ... else "approve")
        answer_all(
            open_database(db),
            Filters(sweep, node, same),
            action,
            choice=choose,
            feedback=feedback,
            value=value_given,
            yes=yes,
            broker=broker,
            format=format,
            output=output,
        )
        return
    if sweep or node or same or yes:
        raise InputError("--sweep, --node, --question and --yes are for --all, which answers many questions")
    if question is None:
        raise InputError("which question is missing; `wtb approvals` lists them, and --all answers many")
    database = open_database(db)
    if action is None and value_given is ...:
        raise InputError(_how(database, question))
    with prints_to_stderr():  # --set is checked by the user's code
        found = answers.answer(
            database,
            question,
            action or "approve",
            choice=choose,
            feedback=feedback,
            value=value_given,
            set=set_ or (),
            by=pause_cancel.user(),
        )
    message = f"answered {found['approval']}: {found['choice'] or found['action']}"
    if found["executions"] and _here(database, found) and not no_run:
        say(message)
        _run(database, found, format, output)
        return
    put_as(found, message, format, output)
    if found["executions"]:
        report_who_continues(database, found, broker)


def _value(text: str | None, file: Path | None) -> Any:
    """The value of an answer; `...` where none is given. Raises InputError."""
    if text is not None:
        return parse_json("--value", text)
    return ... if file is None else read_json("--value-file", file, GIVEN)


def _how(database: Database, question: str) -> str:
    """Return the message for a missing action: how the question can be answered."""
    row = answers.find_question(database, question)
    return f"how to answer is missing; expected: {how_to_answer(row['id'], row['kind'], row['options'])}"


def _here(database: Database, found: dict[str, Any]) -> bool:
    """Return True for the answer of a single execution that no other process runs."""
    return bool(found["single"]) and not leases.runs_now(database, queries.find_sweep(database, found["sweep"]))


def _run(database: Database, found: dict[str, Any], format: options.Format, output: Path | None) -> None:
    """Continue a single execution in this process."""
    sweep, execution = queries.find_sweep(database, found["sweep"]), found["executions"][0]
    bound = rebind(sweep)
    if queries.find_execution(database, execution)["choices"] is not None:  # a person forked it
        with prints_to_stderr():
            say(fork_run.run_fork(database, execution, bound))
        present_execution(database, execution, format is options.Format.json, output)
        return
    code_drift.accept_code(database, sweep, bound, allow=False)
    ended = run_with_events(database, run_again(database, sweep, bound, {}), bound, quiet=False)
    present_execution(database, execution, format is options.Format.json, output, ended)
