"""Questions to people, and their answers. Pure.

A node asks with `ctx.ask`; approval modes ask before or after nodes, and when one has failed. The execution waits
without holding a worker. The answer is found by what was asked: all who ask the same at one checkpoint share it.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

import orjson

from wtb.core.arguments.approval import Mode
from wtb.core.classes.frozen import frozen
from wtb.core.failures import Failure
from wtb.core.serialization.codec import decode
from wtb.core.values import Json

Kind = Literal["ask", "before", "after", "error", "action"]
GivenAction = Literal["approve", "reject", "modify"]  # by a person
Action = Literal[GivenAction, "expired"]
ACTIONS: Final = ("approve", "reject", "modify")  # that a person may take
_MAX_ANSWERS = 120  # characters of answers that are named in a line


def mode_of_question(kind: str, node: str | None) -> Mode | None:
    """Return the approval mode that asks a question of this kind; None if a node asks by itself."""
    if kind == "after":
        return {"after": node or ""}
    return {"before": "before", "error": "on_error"}.get(kind)


def ways(kind: str, options: Sequence[str] | None) -> tuple[str, ...]:
    """What may be typed after `wtb answer ID`, quoted for shells; naming an option approves with it."""
    if options:
        return (*map(shlex.quote, options), "reject", "modify")
    return ACTIONS[:2] if kind == "action" else ACTIONS


def how_to_answer(id: str, kind: str, options: Sequence[str] | None) -> str:
    """The command that answers a question, in one line."""
    answers = "|".join(ways(kind, options))
    return f"wtb answer {id} {answers if len(answers) <= _MAX_ANSWERS else 'OPTION|reject|modify'}"


@frozen(slots=True)
class Question:
    """What a person is asked, once for all cells that share the state.

    node: which asks, or the key of its task where it has several. number: how many others the node run asked before
    it, from 0; of kind `error`: how many attempts there were. context: typed JSON of what to look at. timeout: seconds
    until `default` counts as the answer. known_as: its key, where what it says was redacted since it was asked.
    """

    kind: Kind
    node: str
    text: str
    number: int = 0
    options: tuple[str, ...] = ()
    context: bytes | None = None
    timeout: float | None = None
    default: str | None = None
    known_as: str | None = None

    @property
    def key(self) -> str:
        """The same for all who ask the same at one checkpoint, whatever their variant."""
        if self.known_as is not None:
            return self.known_as
        words = [self.kind, self.node, self.text, self.number, self.options]
        return hashlib.sha256(orjson.dumps(words) + (self.context or b"")).hexdigest()

    @property
    def place(self) -> str:
        """Where it stands among the questions of its node, whatever it says."""
        return place(self.kind, self.node, self.number)


def place(kind: str, node: str | None, number: int) -> str:
    """The key of an answer that changed the state, and with it perhaps the words of the question."""
    return f"{kind} {number} {node}"


@frozen(slots=True)
class Answer:
    """A person's answer to `ctx.ask`.

    Args:
        action: `approve`, `reject` or `modify`. With `modify` the state was changed, too: the node starts again from a
            checkpoint that has it. `expired`: time was up, and there is no default.
        choice: One of the options.
        feedback: Text.
        by: Who answered; None if time was up and the default counts.
        value: What else was given, as typed JSON, such as a decision on each of several tool calls.

    Example:
        >>> from wtb.testing import Answer
        >>> Answer("approve", choice="send", feedback="Best wishes").choice
        'send'
    """

    action: Action
    choice: str | None = None
    feedback: str | None = None
    by: str | None = None
    value: str | None = None

    @property
    def given(self) -> Any:
        """The value that came with the answer, decoded, a fresh copy each time; None if there was none."""
        return None if self.value is None else decode(self.value.encode())

    @property
    def refusal(self) -> str:
        """A rejection in words."""
        return f"rejected by {self.by or 'nobody'}" + (f": {self.feedback}" if self.feedback else "")


Answers = Mapping[str, Answer]  # by the key of the question, or by its place where the answer changed the state


class Asked(BaseException):
    """Ends an attempt that asks a person. Not an Exception, so that a node that catches those does not swallow it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


@frozen(slots=True)
class Dialogue:
    """Questions and answers at the head of an execution, as of its claim.

    open: questions without an answer, by key. asked: those that have one, too. tries: the attempts of node runs that
    are not accepted, by (task, variant), in their order: number and failure. again: by task, (attempts, error,
    feedback) of those that failed and are to be tried again with a changed state.
    """

    answers: Answers = field(default_factory=dict)
    open: Mapping[str, Question] = field(default_factory=dict)
    all_questions: Mapping[str, Question] = field(default_factory=dict)
    tries: Mapping[tuple[str, str], Sequence[tuple[int, Failure]]] = field(default_factory=dict)
    retries: Mapping[str, tuple[int, str, str | None]] = field(default_factory=dict)


@frozen(slots=True)
class Hold:
    """Why an execution does not go on just now.

    status: paused (until somebody resumes it), waiting (for answers to `questions`) or cancelled.
    data: further fields of the event that reports it.
    """

    status: Literal["paused", "waiting", "cancelled"]
    reason: str
    questions: Sequence[Question] = ()
    by: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)
