"""From rows to executions that can be run: the cases, states and earlier node runs of what was claimed."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.failures import RUNNING, Failure
from wtb.core.questions import Answer, Dialogue, Question
from wtb.core.questions import place as place_of
from wtb.core.serialization.plain_json import readable
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import ExecutionHistory
from wtb.execution.execution import Case, Execution, Loaded
from wtb.store.control.approvals import at_checkpoints
from wtb.store.database import Database
from wtb.store.read.queries import attempt_rows, case_rows, line, load_values, node_runs_from
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import NodeRunRow


def load_executions(database: Database, sweep_id: str, claimed: Sequence[ExecutionRow]) -> list[Execution]:
    """Load the executions of claimed rows, in their order. Raises StoreError for damaged values."""
    if not claimed:
        return []
    cases = load_cases(database, sweep_id, {row.case_number for row in claimed})
    return [_execution(database, row, cases[row.case_number]) for row in claimed]


def load_cases(database: Database, sweep_id: str, numbers: set[int]) -> dict[int, Case]:
    rows = case_rows(database, sweep_id, numbers)
    stored = load_values(database, (key for row in rows.values() for key in row.input.values()))
    return {
        number: Case(
            number,
            row.id,
            {name: stored[key] for name, key in row.input.items()},
            None if row.expected is None else row.expected.encode(),
            tuple(row.tags),
            row.workspace,
        )
        for number, row in rows.items()
    }


def _execution(database: Database, row: ExecutionRow, case: Case) -> Execution:
    """Build a claimed execution from its row, with its values and the node runs that already started from its head."""
    execution = Execution(
        row.id,
        row.token,
        case,
        row.repeat,
        row.combinations,
        kills=row.kills,
        queue=row.queue,
        choices=row.choices,
        edited=row.edited,
        prior_request=row.asked,
        passed=row.passed_id,
        suspect=row.losses > 0,
    )
    if row.head_id is None:
        return execution
    history = ExecutionHistory(line(database, row.head_id))
    head = history.latest
    assert head is not None, "an execution's head is a checkpoint"
    earlier = node_runs_from(database, head.id)
    keys = [*head.state.values(), *(key for run in earlier for key in (run.writes or {}).values())]
    saved = head.inside.saved if head.inside is not None else {}
    keys += saved.values()
    # One query for the state, the results of earlier node runs and the saved values.
    stored = load_values(database, keys)
    execution.head, execution.path = head, history.path
    execution.state = {name: stored[key] for name, key in head.state.items()}
    execution.loaded = Loaded(
        {(run.task, run.variant): run for run in earlier},
        stored,
        {name: stored[key] for name, key in saved.items()},
        next(
            (
                tuple(w.node for w in checkpoint.writers)
                for checkpoint in history.checkpoints[::-1]
                if checkpoint.writers
            ),
            (),
        ),
        _dialogue(database, row, history.checkpoints, earlier),
    )
    return execution


def _dialogue(
    database: Database, row: ExecutionRow, line: Sequence[Checkpoint], earlier: Sequence[NodeRunRow]
) -> Dialogue:
    """Load questions and answers at the head of an execution, and at its parent if an answer created the head.

    A rejection counts only for executions that existed then, so that a retry has the question again.
    """
    checkpoint_ids = [checkpoint.id for checkpoint in line[::-1]]
    # Answers carry over along checkpoints that people made; the last one that a step made ends the line.
    manual = next(
        (place for place, checkpoint in enumerate(line[::-1]) if checkpoint.writers or checkpoint.trigger != "manual"),
        len(line),
    )
    rows = at_checkpoints(database, checkpoint_ids[: manual + 1])
    if not rows:
        return Dialogue()
    by_checkpoint: dict[str, list[QuestionRow]] = {}
    for question_row in rows:
        by_checkpoint.setdefault(question_row.checkpoint_id, []).append(question_row)
    answers: dict[str, Answer] = {}
    retries: dict[str, tuple[int, str, str | None]] = {}
    for place, checkpoint in enumerate(checkpoint_ids):
        questions = by_checkpoint.get(checkpoint, [])
        child = checkpoint_ids[place - 1] if place else None
        if child is not None and not any(child in _heads(question) for question in questions):
            break
        for question in questions:
            answer = _answer(question)
            if answer is None or (answer.action == "reject" and (question.answered_at or 0.0) < row.created_at):
                continue
            answers.setdefault(question.key, answer)
            if child is not None and child in _heads(question):
                answers.setdefault(place_of(question.kind, question.node, question.number), answer)
                if question.kind == "error" and question.context is not None:
                    error = str(readable(question.context.encode())["error"])
                    retries.setdefault(question.node, (question.number, error, answer.feedback))
    questions = by_checkpoint.get(checkpoint_ids[0], [])
    return Dialogue(
        answers,
        {row.key: _question(row) for row in questions if row.status == "open"},
        {row.key: _question(row) for row in questions},
        _failed_attempts(database, earlier),
        retries,
    )


def _failed_attempts(
    database: Database, earlier: Sequence[NodeRunRow]
) -> dict[tuple[str, str], list[tuple[int, Failure]]]:
    """Return the failed attempts of node runs without a result, by node and variant, with their numbers."""
    unfinished = {run.id: (run.task, run.variant) for run in earlier if run.status in ("running", "failed")}
    failed: dict[tuple[str, str], list[tuple[int, Failure]]] = {}
    for attempt in attempt_rows(database, list(unfinished)):
        # RUNNING is the placeholder of an attempt that was lost with its runner, so it has nothing to tell the next
        # one.
        if attempt.failure is not None and attempt.failure["kind"] != RUNNING:
            failed.setdefault(unfinished[attempt.node_run_id], []).append((attempt.number, Failure(**attempt.failure)))
    return failed


def _answer(question: QuestionRow) -> Answer | None:
    answer = question.answer
    if answer is None:
        return None
    return Answer(answer["action"], answer["choice"], answer["feedback"], question.answered_by, answer.get("value"))


def _question(question: QuestionRow) -> Question:
    return Question(
        question.kind,
        question.node,
        question.question,
        question.number,
        tuple(question.options or ()),
        None if question.context is None else question.context.encode(),
        None if question.expires_at is None else question.expires_at - question.asked_at,
        None if question.default is None else question.default["choice"],
        question.key,
    )


def _heads(question: QuestionRow) -> Sequence[str]:
    """Return the checkpoints that the answer to a question made."""
    return () if question.answer is None else question.answer["heads"]
