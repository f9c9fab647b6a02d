"""Asking people from within a node: returns the answer if there is one, else ends the attempt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wtb.core.errors import InputError, Rejected, StateError, Unanswered
from wtb.core.questions import ACTIONS, Answer, Answers, Asked, Question
from wtb.core.serialization.codec import encode
from wtb.core.serialization.plain_json import storable
from wtb.core.units import LONGEST_S

TEXT = 20_000  # characters of a question


@dataclass
class Questioner:
    """Asks the questions of one attempt, in their order.

    task: the key of the task that asks, so that tasks of one node that ask the same question each ask it. nobody: no
    person is there, so that defaults apply at once. asked: the question that is not answered yet; it ends the attempt
    even if the code of the node swallows the exception. questions: all of them.
    """

    task: str
    answers: Answers = field(default_factory=dict)
    nobody: bool = False
    asked: Question | None = None
    questions: list[Question] = field(default_factory=list)
    _number: int = 0

    def ask(
        self,
        text: str,
        *,
        options: Sequence[str] = (),
        context: Any = None,
        timeout: float | None = None,
        default: str | None = None,
        kind: Literal["ask", "action"] = "ask",
    ) -> Answer:
        """The answer; see Context.ask. Raises Asked where there is none yet."""
        return self.again(self.question(text, options, context, timeout, default, kind))

    def again(self, question: Question) -> Answer:
        """The answer to the next question of the attempt, which may have been asked by an earlier one. Raises Asked."""
        self._number += 1
        self.questions.append(question)
        answer = self.answers.get(question.key) or self.answers.get(question.place)
        if answer is None and self.nobody:
            answer = Answer("expired") if question.default is None else Answer("approve", choice=question.default)
        if answer is None:
            self.asked = self.asked or question
            raise Asked(question)
        if answer.action == "expired":
            when = "nobody is there to answer" if self.nobody else f"nobody answered within {question.timeout:g} s"
            raise Unanswered(f"{when}, and there is no default: {question.text}")
        if answer.action == "reject":
            raise Rejected(answer.refusal)
        return answer

    def question(
        self,
        text: str,
        options: Sequence[str],
        context: Any,
        timeout: float | None = None,
        default: str | None = None,
        kind: Literal["ask", "action"] = "ask",
    ) -> Question:
        """The next question of the attempt. Raises InputError or StateError where it cannot be asked so."""
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"ctx.ask: the question is {text!r:.50}; expected text")
        if isinstance(options, str) or not all(isinstance(one, str) and one.strip() for one in options):
            raise InputError(f"ctx.ask: options is {options!r:.50}; expected a list of texts to choose from")
        if len(set(options)) != len(options):
            raise InputError(f"ctx.ask: options has a text twice ({', '.join(options)!r:.100}); expected each once")
        if taken := [one for one in options if one in ACTIONS]:
            raise InputError(
                f"ctx.ask: option {taken[0]!r} is an answer of its own ({', '.join(ACTIONS)}); expected another word"
            )
        if default is not None and (not isinstance(default, str) or (options and default not in options)):
            expected = "one of the options" if options else "text"
            raise InputError(f"ctx.ask: default is {default!r:.50}; expected {expected}")
        if timeout is not None and not (math.isfinite(timeout) and 0 < timeout <= LONGEST_S):
            raise InputError(f"ctx.ask: timeout is {timeout!r}; expected seconds, at most 366 days")
        try:
            shown = None if context is None else encode(context)
        except StateError as error:
            raise StateError(f"ctx.ask: its context cannot be stored: {error}") from error
        return Question(
            kind,
            self.task,
            storable(text.strip(), TEXT),
            self._number,
            tuple(storable(one, 200) for one in options),
            shown,
            None if timeout is None else float(timeout),
            None if default is None else storable(default, 200),
        )
