"""Holds: reasons why an execution does not take its next step (requests of people, breakpoints, approvals)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

import orjson

from wtb.authoring.breakpoints import Breakpoint, parse_breakpoint
from wtb.authoring.context.attempt_record import Previous
from wtb.core.failures import MESSAGE, Failure
from wtb.core.frozen import frozen
from wtb.core.questions import Answer, Hold, Question, node_after
from wtb.core.serialization.plain_json import readable, storable
from wtb.planning.binding import effective_modes

if TYPE_CHECKING:
    from wtb.execution.execution import Execution
    from wtb.planning.binding import Bound
    from wtb.store.control.executions import Request

_NO_QUESTION = ("rejected", "disk", "provider")  # kinds of failures after which trying again makes no sense


class ApprovalModes:
    """The approval modes of a sweep.

    Attributes:
        asks_before_steps: Whether some steps wait for an approval.
        nobody: Whether the run has nobody to answer questions.
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
        writers = tuple(writer.node for writer in execution.at.writers) or execution.loaded.wrote
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
    """Make the question that replaces a failure. It has no traceback, which would reveal the variant."""
    error = storable(f"{failure.type}: {failure.message}" if failure.message else failure.type, 2000)
    context = orjson.dumps({"error": error, "attempts": attempts})
    first = error.partition("\n")[0]
    return Question("error", task, f"{task} failed: {first}. Try again?", attempts, context=context)


@frozen(slots=True)
class PriorAnswers:
    """Answers to the questions of a node run before this claim. At most one of question and failure is set.

    Attributes:
        question: The question that it still waits for.
        failure: The failure with which a rejection ends it.
        previous: The report of the attempt before, for the next one.
        draws: The attempt whose random numbers are repeated, so that the next one asks the same questions.
        interrupt_questions: The questions of LangGraph's `interrupt`.
    """

    question: Question | None = None
    failure: Failure | None = None
    previous: Previous | None = None
    draws: int | None = None
    interrupt_questions: tuple[Question, ...] = ()


NO_ANSWERS = PriorAnswers()


def prior_answers(execution: Execution, task: str, variant: str) -> PriorAnswers:
    """Return what answers mean for a node run at the head: it waits, ends or starts again. `task` is its key."""
    tries = execution.loaded.dialogue.tries.get((task, variant))
    if not tries:
        retry = execution.loaded.dialogue.retries.get(task)
        return NO_ANSWERS if retry is None else PriorAnswers(previous=_previous(*retry))
    number, failure = tries[-1]
    if failure.kind == "waiting":
        return _continue_after_question(execution, task, tries, failure)
    question = error_question(task, failure, number)
    if question.key in execution.loaded.dialogue.open:
        return PriorAnswers(question)
    answer = execution.loaded.dialogue.answers.get(question.key)
    if answer is None:
        return PriorAnswers()
    if answer.action == "reject":
        return PriorAnswers(failure=_refused(failure, answer))
    return PriorAnswers(previous=_previous(number, str(failure), answer.feedback))


def _continue_after_question(
    execution: Execution, task: str, tries: Sequence[tuple[int, Failure]], failure: Failure
) -> PriorAnswers:
    """Handle a node run that has a question: it still waits, or starts again with its first inputs."""
    dialogue = execution.loaded.dialogue
    open_questions = (
        question for question in dialogue.open.values() if question.kind in ("ask", "action") and question.node == task
    )
    # The failure stores only the beginning of a question's text.
    question = next((question for question in open_questions if question.text[:MESSAGE] == failure.message), None)
    if question is not None:
        return PriorAnswers(question)
    before = list(dropwhile(lambda attempt: attempt[1].kind == "waiting", reversed(tries)))
    # Attempts that waited repeat the numbers of the first of them, so that the node asks the same questions again.
    draws, _ = tries[len(before)]
    recorded_keys = takewhile(dialogue.all_questions.__contains__, failure.asked)
    questions = tuple(dialogue.all_questions[key] for key in recorded_keys)
    previous = None
    if before:
        previous = _previous(before[0][0], str(before[0][1]), None)
    return PriorAnswers(previous=previous, draws=draws, interrupt_questions=questions)


def _previous(attempts: int, error: str, feedback: str | None) -> Previous:
    return Previous(attempts, attempts + 1, error, feedback=feedback)


def _refused(failure: Failure, answer: Answer) -> Failure:
    """Return the rejected failure, with the feedback of the person."""
    feedback = f" (not tried again: {answer.feedback})" if answer.feedback else ""
    return replace(failure, message=failure.message + feedback)


def distinct(questions: Iterable[Question]) -> list[Question]:
    """Return each question once."""
    return list({question.key: question for question in questions}.values())


class Holds:
    """Decides before every step whether an execution continues.

    `refresh` updates requests and breakpoints once a second.

    Attributes:
        requests: Requests of people for executions that run in this process, by execution.
    """

    def __init__(self, bound: Bound, breakpoints: Iterable[str] = ()) -> None:
        self.bound = bound
        self.approvals = ApprovalModes(bound)
        self.requests: Mapping[str, Request] = {}
        self._texts: tuple[str, ...] = ()
        self._breakpoints: tuple[Breakpoint, ...] = ()
        self.refresh({}, breakpoints)

    def refresh(self, requests: Mapping[str, Request], breakpoints: Iterable[str]) -> None:
        """Replace requests and breakpoints. Breakpoints are texts that were checked when they were set."""
        self.requests = requests
        if (texts := tuple(breakpoints)) != self._texts:
            nodes, keys = self.bound.workflow.nodes, self.bound.workflow.schema.keys
            self._breakpoints = tuple(parse_breakpoint(text, nodes, keys) for text in texts)
            self._texts = texts

    def before_step(self, execution: Execution) -> Hold | None:
        """Return the hold that keeps an execution at its head; None if it continues."""
        # A request counts even at a breakpoint. Questions come last, so that nobody is asked about a step that is held
        # anyway.
        if (self.requests or execution.prior_request) and (request := self.requested(execution)):
            return request
        if self._breakpoints and execution.at.id != execution.passed:
            stopped = self._stopped_at(execution)
            if stopped is not None:
                return stopped
        return self.approvals.before_step(execution) if self.approvals.asks_before_steps else None

    def requested(self, execution: Execution) -> Hold | None:
        """Return the hold that a person has requested, if any."""
        request = self.requests.get(execution.id)
        # A request with another token was made, and carried out, under an earlier claim.
        transition = (
            request.transition if request is not None and request.token == execution.token else execution.prior_request
        )
        if transition is None:
            return None
        return Hold(
            "cancelled" if transition["to"] == "cancelled" else "paused", transition["reason"], by=transition["by"]
        )

    def _stopped_at(self, execution: Execution) -> Hold | None:
        """Return the hold of the first breakpoint that applies at the head, if any."""
        ran = [writer.node for writer in execution.at.writers]
        for candidate in self._breakpoints:
            keys = () if candidate.condition is None else candidate.condition.keys
            state = {key: readable(execution.state[key].data) for key in keys if key in execution.state}
            if reason := candidate.reached(execution.at.position.next, ran, state):
                return Hold("paused", reason, data={"breakpoint": str(candidate)})
        return None
