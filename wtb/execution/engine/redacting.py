"""Redaction of everything that user code hands to the runner: one executor around another.

Writes of a node are redacted before anything reads them, not only before they are stored: later nodes, evaluators
and people see the same, and so does an execution that continues in another process after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wtb.authoring.boundary import CallReport, CheckpointReport, DecisionReport
from wtb.authoring.context.attempt_record import OnEvent
from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.authoring.graph import Decision
from wtb.authoring.tools import ToolReport
from wtb.core.failures import Failure
from wtb.core.questions import Answers, Question
from wtb.core.scoring.measure import Score, read_observed, write_observed
from wtb.core.scoring.scores import stored_reason
from wtb.core.serialization.redaction import Redactor, marker
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values
from wtb.execution.engine.executor import CodeExecutor, Cover, Measured, Take
from wtb.execution.engine.protocol import Joined, Result, Root, Task, Writes
from wtb.execution.engine.resource_usage import PRINTED

STREAM = marker("stream")  # a pattern would be cut by the pieces in which a text arrives


def redacted_score(score: Score, redactor: Redactor) -> Score:
    """Return a score with its error, its reason and its observation redacted."""
    if not redactor or not (score.error or score.observed or score.reason):
        return score
    observed = score.observed
    if observed is not None:
        observed = write_observed(
            *(redactor.text(part) if isinstance(part, str) else part for part in read_observed(observed))
        )
    reason = stored_reason(redactor.optional(score.reason))
    return replace(score, error=redactor.optional(score.error), observed=observed, reason=reason)


class RedactingExecutor:
    """Runs user code by another executor, and redacts everything that it returns or reports."""

    def __init__(self, code: CodeExecutor, redactor: Redactor) -> None:
        self._code = code
        self._redactor = redactor

    def prepare(self, runs: int = 1) -> None:
        self._code.prepare(runs)

    def accept_files(self, cover: Cover) -> None:
        self._code.accept_files(cover)

    def begin(self, state: Values, root: Root) -> Joined | Failure:
        return self._joined(self._code.begin(state, root))

    def run(self, task: Task) -> Result:
        return self._result(self._code.run(self._task(task)))

    def is_quick(self, node: str, variant: str) -> bool:
        return self._code.is_quick(node, variant)

    def run_together(self, tasks: Sequence[Task], take: Take) -> None:
        def redacted(number: int, outcome: Result | Exception | None) -> None:
            take(number, self._result(outcome) if isinstance(outcome, Result) else outcome)

        self._code.run_together([self._task(task) for task in tasks], redacted)

    def _task(self, task: Task) -> Task:
        # Not joined in the node process: branches and reducers must see the redacted values.
        return replace(task, join=False, answers=_answers(task), on_event=self._reporting(task.on_event))

    def _result(self, outcome: Result) -> Result:
        if outcome.writes is not None:
            outcome.writes = self._redactor.values(outcome.writes)
        if outcome.failure is not None:
            outcome.failure = self._failure(outcome.failure)
        if outcome.question is not None:
            outcome.question = self._question(outcome.question)
        outcome.stdout = self._redactor.optional(outcome.stdout)
        outcome.stderr = self._redactor.optional(outcome.stderr)
        return outcome

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
        return self._joined(self._code.join(state, position, writes, root))

    def score(self, task: EvaluationTask) -> list[Score]:
        scores = self._code.score(task)
        return [redacted_score(score, self._redactor) for score in scores]

    def running_attempts(self) -> list[tuple[str, int]]:
        return self._code.running_attempts()

    def end_attempt(self, execution: str, token: int) -> None:
        self._code.end_attempt(execution, token)

    def measure(self, size_of: Callable[[int], int]) -> list[Measured]:
        return self._code.measure(size_of)

    def end_idle(self) -> bool:
        return self._code.end_idle()

    def close(self) -> bool:
        return self._code.close()

    def _joined(self, joined: Joined | Failure) -> Joined | Failure:
        if isinstance(joined, Failure):
            return self._failure(joined)
        decisions = tuple(self._decision(decision) for decision in joined.decisions)
        position = joined.position
        if position.engine is not None:
            position = replace(position, engine=self._redactor.plain(position.engine))
        return replace(joined, changed=self._redactor.values(joined.changed), decisions=decisions, position=position)

    def _decision(self, decision: Decision) -> Decision:
        return replace(decision, key=self._redactor.optional(decision.key), why=self._redactor.text(decision.why))

    def _failure(self, failure: Failure) -> Failure:
        text = self._redactor.text
        return replace(failure, message=text(failure.message), trace=text(failure.trace))

    def _question(self, question: Question) -> Question:
        text = self._redactor.text
        return replace(
            question,
            text=text(question.text),
            options=tuple(text(option) for option in question.options),
            context=None if question.context is None else self._redactor.typed(question.context),
            default=self._redactor.optional(question.default),
            known_as=question.key,
        )

    def _reporting(self, on_event: OnEvent | None) -> OnEvent | None:
        if on_event is None:
            return None

        def report(kind: str, details: Any) -> None:
            if kind != PRINTED or not self._redactor.patterns:  # they would be cut where output ends so far
                on_event(kind, self._reported(kind, details))

        return report

    def _reported(self, kind: str, details: Any) -> Any:
        if kind == "event":
            name, at, fields = details
            return name, at, {**fields, "data": STREAM} if name == "node.stream" else self._redactor.plain(fields)
        if kind == "call":
            return self._call(details)
        if kind == "tool":
            return self._tool(details)
        if kind == "decided":
            return self._decided(details)
        return self._checkpoint(details) if kind == "checkpoint" else details

    def _call(self, call: CallReport) -> CallReport:
        typed = self._redactor.typed_text
        return {**call, "prompt": typed(call["prompt"]), "response": typed(call["response"])}

    def _tool(self, call: ToolReport) -> ToolReport:
        typed = self._redactor.typed_text
        arguments = typed(call["arguments"]) or ""
        error = self._redactor.optional(call["error"])
        return {**call, "arguments": arguments, "result": typed(call["result"]), "error": error}

    def _decided(self, decision: DecisionReport) -> DecisionReport:
        arguments = self._redactor.typed_text(decision["arguments"])
        errors = [self._redactor.text(error) for error in decision["errors"]]
        return {**decision, "on": self._redactor.text(decision["on"]), "arguments": arguments, "errors": errors}

    def _checkpoint(self, report: CheckpointReport) -> CheckpointReport:
        keys = self._redactor.keys
        saved = {
            name: f'"{marker(name)}"' if name in keys else self._redactor.typed_text(text) or ""
            for name, text in report["saved"].items()
        }
        return {**report, "name": self._redactor.optional(report["name"]), "saved": saved}


def redacting(code: CodeExecutor, redactor: Redactor) -> CodeExecutor:
    """Return an executor that redacts; the same one if nothing is redacted."""
    return RedactingExecutor(code, redactor) if redactor else code


def _answers(task: Task) -> Answers:
    """Return the answers also by the redacted keys of earlier questions, because the node asks them again."""
    stored_keys = {replace(question, known_as=None).key: question.key for question in task.asked}
    return {
        **task.answers,
        **{key: task.answers[stored_key] for key, stored_key in stored_keys.items() if stored_key in task.answers},
    }
