"""What `interrupt(value)` asks, as a question to a person, and what it returns for the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wtb.authoring.context.ask import Questioner
from wtb.core.errors import InputError, Rejected
from wtb.core.questions import Answer, Question
from wtb.core.serialization.codec import decode

_WORDS = ("question", "message", "description", "prompt", "text", "title")


class Interrupts:
    """The values that calls of `interrupt` in one attempt return, in their order.

    Questions of `ctx.ask` may come in between. They are counted by the same questioner, so that each question has its
    place in a pass through the node's code; but only an answer to an `interrupt` is returned by one.

    Raises:
        Asked: If what was interrupted for has no answer any more.
        Rejected: If a person rejected it.
    """

    def __init__(self, questioner: Questioner, asked: Iterable[Question]) -> None:
        self._questioner = questioner
        self._resumed: list[tuple[Question, Any]] = []
        self._next = 0
        for question in asked:
            self._add(question)

    def restart(self) -> None:
        """Begin with the first one, because the node's code starts again within the attempt."""
        self._next = 0
        self._questioner.restart()

    def ask(self, value: Any) -> None:
        """Ask what the last pass was interrupted for, so that the next one has the answer. Raises as the class does."""
        self._add(self._questioner.question(*question_of(value)))

    def resume(self, consume: bool = False) -> Any:
        """Return what the next call of `interrupt` returns; None if that was not asked yet. LangGraph calls this."""
        if self._next >= len(self._resumed):
            return None
        question, value = self._resumed[self._next]
        if consume:
            self._next += 1
            self._questioner.count(question.key)
        return value

    def __bool__(self) -> bool:
        return bool(self._resumed)

    def _add(self, question: Question) -> None:
        value = None if question.context is None else decode(question.context)
        try:
            resumed = resume_value(value, self._questioner.interrupt(question))
        except Rejected as rejected:
            if (resumed := rejection_value(value, str(rejected))) is None:
                raise
        self._resumed.append((question, resumed))


def question_of(value: Any) -> tuple[str, tuple[str, ...], Any]:
    """The words of a question, the options to choose from, and what there is to look at."""
    if isinstance(value, str) and value.strip():
        return value, (), None
    options: tuple[str, ...] = ()
    if isinstance(value, Mapping):
        given = value.get("options")
        if isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(one, str) for one in given):
            options = tuple(given)
        for word in _WORDS:
            if isinstance(text := value.get(word), str) and text.strip():
                return text, options, value
        if actions := _actions(value):
            return "; ".join(f"{name}?" for name in actions), (), value
    return "go on?", options, value


def resume_value(value: Any, answer: Answer) -> Any:
    """What the node gets for an answer: the value that was given, else the choice, else the feedback, else True.

    value: that it was interrupted with. Middleware that asks whether actions may be taken gets its decisions.
    Raises InputError for the value null.
    """
    if answer.value is not None:
        if (given := answer.given) is None:
            raise InputError("LangGraph cannot resume with null: answer with another value, such as false or {}")
        return given
    if answer.choice is not None:
        return answer.choice
    if actions := _actions(value):
        return {"decisions": [{"type": "approve"} for _ in actions]}
    return True if answer.feedback is None else answer.feedback


def rejection_value(value: Any, words: str) -> Any:
    """The decisions for middleware that asked to approve actions, which is denied; None for other questions."""
    actions = _actions(value)
    return {"decisions": [{"type": "reject", "message": words} for _ in actions]} if actions else None


def _actions(value: Any) -> list[str]:
    """The names of the actions that LangChain's human-in-the-loop middleware asks about; none of other questions."""
    found = value.get("action_requests") if isinstance(value, Mapping) else None
    if not isinstance(found, list):
        return []
    return [str(one.get("name", "an action")) for one in found if isinstance(one, Mapping)]
