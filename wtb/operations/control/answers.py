"""Answers to questions: an answer is checked against its question, then recorded once, for everyone who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from wtb.config.run_options import redactor_of
from wtb.core.arguments import AnyText, checked
from wtb.core.errors import ConflictError, InputError, StateError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.questions import ACTIONS, Answer, GivenAction, how_to_answer, ways
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import storable
from wtb.core.texts import plural
from wtb.core.values import State
from wtb.display.views.questions import readable_value
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.continuation import (
    Continuation,
    RunBy,
    check_runs_here,
    continue_sweeps,
    run_here,
    start_locally,
)
from wtb.operations.control.questions import find_question
from wtb.operations.control.state_edits import check_reach, checked_changes
from wtb.operations.payers import check_payer
from wtb.operations.running.local import RunHere
from wtb.operations.running.preparing import bind_stored
from wtb.planning.binding import Bound
from wtb.planning.prepare import stored_spec
from wtb.store.control import approvals
from wtb.store.read.queries import find_sweep
from wtb.store.records import ListedQuestion, SameQuestion

FEEDBACK = 100_000  # characters
VALUE = 1_000_000  # bytes of JSON

MOST_NAMED = 5  # of questions that an answer does not fit


@frozen
class Answered:
    """An answer that was accepted.

    Attributes:
        approval: The id of the question.
        sweep: The id of its sweep.
        action: `approve`, `reject` or `modify`.
        choice: The option that was chosen.
        feedback: Text for the node, as it is stored.
        value: What the node is given, as plain JSON.
        set: The keys of the state that were changed.
        by: Who answered.
        executions: Ids of the executions that waited for it alone, which are pending now.
        queued: Whether workers run the sweep.
        single: Whether it is a single execution, and no sweep.
        continuation: Who continues with the executions; None if there are none.
    """

    approval: str
    sweep: str
    action: GivenAction
    choice: str | None
    feedback: str | None
    value: Any
    set: tuple[str, ...]
    by: str
    executions: tuple[str, ...]
    queued: bool
    single: bool
    continuation: Continuation | None = None


@checked
@audited
def answer(
    context: Context,
    ref: str,
    action: str | None = None,
    *,
    choice: str | None = None,
    feedback: AnyText | None = None,
    value: Any = ...,
    set: State | None = None,
    written: Mapping[str, str] | None = None,
    bound: Bound | None = None,
    run: RunHere | None = None,
) -> Answered:
    """Answer a question, for all executions that wait for it; they are pending then.

    Args:
        context: Where, and who answers.
        ref: The question's id or the beginning of it; or an execution or a sweep that waits for this answer only.
        action: `approve`, `reject` or `modify`; or one of its options, which is then the choice. With a value it is
            `approve` if None.
        choice: One of its options.
        feedback: Text for the node.
        value: What the node that asked is given: anything that can be stored in the state; `...` for nothing.
        set: With `modify`: values by key of the state.
        written: Values of `set` that were typed as text; they are read as the types of their keys.
        bound: The sweep's code, which checks values; imported if None.
        run: Runs a single execution on that no other process runs. If None, the caller may (`run_here`).

    Returns:
        What was recorded, and who continues.

    Raises:
        InputError: If the answer does not fit the question, or code that would run is not there.
        ConflictError: If somebody else was first, or code that would run has changed.
    """
    # Deadlines first: a question whose default already applies must not be answered any more.
    approvals.expire(context.database)
    row = find_question(context.database, ref)
    check_payer(context, find_sweep(context.database, row.sweep_id))
    if action is None and value is ...:
        how = how_to_answer(row.id, row.kind, row.options)
        raise InputError(f"the action of the answer is missing; expected: {how}")
    reply = _Reply(action or "approve", choice, feedback, value)
    # Before the answer is recorded: afterwards an execution that cannot run would be pending forever.
    if run is not None or context.local is not None:
        check_runs_here(context, row.sweep_id, bound)
    answered = _record(context, row, reply, set or {}, written, bound)
    continuations = continue_sweeps(context, {answered.sweep: answered.executions})
    _run_on(context, continuations, bound, run)
    return replace(answered, continuation=next(iter(continuations), None))


def _run_on(context: Context, continuations: Sequence[Continuation], bound: Bound | None, run: RunHere | None) -> None:
    """Run single executions that no other process runs, if a runner is given."""
    for continuation in continuations:
        start_locally(context, continuation)
        if run is not None and continuation.run_by is RunBy.here:
            run_here(context, continuation, bound=bound, run=run)


@frozen
class _Reply:
    """A reply to a question; `value` is `...` for none."""

    action: str
    choice: str | None
    feedback: str | None
    value: Any

    def to(self, row: ListedQuestion) -> _Reply:
        """Return it as the reply to a question: an option by itself approves."""
        if self.action not in ACTIONS and self.choice is None and self.action in (row.options or ()):
            return replace(self, action="approve", choice=self.action)
        return self


def _record(
    context: Context,
    row: ListedQuestion,
    reply: _Reply,
    set: State,
    written: Mapping[str, str] | None = None,
    bound: Bound | None = None,
) -> Answered:
    database, reply = context.database, reply.to(row)
    # Without the lock of the transaction this check may be outdated; `approvals.give` decides who was first.
    if row.status == "open":  # else the transaction says who was first
        _check(row, reply, bool(set))
    encoded = None if reply.value is ... else _encoded(reply.value)
    changes = {}
    if set:
        bound = bound or bind_stored(context, stored_spec(find_sweep(database, row.sweep_id)))
        changes = checked_changes(bound, set, written)
        check_reach(database, bound, row.checkpoint_id, changes)
    redactor = redactor_of(find_sweep(database, row.sweep_id).spec.get("redact"))
    # Answers are redacted before they are stored, as state is.
    encoded = redactor.typed_text(encoded)
    feedback = None if reply.feedback is None else redactor.text(storable(reply.feedback, FEEDBACK))
    recorded = approvals.give(
        database,
        row.id,
        Answer(cast(GivenAction, reply.action), reply.choice, feedback, storable(context.by, 200), encoded),
        changes,
    )
    return Answered(
        approval=row.id,
        sweep=row.sweep_id,
        action=cast(GivenAction, reply.action),  # `_check` has seen it
        choice=reply.choice,
        feedback=feedback,
        value=readable_value(encoded),
        set=tuple(sorted(changes)),
        by=recorded.row.answered_by or context.by,
        executions=tuple(recorded.woken),
        queued=bool(row.queued),
        single=row.sweep_kind == "single",
    )


@frozen
class Preview:
    """Open questions that are to be answered alike.

    Attributes:
        action: `approve`, `reject` or `modify`, or one of their options.
        rows: The questions, of `store.control.questions.alike`.
    """

    action: str
    rows: Sequence[SameQuestion]

    @property
    def ids(self) -> list[str]:
        """The ids of the questions."""
        return [row.id for row in self.rows]

    @property
    def texts(self) -> list[str]:
        """The texts of the questions, each once."""
        return list(dict.fromkeys(row.question for row in self.rows))


@frozen
class Conflict:
    """A question that somebody else answered meanwhile.

    Attributes:
        approval: Its id.
        because: Who was quicker.
    """

    approval: str
    because: str


@frozen
class AnsweredMany:
    """Several questions that were answered alike.

    Attributes:
        answers: Those that were accepted.
        conflicts: Those that came too late.
        continuations: Who continues with the executions that waited, by sweep.
    """

    answers: tuple[Answered, ...]
    conflicts: tuple[Conflict, ...]
    continuations: tuple[Continuation, ...]


@checked
def preview_answers(
    context: Context,
    action: str | None,
    *,
    sweep: str | None = None,
    node: str | None = None,
    question: str | None = None,
) -> Preview:
    """Find the open questions that `answer_all` is to answer, for who has to confirm it.

    Args:
        context: Where.
        action: `approve`, `reject` or `modify`, or one of their options.
        sweep: Only those of a sweep: its id, the beginning of it, or its name.
        node: Only those of a node.
        question: Only those that ask the same as this one, by its id; or that have this text in them.

    Returns:
        The action and the questions.

    Raises:
        InputError: If no question is left, or the action is missing.
    """
    database = context.database
    approvals.expire(database)
    sweep_id = None if sweep is None else find_sweep(database, sweep).id
    same, text = None, question
    if question is not None:
        try:
            same, text = approvals.find_approval(database, question), None
        except InputError:  # no id, but what is asked
            same = None
    rows = approvals.alike(database, sweep_id=sweep_id, node=node, question=same, text=text)
    if not rows:
        raise InputError("no question is open; `wtb approvals` lists questions")
    if action is None:
        raise InputError(
            f"the action of the answer to {plural(len(rows), 'question')} is missing; expected: {_common_ways(rows)}"
        )
    return Preview(action, rows)


def _common_ways(rows: Sequence[SameQuestion]) -> str:
    """Return the ways in which all of the questions can be answered."""
    common = [set(ways(row.kind, row.options)) - {"modify"} for row in rows]
    every = [candidate for candidate in ways(rows[0].kind, rows[0].options) if all(candidate in way for way in common)]
    return "|".join(every) or "a narrower choice of questions, since they have no answer in common"


@checked
@audited
def answer_all(
    context: Context,
    action: str,
    questions: Sequence[str],
    *,
    choice: str | None = None,
    feedback: AnyText | None = None,
    value: Any = ...,
    run: RunHere | None = None,
) -> AnsweredMany:
    """Give several open questions the same answer.

    Args:
        context: Where they are, and who answers.
        action: `approve`, `reject` or `modify`, or one of their options.
        questions: Their ids, such as those that `preview_answers` returns.
        choice: One of the options.
        feedback: Text for the nodes.
        value: What the nodes are given; `...` for nothing.
        run: Runs single executions on that no other process runs. If None, the caller may (`run_here`).

    Returns:
        What was recorded, and who continues.

    Raises:
        InputError: If the answer does not fit one of them, or code that would run is not there; none is answered then.
        ConflictError: If code that would run has changed; none is answered then.
    """
    reply = _Reply(action, choice, feedback, value)
    rows = [find_question(context.database, id) for id in dict.fromkeys(questions)]
    # All questions are checked before the first one is answered, so a wrong answer changes nothing.
    _check_all([row for row in rows if row.status == "open"], reply)
    for sweep_id in dict.fromkeys(row.sweep_id for row in rows):
        check_payer(context, find_sweep(context.database, sweep_id))
    runs_here = run is not None or context.local is not None
    for sweep_id in dict.fromkeys(row.sweep_id for row in rows if runs_here):
        check_runs_here(context, sweep_id, None)
    answers, conflicts = [], []
    for row in rows:
        try:
            answers.append(_record(context, row, reply, {}))
        # Another person may be faster for some of the questions; the others are still answered.
        except ConflictError as error:
            conflicts.append(Conflict(row.id, str(error)))
    woken: dict[str, list[str]] = {}
    for answered in answers:
        woken.setdefault(answered.sweep, []).extend(answered.executions)
    continuations = continue_sweeps(context, woken)
    _run_on(context, continuations, None, run)
    return AnsweredMany(tuple(answers), tuple(conflicts), continuations)


def _check_all(rows: Sequence[ListedQuestion], reply: _Reply) -> None:
    problems: list[str] = []
    for row in rows:
        try:
            _check(row, reply.to(row))
        except InputError as error:
            problems += error.problems
    if problems:
        more = [f"and {len(problems) - MOST_NAMED:,} more like that"] if len(problems) > MOST_NAMED else []
        raise InputError("nothing was answered", *problems[:MOST_NAMED], *more)


def _check(row: ListedQuestion, reply: _Reply, changes: bool = False) -> None:
    """Raise InputError if an answer does not fit the question."""
    action, choice, options = reply.action, reply.choice, row.options or []
    if action in options and choice is not None:
        raise InputError(
            f"question {row.id} is answered with the option {action!r} and with the choice {choice!r}; "
            f"expected one of them"
        )
    if action not in ACTIONS:
        allowed = (*options, *ACTIONS)
        raise InputError(
            f"question {row.id} cannot be answered with {action!r}{did_you_mean(action, allowed)}; expected one of: "
            + ", ".join(allowed)
        )
    if choice is not None and action == "reject":
        raise InputError(f"the question is rejected, and {choice!r} is chosen; reject with feedback, or approve")
    if choice is not None and choice not in options:
        offered = f"it has: {', '.join(options)}" if options else "it has none: answer approve, reject or modify"
        raise InputError(f"question {row.id} has no option {choice!r}{did_you_mean(choice, options)}; {offered}")
    if action != "reject" and options and choice is None:
        raise InputError(f"question {row.id} asks to choose; {_describe_choice(action, options)}")
    if action == "approve" and row.kind == "action" and not options and not (reply.feedback or "").strip():
        raise InputError(f"question {row.id} asks for a response: give it as feedback")
    if changes and action != "modify":
        raise InputError(f"values for the state are given, and {action} does not change it; expected them with modify")
    if action == "modify" and not changes:
        raise InputError("modify changes the state; expected what to change: values by key")
    if reply.value is not ...:
        _check_valued(row, action)


def _check_valued(row: ListedQuestion, action: str) -> None:
    """Raise InputError if an answer cannot have a value because nothing would read it."""
    if action == "reject":
        raise InputError(
            "the question is rejected, and a value is given; reject with feedback, or approve with the value"
        )
    if row.kind == "action":
        raise InputError(f"question {row.id} asks for a response, which is text: give it as feedback")
    if row.kind != "ask":
        raise InputError(
            f"question {row.id} is not asked by a node, so that nothing would take a value; expected feedback, or "
            f"modify with values by key"
        )


def _encoded(value: Any) -> str:
    """Return a value as typed JSON. Raises InputError."""
    try:
        encoded = encode(value)
    except StateError as error:
        raise InputError(f"the value cannot be stored: {error}") from None
    if len(encoded) > VALUE:
        raise InputError(
            f"the value has {len(encoded):,} bytes of JSON; expected at most {VALUE:,}: put more into the state, with "
            f"modify"
        )
    return encoded.decode()


def _describe_choice(action: str, options: Sequence[str]) -> str:
    offered = ", ".join(options)
    if action == "approve":
        return f"answer with one of: {offered} (or approve with a choice)"
    return f"expected a choice with {action}, one of: {offered}"
