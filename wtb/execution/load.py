"""From rows to executions that can be run: the cases, states and earlier node runs of what was claimed."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.failures import BEGUN, Failure
from wtb.core.questions import Answer, Dialogue, Question
from wtb.core.questions import place as place_of
from wtb.core.serialization.plain_json import readable
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import ExecutionHistory
from wtb.execution.execution import Case, Execution, Loaded
from wtb.store.control.questions import at_checkpoints
from wtb.store.database import Database
from wtb.store.read.queries import attempt_rows, case_rows, line, load_values, node_runs_from
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import NodeRunRow


def load_executions(database: Database, sweep_id: str, claimed: Sequence[ExecutionRow]) -> list[Execution]:
    """The executions behind claimed rows, in their order. Raises StoreError for damaged values."""
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
        asked=row.asked,
        passed=row.passed_id,
        suspect=row.losses > 0,
    )
    if row.head_id is None:
        return execution
    history = ExecutionHistory(line(database, row.head_id))
    head = history.latest
    assert head is not None, "an execution's head is a checkpoint"
    earlier = node_runs_from(database, head.id)
    wanted = [*head.state.values(), *(key for run in earlier for key in (run.writes or {}).values())]
    saved = head.inside.saved if head.inside is not None else {}
    wanted += saved.values()
    stored = load_values(database, wanted)
    execution.head, execution.path = head, history.path
    execution.state = {name: stored[key] for name, key in head.state.items()}
    execution.loaded = Loaded(
        {(run.task, run.variant): run for run in earlier},
        stored,
        {name: stored[key] for name, key in saved.items()},
        next((tuple(w.node for w in one.writers) for one in history.checkpoints[::-1] if one.writers), ()),
        _dialogue(database, row, history.checkpoints, earlier),
    )
    return execution


def _dialogue(
    database: Database, row: ExecutionRow, line: Sequence[Checkpoint], earlier: Sequence[NodeRunRow]
) -> Dialogue:
    """Questions and answers at the head of an execution, and at its parent if an answer created the head.

    A rejection counts for executions that existed then: a retry is asked again.
    """
    checkpoint_ids = [one.id for one in line[::-1]]
    manual = next((place for place, one in enumerate(line[::-1]) if one.writers or one.trigger != "manual"), len(line))
    rows = at_checkpoints(database, checkpoint_ids[: manual + 1])
    if not rows:
        return Dialogue()
    by_checkpoint: dict[str, list[QuestionRow]] = {}
    for one in rows:
        by_checkpoint.setdefault(one.checkpoint_id, []).append(one)
    answers: dict[str, Answer] = {}
    again: dict[str, tuple[int, str, str | None]] = {}
    for place, checkpoint in enumerate(checkpoint_ids):
        here = by_checkpoint.get(checkpoint, [])
        below = checkpoint_ids[place - 1] if place else None
        if below is not None and not any(below in _heads(asked) for asked in here):
            break
        for asked in here:
            answer = _answer(asked)
            if answer is None or (answer.action == "reject" and (asked.answered_at or 0.0) < row.created_at):
                continue
            answers.setdefault(asked.key, answer)
            if below is not None and below in _heads(asked):
                answers.setdefault(place_of(asked.kind, asked.node, asked.number), answer)
                if asked.kind == "error" and asked.context is not None:
                    error = str(readable(asked.context.encode())["error"])
                    again.setdefault(asked.node, (asked.number, error, answer.feedback))
    here = by_checkpoint.get(checkpoint_ids[0], [])
    return Dialogue(
        answers,
        {row.key: _question(row) for row in here if row.status == "open"},
        {row.key: _question(row) for row in here},
        _failed_attempts(database, earlier),
        again,
    )


def _failed_attempts(
    database: Database, earlier: Sequence[NodeRunRow]
) -> dict[tuple[str, str], list[tuple[int, Failure]]]:
    """The attempts that failed of node runs without a result, by node and variant, with their numbers."""
    unfinished = {run.id: (run.task, run.variant) for run in earlier if run.status in ("running", "failed")}
    failed: dict[tuple[str, str], list[tuple[int, Failure]]] = {}
    for attempt in attempt_rows(database, list(unfinished)):
        if attempt.failure is not None and attempt.failure["kind"] != BEGUN:  # one that was lost reported nothing
            failed.setdefault(unfinished[attempt.node_run_id], []).append((attempt.number, Failure(**attempt.failure)))
    return failed


def _answer(asked: QuestionRow) -> Answer | None:
    given = asked.answer
    if given is None:
        return None
    return Answer(given["action"], given["choice"], given["feedback"], asked.answered_by, given.get("value"))


def _question(asked: QuestionRow) -> Question:
    return Question(
        asked.kind,
        asked.node,
        asked.question,
        asked.number,
        tuple(asked.options or ()),
        None if asked.context is None else asked.context.encode(),
        None if asked.expires_at is None else asked.expires_at - asked.asked_at,
        None if asked.default is None else asked.default["choice"],
        asked.key,
    )


def _heads(asked: QuestionRow) -> Sequence[str]:
    """The checkpoints that the answer to a question made."""
    return () if asked.answer is None else asked.answer["heads"]
