"""Answering questions: what was typed is held against what was asked, then it is noted once, for all who wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wtb.core.errors import ConflictError, InputError, StateError, did_you_mean
from wtb.core.questions import ACTIONS
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import iso, readable, storable
from wtb.core.tree.checkpoints import shown
from wtb.display.views.sweeps import find
from wtb.operations.control.state_edits import check_reach, checked_changes, read_changes
from wtb.store.control import approvals, questions
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep, line, load_values

if TYPE_CHECKING:
    from wtb.planning.binding import Bound

Row = Mapping[str, Any]
FEEDBACK = 100_000  # characters
VALUE = 1_000_000  # bytes of JSON
MOST_NAMED = 5  # of questions that an answer does not fit


def answer(
    database: Database,
    approval_id: str,
    action: str,
    *,
    choice: str | None = None,
    feedback: str | None = None,
    value: Any = ...,
    set: Mapping[str, Any] | Sequence[str] = (),
    bound: Bound | None = None,
    by: str,
) -> dict[str, Any]:
    """Answer a question, for all executions that wait for it; they are pending then.

    Args:
        database: The database that it is in.
        approval_id: Its id or the beginning of it; or an execution or a sweep that waits for this answer only.
        action: `approve`, `reject` or `modify`; or one of its options, which is then the choice.
        choice: One of its options.
        feedback: Text for the node.
        value: What the node that asked is given: anything that can be stored in the state; `...` for nothing.
        set: With `modify`: values by key of the state, or `key=value` texts.
        bound: The sweep's code, which checks values; imported if None.
        by: Who answers.

    Returns:
        approval, sweep, action, choice, feedback, value, set, by, executions (their ids), queued and single.

    Raises:
        InputError: If the answer does not fit the question.
        ConflictError: If somebody else was first.
    """
    approvals.expire(database)
    row = find_question(database, approval_id)
    action, choice = _taken(row, action, choice)
    if row["status"] == "open":  # else the transaction says who was first
        _check(row, action, choice, feedback, bool(set))
        if value is not ...:
            _check_valued(row, action)
    encoded = None if value is ... else _encoded(value)
    changes = {}
    if set:
        bound = bound or _bound(database, row["sweep_id"])
        changes = checked_changes(bound, set) if isinstance(set, Mapping) else read_changes(bound, set)
        check_reach(database, bound, row["checkpoint_id"], changes)
    stored_feedback = None if feedback is None else storable(feedback, FEEDBACK)
    recorded = approvals.give(
        database,
        row["id"],
        action=action,
        choice=choice,
        feedback=stored_feedback,
        value=encoded,
        changes=changes,
        by=storable(by, 200),
    )
    return {
        "approval": row["id"],
        "sweep": row["sweep_id"],
        "action": action,
        "choice": choice,
        "feedback": stored_feedback,
        "value": _shown(encoded),
        "set": sorted(changes),
        "by": recorded.row["answered_by"],
        "executions": list(recorded.woken),
        "queued": bool(row["queued"]),
        "single": row["sweep_kind"] == "single",
    }


def answer_all(
    database: Database,
    rows: Sequence[Row],
    action: str,
    *,
    choice: str | None = None,
    feedback: str | None = None,
    value: Any = ...,
    by: str,
) -> dict[str, Any]:
    """Answer several open questions alike.

    Args:
        database: The database that they are in.
        rows: Their rows, of `alike`.
        action: As of `answer`, as are the other arguments.
        choice: One of the options.
        feedback: Text for the nodes.
        value: What the nodes are given; `...` for nothing.
        by: Who answers.

    Returns:
        answers (each as of `answer`), and conflicts (approval, because): those that somebody else answered meanwhile.

    Raises:
        InputError: If the answer does not fit one of them; then none is answered.
    """
    problems: list[str] = []
    for row in rows:
        taken, chosen = _taken(row, action, choice)
        try:
            _check(row, taken, chosen, feedback, changes=False)
            if value is not ...:
                _check_valued(row, taken)
        except InputError as error:
            problems += error.problems
    if problems:
        more = [f"and {len(problems) - MOST_NAMED:,} more like that"] if len(problems) > MOST_NAMED else []
        raise InputError("nothing was answered", *problems[:MOST_NAMED], *more)
    answers, conflicts = [], []
    for row in rows:
        try:
            answers.append(answer(database, row["id"], action, choice=choice, feedback=feedback, value=value, by=by))
        except ConflictError as error:
            conflicts.append({"approval": row["id"], "because": str(error)})
    return {"answers": answers, "conflicts": conflicts}


def _taken(row: Row, action: str, choice: str | None) -> tuple[str, str | None]:
    """The action and the choice that were typed: an option by itself approves."""
    if action not in ACTIONS and choice is None and action in (row["options"] or ()):
        return "approve", action
    return action, choice


def group_document(row: Row) -> dict[str, Any]:
    """Return questions that ask the same, as a document; the row is one of `question_groups`."""
    return {
        "id": row["id"],
        "questions": row["questions"],
        "executions": int(row["executions"]),
        "kind": row["kind"],
        "question": row["question"],
        "options": row["options"],
        "node": row["node"],
        "sweep": {"id": row["sweep_id"], "name": row["sweep"], "kind": row["sweep_kind"]},
        "workflow": row["workflow"],
        "case": row["case"],
        "cases": row["cases"],
        "asked_at": iso(row["asked_at"]),
        "expires_at": iso(row["expires_at"]),
    }


def find_question(database: Database, ref: str) -> dict[str, Any]:
    """Return a question by its id, or the only open one of an execution or a sweep. Raises InputError."""
    try:
        return questions.find_approval(database, ref)
    except InputError as error:
        try:
            kind, found = find(database, ref)
        except InputError:
            raise error from None
    which = {f"{kind}_id": found["id"]}
    rows = questions.approval_rows(database, **which)
    if len(rows) == 1:
        return rows[0]
    over = [] if rows else questions.approval_rows(database, **which, closed=True)
    if over and over[-1]["status"] == "expired":  # `give` says when, and what came of it
        return over[-1]
    asked = ", ".join(row["id"] for row in rows[:10]) + (", ..." if len(rows) > 10 else "")
    waits = f"waits for {len(rows):,} answers ({asked}): name one of the questions" if rows else "waits for no answer"
    raise InputError(f"{kind} {found['id']} {waits}; `wtb approvals` lists what is asked")


def _bound(database: Database, sweep_id: str) -> Bound:
    from wtb.planning.binding import bind
    from wtb.planning.prepare import stored_spec

    return bind(stored_spec(find_sweep(database, sweep_id)))


def _check(row: Row, action: str, choice: str | None, feedback: str | None, changes: bool) -> None:
    """Raises InputError where an answer does not fit the question."""
    options = row["options"] or []
    if action in options and choice is not None:
        raise InputError(
            f"question {row['id']} is answered with the option {action!r} and with --choose {choice}; "
            f"expected one of them"
        )
    if action not in ACTIONS:
        known = (*options, *ACTIONS)
        raise InputError(
            f"question {row['id']} cannot be answered with {action!r}{did_you_mean(action, known)}; expected one of: "
            + ", ".join(known)
        )
    if choice is not None and action == "reject":
        raise InputError(f"{choice!r} cannot be chosen and rejected at once; reject with --feedback, or approve")
    if choice is not None and choice not in options:
        offered = f"it has: {', '.join(options)}" if options else "it has none: answer approve, reject or modify"
        raise InputError(f"question {row['id']} has no option {choice!r}{did_you_mean(choice, options)}; {offered}")
    if action != "reject" and options and choice is None:
        raise InputError(f"question {row['id']} asks to choose; {_chosen(action, options)}")
    if action == "approve" and row["kind"] == "action" and not options and not (feedback or "").strip():
        raise InputError(f"question {row['id']} asks for a response: give it with --feedback or --feedback-file")
    if changes and action != "modify":
        raise InputError(f"--set changes the state, and {action} does not; expected it with modify")
    if action == "modify" and not changes:
        raise InputError("modify changes the state; expected what to change, as --set key=value")


def _check_valued(row: Row, action: str) -> None:
    """Raise InputError if an answer cannot have a value, since nothing would read it."""
    if action == "reject":
        raise InputError(
            "a value cannot be given and the question rejected at once; reject with --feedback, or approve"
        )
    if row["kind"] == "action":
        raise InputError(f"question {row['id']} asks for a response, which is text: give it with --feedback")
    if row["kind"] != "ask":
        raise InputError(
            f"question {row['id']} is not asked by a node, so that nothing would take a value; expected --feedback, "
            f"or modify --set key=value"
        )


def _encoded(value: Any) -> str:
    """A value as typed JSON. Raises InputError."""
    try:
        data = encode(value)
    except StateError as error:
        raise InputError(f"--value: {error}") from None
    if len(data) > VALUE:
        raise InputError(
            f"the value has {len(data):,} bytes of JSON; expected at most {VALUE:,}: put more into the state, with "
            f"modify --set key=@file"
        )
    return data.decode()


def _shown(value: str | None) -> Any:
    return None if value is None else readable(value.encode())


def _chosen(action: str, options: Sequence[str]) -> str:
    offered = ", ".join(options)
    if action == "approve":
        return f"answer with one of: {offered} (or approve --choose OPTION)"
    return f"give --choose with one of: {offered}"


def document(database: Database, row: Row, *, whole: bool = False) -> dict[str, Any]:
    """Return a question as a document, without anything that would show the variants behind it.

    Args:
        database: The database that it is in.
        row: Its row.
        whole: Add the context: for a question about a step, its state.
    """
    reply = row["answer"]
    shown_question = {
        "id": row["id"],
        "status": row["status"],
        "kind": row["kind"],
        "question": row["question"],
        "options": row["options"] or [],
        "default": None if row["default"] is None else row["default"]["choice"],
        "node": row["node"],
        "sweep": {"id": row["sweep_id"], "name": row["sweep"], "kind": row["sweep_kind"]},
        "workflow": row["workflow"],
        "case": row["case"],
        "executions": row["executions"],
        "asked_at": iso(row["asked_at"]),
        "expires_at": iso(row["expires_at"]),
        "answer": None,
    }
    if reply is not None:
        shown_question["answer"] = {
            "action": reply["action"],
            "choice": reply["choice"],
            "feedback": reply["feedback"],
            "value": _shown(reply.get("value")),
            "set": sorted(reply["set"]),
            "by": row["answered_by"],
            "at": iso(row["answered_at"]),
        }
    if whole:
        shown_question["context"] = _context(database, row)
    return shown_question


def _context(database: Database, row: Row) -> Any:
    """What there is to look at, as plain JSON; None where it is not kept any more."""
    if row["context"] is not None:
        return readable(row["context"].encode())
    if row["kind"] not in ("before", "after"):
        return None
    checkpoints = line(database, row["checkpoint_id"])
    if not checkpoints:
        return None
    state = shown(checkpoints[-1].state)
    if row["kind"] == "after":
        before = checkpoints[-2].state if len(checkpoints) > 1 else {}
        state = {name: key for name, key in state.items() if before.get(name) != key}
    stored = load_values(database, state.values())
    return {name: readable(stored[key].data) for name, key in state.items()}
