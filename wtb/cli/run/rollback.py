"""Commands that move heads and make new ones: rollback, fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, say
from wtb.cli.output import put_as
from wtb.cli.run.all_cases import At, VariantOption, read_variants
from wtb.cli.run.executions import status_lines
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.operations import context as contexts
from wtb.operations.control import continuation, forks, state_edits
from wtb.operations.control import rollback as operations
from wtb.operations.inspection import sweeps
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.core.documents.questions import RollbackDocument, ToolCallDocument
    from wtb.operations.control.forks import Forked
    from wtb.operations.control.rollback import RolledBack


To = Annotated[
    str | None,
    typer.Option("--to", metavar="CHECKPOINT|NODE", help="The target: a checkpoint, or a node's last visit."),
]
Undo = Annotated[bool, typer.Option("--undo", help="Undo the last rollback.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another value of a key, as YAML, or KEY=@FILE.")
]


def rollback(
    ref: options.Execution,
    to: To = None,
    undo: Undo = False,
    reason: options.Reason = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Roll an execution back to a checkpoint, and undo its tools.

    It is paused there. Its state and files are those of the checkpoint again; what it leaves stays in history. Its
    cells are to be done again; what forked later is superseded. With --undo the last rollback is undone instead,
    which is possible as long as nothing has run since: tools are called again.

    See also: `wtb fork` leaves the execution as it is; `wtb retry` runs failed cells again.

    Examples: wtb rollback EXECUTION --to retrieve --reason 'wrong index'  |  wtb rollback EXECUTION --undo
    """
    if (to is None) != undo:
        raise InputError("give either --to CHECKPOINT|NODE, or --undo to undo the last rollback")
    backend = open_backend(db)
    # Tools are undone by the user's code, which may print.
    with prints_to_stderr():
        if to is None:
            done = backend.call(operations.undo_rollback, ref, reason=reason)
        else:
            done = backend.call(operations.rollback, ref, to, reason=reason)
    put_as(_document(done), _text(done, "is again at" if undo else "rolled back to"), form)


def fork(
    ref: options.Execution,
    at: At = None,
    set: Set = None,
    variants: VariantOption = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Keep it paused; `wtb resume` runs it.")] = False,
    reason: options.Reason = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Fork an execution at a checkpoint, with changes.

    Values, variants or code may be others. The new execution owns no cell, so no matrix changes; `wtb show` has its
    result. It runs here until it ends, or by the workers of a sweep that was submitted.

    See also: `wtb combination add` runs such changes for every case; `wtb rollback` takes the execution itself back.

    Examples: wtb fork EXECUTION --at retrieve --set k=5 --variant answer=short  |  wtb fork EXECUTION --at retrieve
    --variant 'answer={name: long, of: short, words: 90}'
    """
    backend, changes = open_backend(db), state_edits.parse_changes(set or ())
    written, (forms, texts) = state_edits.as_written(set or ()), read_variants(variants or ())
    with prints_to_stderr():
        forked = backend.call(
            forks.fork,
            ref,
            at=at,
            set=changes,
            written=written,
            variants=forms,
            texts=texts,
            reason=reason,
            run=not no_run,
        )
    say(_outcome(forked, no_run))
    put_as(backend.call(sweeps.show, forked.execution), forked.execution, form)
    if no_run or forked.status in ("completed", "forked", "pending", "running"):
        return
    assert isinstance(backend, contexts.Context), "through a server nothing runs here"
    row = queries.find_execution(backend.database, forked.execution)
    for line in status_lines(backend.database, row, None):
        say(line)
    raise typer.Exit(1)


def _outcome(forked: Forked, no_run: bool) -> str:
    """Return who runs a fork, or how it ended, in words."""
    name, sweep, who = f"execution {forked.execution}", forked.sweep, forked.run_by
    if no_run:
        return f"{name} is paused; let it run with: wtb resume {forked.execution}"
    if who is continuation.RunBy.nobody:
        return f"{name} waits: sweep {sweep} is paused; continue with: wtb resume {sweep}"
    if who is continuation.RunBy.workers:
        because = f"; {forked.problem}" if forked.problem else ""
        return f"{name} is for the workers{because}; look at it with: wtb show {forked.execution}"
    if who is continuation.RunBy.another_process:
        return f"{name} is for the process that runs the sweep; see: wtb show {forked.execution}"
    why = f" ({forked.reason})" if forked.reason else ""
    return f"{name} is {forked.status}{why}; see: wtb show {forked.execution}"


def _document(done: RolledBack) -> RollbackDocument:
    return {
        "execution": done.execution,
        "head": done.head,
        "from": done.left,
        "to": done.to.id,
        "words": done.to.words,
        "next": list(done.to.next),
        "was": done.was,
        "nodes": list(done.nodes),
        "superseded": list(done.superseded),
        **done.calls,
    }


def _text(done: RolledBack, what: str) -> str:
    calls = done.calls
    lines = [f"execution {done.execution} {what} {done.to.words}, and is paused"]
    if done.nodes:
        lines.append(f"  rolled back  {_listed(done.nodes)}")
    if done.superseded:
        lines.append(f"  superseded   {_listed(done.superseded)}")
    labels = (("undone", calls["undone"]), ("made again", calls["redone"]), ("no reverse", calls["irreversible"]))
    lines += [f"  {label:<12} {_call_names(label_calls)}" for label, label_calls in labels if label_calls]
    if calls["shared"]:
        lines.append(f"  not undone   {_call_names(calls['shared'])}: other executions stand on it, too")
    if twice := [call for call in calls["undone"] if call.get("again")]:
        names = _call_names(twice)
        lines.append(f"  maybe twice  {names}: an earlier rollback was interrupted while it was being undone")
    lines += [f"  failed       {call['tool']}: {printable(call['error'])}" for call in calls["failed"]]
    following = ", ".join(done.to.next) or "its end"
    lines.append(f"  next         {following}; continue with: wtb resume {done.execution}")
    return "\n".join(lines)


def _call_names(calls: Sequence[ToolCallDocument]) -> str:
    """Return tools by name with how often they were called, for people."""
    counts: dict[str, int] = {}
    for call in calls:
        counts[call["tool"]] = counts.get(call["tool"], 0) + 1
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
