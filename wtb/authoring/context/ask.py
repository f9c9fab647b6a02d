"""Asking people from within a node: returns the answer if there is one, else ends the attempt."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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

    Attributes:
        task: The key of the task that asks, so that tasks of one node that ask the same question each ask it.
        answers: Answers of people to what was asked at this checkpoint.
        nobody: No person is there, so that defaults apply at once.
        pending: The question that is not answered yet. It ends the attempt even if the node swallows the exception.
        interrupts: What LangGraph's `interrupt` asked, in order: it finds its answers by order, not by words.
    """

    task: str
    answers: Answers = field(default_factory=dict)
    nobody: bool = False
    pending: Question | None = None
    interrupts: list[Question] = field(default_factory=list)
    _number: int = 0
    _answered: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # a node may ask in several threads

    def restart(self) -> None:
        """Count from 0 again, because the node's code starts again within the attempt."""
        with self._lock:
            self._number = 0
            self._answered.clear()

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
        """Return the answer; see Context.ask. Raises Asked if there is none yet."""
        with self._lock:
            question = self.question(text, options, context, timeout, default, kind)
            key, answer = self._find(question)
            self.count(key)
        return self._reply(question, answer)

    def interrupt(self, question: Question) -> Answer:
        """Return the answer to what `interrupt` asks.

        Raises:
            Asked: If there is none yet.
            Rejected: If a person rejected it.
        """
        self.interrupts.append(question)
        return self._reply(question, self.answers.get(question.key) or self.answers.get(question.place))

    def approval(self, question: Question, on_asked: Callable[[], None]) -> Answer | None:
        """Return the answer to exactly this question, which WTB asks and not the node.

        Args:
            question: The question; it does not count among those of the node.
            on_asked: Called if a person is asked now.

        Returns:
            The answer; None if nobody is there to ask.

        Raises:
            Asked: If there is none yet.
        """
        # Not by its place, as other questions are: the words say what is approved.
        answer = self.answers.get(question.key)
        if answer is None and not self.nobody:
            self.pending = self.pending or question
            on_asked()
            raise Asked(question)
        return answer

    def count(self, key: str) -> None:
        """Count a question of this pass through the node's code by the key that its answer was found by."""
        self._number += 1
        self._answered.add(key)

    def _find(self, question: Question) -> tuple[str, Answer | None]:
        """Return the answer to a question, and the key of the question that it was given to.

        A node that asks in threads may ask in another order than before, so that the same words have another number:
        they take an answer that this pass has not used yet.
        """
        answer = self.answers.get(question.key) or self.answers.get(question.place)
        if answer is not None or not self.answers:
            return question.key, answer
        for number in range(self._number + len(self.answers) + 1):
            key = replace(question, number=number).key
            if key in self.answers and key not in self._answered:
                return key, self.answers[key]
        return question.key, None

    def _reply(self, question: Question, answer: Answer | None) -> Answer:
        """Return an answer, or raise what it means for the attempt: Asked, Rejected or Unanswered."""
        if answer is None and self.nobody:
            answer = Answer("expired") if question.default is None else Answer("approve", choice=question.default)
        if answer is None:
            # The first question stays, even if the node swallows the exception and asks another one.
            self.pending = self.pending or question
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
        """Return the next question of the attempt. Raises InputError or StateError if it cannot be asked like this."""
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"ctx.ask: the question is {text!r:.50}; expected text")
        if isinstance(options, str) or not all(isinstance(option, str) and option.strip() for option in options):
            raise InputError(f"ctx.ask: options is {options!r:.50}; expected a list of texts to choose from")
        if len(set(options)) != len(options):
            raise InputError(f"ctx.ask: options has a text twice ({', '.join(options)!r:.100}); expected each once")
        if reserved := [option for option in options if option in ACTIONS]:
            raise InputError(
                f"ctx.ask: option {reserved[0]!r} is an answer of its own ({', '.join(ACTIONS)}); expected another word"
            )
        if default is not None and (not isinstance(default, str) or (options and default not in options)):
            expected = "one of the options" if options else "text"
            raise InputError(f"ctx.ask: default is {default!r:.50}; expected {expected}")
        if timeout is not None and not (math.isfinite(timeout) and 0 < timeout <= LONGEST_S):
            raise InputError(f"ctx.ask: timeout is {timeout!r}; expected seconds, at most 366 days")
        try:
            encoded = None if context is None else encode(context)
        except StateError as error:
            raise StateError(f"ctx.ask: its context cannot be stored: {error}") from error
        return Question(
            kind,
            self.task,
            storable(text.strip(), TEXT),
            self._number,
            tuple(storable(option, 200) for option in options),
            encoded,
            None if timeout is None else float(timeout),
            None if default is None else storable(default, 200),
        )
