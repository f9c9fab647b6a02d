"""Commands on questions to people: approvals lists them, answer answers one, answer-all many."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from wtb.cli import options
from wtb.cli.console import confirm, open_backend, prints_to_stderr, say
from wtb.cli.input_files import parse_json, read_json, read_text
from wtb.cli.output import present, put_as
from wtb.cli.run.event_printer import show_events
from wtb.cli.run.executions import present_execution
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.texts import plural, printable
from wtb.display.text import approvals as approvals_text
from wtb.operations import context as contexts
from wtb.operations.control import answers, continuation, questions, state_edits
from wtb.operations.running import local

if TYPE_CHECKING:
    from wtb.core.documents.questions import AnswerDocument, AnswersDocument, QuestionsDocument
    from wtb.operations.context import Backend, Context
    from wtb.operations.control.answers import Answered, Preview
    from wtb.operations.control.continuation import Continuation

MAX_FILE_BYTES = 1_000_000  # bytes of a file


def approvals(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION|SWEEP|EXECUTION]", help="A question, a sweep or an execution; else all."),
    ] = None,
    closed: Annotated[bool, typer.Option("--all", help="List each question, including answered ones.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number.")] = 1_000,
    each: Annotated[bool, typer.Option("--each", help="List each question, including identical ones.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List the questions that wait for an answer, or show one.

    Of one it shows what there is to look at. Those that ask the same at the same node of a sweep stand on one line.
    Which variants ask is not shown, so that the answer does not depend on it.

    See also: `wtb answer` answers one, `wtb answer-all` many.

    Examples: wtb approvals  |  wtb approvals nightly --all  |  wtb approvals 1ng62xyrfv95
    """
    matches = open_backend(db).call(questions.find_questions, ref, closed=closed, limit=limit)
    if matches.question is not None:
        present(matches.question, approvals_text.question_details, form)
        return
    grouped = not (closed or each)
    as_document = form.is_json
    document: QuestionsDocument = {}
    if as_document or not grouped:
        document |= {"approvals": list(matches.each), "more": matches.more}
    if grouped:
        document |= {"groups": list(matches.groups), "more_groups": matches.more_groups}
    if matches.each or as_document:
        present(document, approvals_text.grouped if grouped else approvals_text.listed, form)
    else:
        say("nobody is asked anything" if closed else "nothing waits for a person")
    if matches.more_groups if grouped and not as_document else matches.more:
        say(f"there are more than {limit:,}; name a sweep, or give --limit")


@frozen
class _Reply:
    """The answer of a person: an option, text and a value."""

    choice: Annotated[str | None, typer.Option("--choose", metavar="OPTION", help="The chosen option.")] = None
    feedback: Annotated[
        str | None, typer.Option("--feedback", metavar="TEXT", help="Text for the node; the response to a prompt.")
    ] = None
    feedback_file: Annotated[
        Path | None, typer.Option("--feedback-file", metavar="FILE", help="Read it from a file; - is stdin.")
    ] = None
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="The answer that the node gets, as any JSON value.")
    ] = None
    value_file: Annotated[
        Path | None, typer.Option("--value-file", metavar="FILE", help="Read it from a file; - is stdin.")
    ] = None

    def read(self) -> dict[str, Any]:
        """Return the choice, the feedback and the value, which is `...` if none is given. Raises InputError."""
        # Both may be `-`, and stdin can be read only once.
        if self.feedback_file is not None and self.feedback_file == self.value_file:
            raise InputError(f"--feedback-file and --value-file are both {self.value_file}; expected two files")
        return {"choice": self.choice, "feedback": self._read_feedback(), "value": self._read_value()}

    def _read_feedback(self) -> str | None:
        if self.feedback is not None and self.feedback_file is not None:
            raise InputError("--feedback and --feedback-file: expected one of them")
        file = self.feedback_file
        return self.feedback if file is None else read_text("--feedback-file", file, MAX_FILE_BYTES).strip()

    def _read_value(self) -> Any:
        if self.value is not None and self.value_file is not None:
            raise InputError("--value and --value-file: expected one of them")
        if self.value is not None:
            return parse_json("--value", self.value)
        return ... if self.value_file is None else read_json("--value-file", self.value_file, MAX_FILE_BYTES)


_NO_REPLY = _Reply()


def answer(
    ref: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A question, or an execution with only one open question.", show_default=False
        ),
    ],
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTION",
            help="approve, reject, modify, or an option, which approves \\[with a value: approve].",
            show_default=False,
        ),
    ] = None,
    reply: _Reply = _NO_REPLY,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With modify: a key of the state; @FILE reads a file."),
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Do not run the execution now.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    form: options.Form = options.TABLE,
) -> None:
    """Answer a question that waits for a person.

    An answer is for all cells that share the state, and they continue with it. A rejection that the node does not
    handle cancels its cells. Of two people who answer, the first wins, and the other gets an error.

    See also: `wtb approvals` lists the questions; `wtb answer-all` answers many alike.

    Examples: wtb answer 1ng62xyrfv95 approve  |  wtb answer 1ng62xyrfv95 reject --feedback 'too long'  |  wtb answer
    1ng62xyrfv95 modify --set draft=@draft.md  |  wtb answer 1ng62xyrfv95 --value '{"decisions": [{"type": "approve"}]}'
    """
    fields = reply.read()
    backend, changes = open_backend(db, broker), state_edits.parse_changes(set or ())
    # User code checks the values, and may print.
    with prints_to_stderr():
        answered = backend.call(
            answers.answer, ref, action, **fields, set=changes, written=state_edits.as_written(set or ())
        )
    message = f"answered {answered.approval}: {answered.choice or answered.action}"
    next_run = answered.continuation
    if next_run is not None and next_run.run_by is continuation.RunBy.here and not no_run:
        say(message)
        assert isinstance(backend, contexts.Context), "through a server nothing runs here"
        _run(backend, next_run, form)
        return
    put_as(_document(answered), message, form)
    if next_run is not None:
        _say_who_continues(next_run)


def answer_all(
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTION",
            help="approve, reject, or an option, which approves \\[with a value: approve].",
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[str | None, typer.Option("--sweep", metavar="SWEEP", help="Those of a sweep.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Those of a node.")] = None,
    question: Annotated[
        str | None, typer.Option("--question", metavar="ID|TEXT", help="Those that ask the same, or have this text.")
    ] = None,
    reply: _Reply = _NO_REPLY,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    form: options.Form = options.TABLE,
) -> None:
    """Give several open questions the same answer.

    They are all that are open, or those that --sweep, --node and --question leave. It shows them and asks before it
    answers.

    See also: `wtb approvals` lists the questions; `wtb answer` answers one.

    Example: wtb answer-all send --sweep nightly --node review
    """
    fields = reply.read()
    action = action or (None if fields["value"] is ... else "approve")
    backend = open_backend(db, broker)
    preview = backend.call(answers.preview_answers, action, sweep=sweep, node=node, question=question)
    _answer_all(backend, preview, fields, yes, form)


def _confirmed(preview: Preview, choice: str | None) -> bool:
    """Show what is asked, and have the person confirm the answer."""
    texts = preview.texts
    for text in texts[:10]:
        say(printable(text))
    if len(texts) > 10:
        say(f"... and {len(texts) - 10:,} other texts")
    return confirm(f"Answer {plural(len(preview.rows), 'question')} with {choice or preview.action}?")


def _answer_all(
    backend: Backend, preview: Preview, fields: dict[str, Any], confirmed: bool, form: options.Form
) -> None:
    """Answer all questions of a preview; exit with 1 if nobody confirms it, or somebody else was quicker with some."""
    choice = fields["choice"]
    if not confirmed and not _confirmed(preview, choice):
        say("nothing was answered")
        raise typer.Exit(1)
    # The ids of the preview, so that questions which were asked since are not answered unseen.
    done = backend.call(answers.answer_all, preview.action, preview.ids, **fields)
    document: AnswersDocument = {
        "answers": [_document(answered) for answered in done.answers],
        "conflicts": [{"approval": conflict.approval, "because": conflict.because} for conflict in done.conflicts],
    }
    put_as(document, f"answered {plural(len(done.answers), 'question')}: {choice or preview.action}", form)
    for conflict in done.conflicts:
        say(conflict.because)
    for next_run in done.continuations:
        _say_who_continues(next_run)
    if done.conflicts:
        raise typer.Exit(1)


def _document(answered: Answered) -> AnswerDocument:
    """Return an answer without who continues, which is printed as text."""
    fields = {name: field for name, field in vars(answered).items() if name != "continuation"}
    return cast("AnswerDocument", fields)


def _say_who_continues(next_run: Continuation) -> None:
    count = plural(len(next_run.executions), "execution")
    if next_run.run_by is continuation.RunBy.workers:
        say(f"{count} for the workers{'; ' + next_run.problem if next_run.problem else ''}")
    elif next_run.run_by is continuation.RunBy.another_process:
        say(f"{count} can continue in the process that runs the sweep")
    else:
        say(f"{count} can continue with: wtb resume {next_run.sweep}")


def _run(context: Context, next_run: Continuation, form: options.Form) -> None:
    """Continue a single execution in this process."""
    database = context.database
    # Progress and output of nodes go to stderr, because stdout has the result.
    with prints_to_stderr(), show_events(database, next_run.sweep, quiet=False) as show:
        ended = continuation.run_here(context, next_run, run=partial(local.follow, progress=show))
    present_execution(database, next_run.executions[0], form, ended)
