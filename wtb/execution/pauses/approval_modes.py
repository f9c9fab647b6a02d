"""When people are asked without a node asking for it, and what their answers mean for the next step.

Modes of a workflow, a sweep or a single execution: `none` (nobody is there), `manual` (only what nodes ask), `before`
(each step), `{after: NODE}`, and `on_error` (a node run that has failed for good asks in place of failing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

import orjson

from wtb.authoring.context.attempt_record import Previous
from wtb.core.failures import MESSAGE, Failure
from wtb.core.questions import Answer, Hold, Question
from wtb.core.serialization.plain_json import storable
from wtb.planning.approval import mode_of

if TYPE_CHECKING:
    from wtb.execution.execution import Execution
    from wtb.planning.binding import Bound

_NO_QUESTION = ("rejected", "disk")  # failures that are no matter of trying again


def before_step(bound: Bound, execution: Execution) -> Hold | None:
    """Why a person keeps an execution from going on from its head, or has yet to let it go on; else None."""
    question = _question(bound, execution)
    if question is None:
        return None
    answer = execution.said.answers.get(question.key)
    if answer is None:
        return Hold("waiting", question.text, [question])
    if answer.action == "reject":
        return Hold("cancelled", answer.refusal, by=answer.by, data={"question": question.text})
    return None


def _question(bound: Bound, execution: Execution) -> Question | None:
    """What the mode asks at the head. Its context is the checkpoint, which has the state."""
    mode, node = mode_of(bound.spec, bound.workflow)
    nodes = execution.at.position.next
    if mode == "before" and nodes:
        return Question("before", ", ".join(nodes)[:200], f"Run {', '.join(nodes)}?")
    if mode == "after" and node in (tuple(one.node for one in execution.at.writers) or execution.wrote):
        return Question("after", node, f"Go on with what {node} made?")
    return None


def error_question(task: str, failure: Failure, attempts: int) -> Question:
    """What is asked in place of failing. Without the frames of the code, which tell the variant."""
    said = storable(f"{failure.type}: {failure.message}" if failure.message else failure.type, 2000)
    context = orjson.dumps({"error": said, "attempts": attempts})
    first = said.partition("\n")[0]
    return Question("error", task, f"{task} failed: {first}. Try again?", attempts, context=context)


def asks_instead(bound: Bound, task: str, failure: Failure, attempts: int) -> Question | None:
    """The question that a node run asks which has failed for good, where the mode says so."""
    if mode_of(bound.spec, bound.workflow)[0] != "on_error" or failure.kind in _NO_QUESTION:
        return None
    return error_question(task, failure, attempts)


@dataclass(frozen=True, slots=True)
class Heard:
    """What people said of a node run before this claim. At most one of question and failure is set.

    question: what it still waits for. failure: with which it ends, since somebody said so. previous: what the next
    attempt is to know. draws: the attempt whose random numbers it draws again, so that it asks the same again. asked:
    its questions.
    """

    question: Question | None = None
    failure: Failure | None = None
    previous: Previous | None = None
    draws: int | None = None
    asked: tuple[Question, ...] = ()


def heard(execution: Execution, task: str, variant: str) -> Heard:
    """What people said of a node run at the head, by the key of its task: whether it waits, ends or starts again."""
    tries = execution.said.tries.get((task, variant))
    if not tries:
        again = execution.said.again.get(task)
        return Heard() if again is None else Heard(previous=_previous(*again))
    number, failure = tries[-1]["number"], Failure(**tries[-1]["failure"])
    if failure.kind == "waiting":
        return _asked(execution, task, tries, failure)
    question = error_question(task, failure, number)
    if question.key in execution.said.open:
        return Heard(question)
    answer = execution.said.answers.get(question.key)
    if answer is None:
        return Heard()
    if answer.action == "reject":
        return Heard(failure=_refused(failure, answer))
    return Heard(previous=_previous(number, str(failure), answer.feedback))


def _asked(execution: Execution, task: str, tries: Sequence[Mapping[str, Any]], failure: Failure) -> Heard:
    """Of a node run that asked: it waits on, or starts again as it began when it asked first."""
    asked = (one for one in execution.said.open.values() if one.kind in ("ask", "action") and one.node == task)
    question = next((one for one in asked if one.text[:MESSAGE] == failure.message), None)
    if question is not None:
        return Heard(question)
    before = list(dropwhile(lambda one: one["failure"]["kind"] == "waiting", reversed(tries)))
    draws = tries[len(before)]["number"]
    known = takewhile(execution.said.asked.__contains__, failure.asked)
    questions = tuple(execution.said.asked[key] for key in known)
    previous = None
    if before:
        previous = _previous(before[0]["number"], str(Failure(**before[0]["failure"])), None)
    return Heard(previous=previous, draws=draws, asked=questions)


def _previous(attempts: int, error: str, feedback: str | None) -> Previous:
    return Previous(attempts, attempts + 1, error, feedback=feedback)


def _refused(failure: Failure, answer: Answer) -> Failure:
    """The failure that was asked about, with what was said of it."""
    said = f" (not tried again: {answer.feedback})" if answer.feedback else ""
    return replace(failure, message=failure.message + said)


def distinct(questions: Iterable[Question]) -> list[Question]:
    """Each question once."""
    return list({one.key: one for one in questions}.values())
