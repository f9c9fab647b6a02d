"""What `interrupt(value)` asks, as a question to a person, and what it returns for the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core.errors import InputError
from wtb.core.questions import Answer

_WORDS = ("question", "message", "description", "prompt", "text", "title")


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
