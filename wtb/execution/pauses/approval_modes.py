"""Approval modes: when people are asked although no node asks, and what their answers mean for the next step.

Modes of a workflow, a sweep or a single execution: `none` (nobody is there), `manual` (only what nodes ask), `before`
(each step), `{after: NODE}`, and `on_error` (a node run that has failed for good asks instead of failing). The last
three can apply together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

import orjson

from wtb.authoring.context.attempt_record import Previous
from wtb.core.arguments.approval import node_after
from wtb.core.classes.frozen import frozen
from wtb.core.failures import MESSAGE, Failure
from wtb.core.questions import Answer, Hold, Question
from wtb.core.serialization.plain_json import storable
from wtb.planning.approval import effective_modes

if TYPE_CHECKING:
    from wtb.execution.execution import Execution
    from wtb.planning.binding import Bound

_NO_QUESTION = ("rejected", "disk", "provider")  # kinds of failures after which trying again makes no sense


class ApprovalModes:
    """The approval modes of a sweep.

    Attributes:
        asks_before_steps: Whether people are asked before some steps.
        nobody: Whether no person is there to answer.
    """

    def __init__(self, bound: Bound) -> None:
        modes = effective_modes(bound.spec, bound.workflow)
        self._after = tuple(node for mode in modes if (node := node_after(mode)) is not None)
        self._before = "before" in modes
        self._on_error = "on_error" in modes
        self.asks_before_steps = self._before or bool(self._after)
        self.nobody = "none" in modes

    def before_step(self, execution: Execution) -> Hold | None:
        """Return why an execution has to wait for a person, or was rejected by one, at its head; else None."""
        unanswered = []
        for question in self._questions(execution):
            answer = execution.loaded.dialogue.answers.get(question.key)
            if answer is None:
                unanswered.append(question)
            elif answer.action == "reject":
                return Hold("cancelled", answer.refusal, by=answer.by, data={"question": question.text})
        if not unanswered:
            return None
        return Hold("waiting", "; ".join(question.text for question in unanswered)[:1000], unanswered)

    def _questions(self, execution: Execution) -> list[Question]:
        """Return the questions of the modes at the head. Their context is the checkpoint, which has the state.

        A step is asked about once: after a node of `after`, its question is asked instead of the one of `before`.
        """
        writers = tuple(one.node for one in execution.at.writers) or execution.loaded.wrote
        if after := [node for node in self._after if node in writers]:
            return [Question("after", node, f"Continue with the output of step “{node}”?") for node in after]
        nodes = execution.at.position.next
        if self._before and nodes:
            return [Question("before", ", ".join(nodes)[:200], f"Run {', '.join(nodes)}?")]
        return []

    def question_instead(self, task: str, failure: Failure, attempts: int) -> Question | None:
        """Return the question to ask about a node run that has failed for good; None if no mode asks."""
        if not self._on_error or failure.kind in _NO_QUESTION:
            return None
        return error_question(task, failure, attempts)


def error_question(task: str, failure: Failure, attempts: int) -> Question:
    """The question that is asked in place of failing. It has no traceback, which would reveal the variant."""
    error = storable(f"{failure.type}: {failure.message}" if failure.message else failure.type, 2000)
    context = orjson.dumps({"error": error, "attempts": attempts})
    first = error.partition("\n")[0]
    return Question("error", task, f"{task} failed: {first}. Try again?", attempts, context=context)


@frozen(slots=True)
class PriorAnswers:
    """Answers to the questions of a node run before this claim. At most one of question and failure is set.

    question: the one that it still waits for. failure: the failure with which a rejection ends it. previous: passed to
    the next attempt. draws: the attempt whose random numbers are drawn again, so that it asks the same questions.
    asked: what LangGraph's `interrupt` asked.
    """

    question: Question | None = None
    failure: Failure | None = None
    previous: Previous | None = None
    draws: int | None = None
    asked: tuple[Question, ...] = ()


NO_ANSWERS = PriorAnswers()


def prior_answers(execution: Execution, task: str, variant: str) -> PriorAnswers:
    """Return whether a node run at the head waits, ends or starts again by the answers of people. task: its key."""
    tries = execution.loaded.dialogue.tries.get((task, variant))
    if not tries:
        again = execution.loaded.dialogue.retries.get(task)
        return NO_ANSWERS if again is None else PriorAnswers(previous=_previous(*again))
    number, failure = tries[-1]
    if failure.kind == "waiting":
        return _asked(execution, task, tries, failure)
    question = error_question(task, failure, number)
    if question.key in execution.loaded.dialogue.open:
        return PriorAnswers(question)
    answer = execution.loaded.dialogue.answers.get(question.key)
    if answer is None:
        return PriorAnswers()
    if answer.action == "reject":
        return PriorAnswers(failure=_refused(failure, answer))
    return PriorAnswers(previous=_previous(number, str(failure), answer.feedback))


def _asked(execution: Execution, task: str, tries: Sequence[tuple[int, Failure]], failure: Failure) -> PriorAnswers:
    """For a node run that asked: it waits on, or starts again with the inputs that it had when it asked first."""
    dialogue = execution.loaded.dialogue
    asked = (one for one in dialogue.open.values() if one.kind in ("ask", "action") and one.node == task)
    question = next((one for one in asked if one.text[:MESSAGE] == failure.message), None)
    if question is not None:
        return PriorAnswers(question)
    before = list(dropwhile(lambda one: one[1].kind == "waiting", reversed(tries)))
    draws, _ = tries[len(before)]
    known = takewhile(dialogue.all_questions.__contains__, failure.asked)
    questions = tuple(dialogue.all_questions[key] for key in known)
    previous = None
    if before:
        previous = _previous(before[0][0], str(before[0][1]), None)
    return PriorAnswers(previous=previous, draws=draws, asked=questions)


def _previous(attempts: int, error: str, feedback: str | None) -> Previous:
    return Previous(attempts, attempts + 1, error, feedback=feedback)


def _refused(failure: Failure, answer: Answer) -> Failure:
    """The failure that was asked about, with the feedback of the person."""
    feedback = f" (not tried again: {answer.feedback})" if answer.feedback else ""
    return replace(failure, message=failure.message + feedback)


def distinct(questions: Iterable[Question]) -> list[Question]:
    """Each question once."""
    return list({one.key: one for one in questions}.values())
