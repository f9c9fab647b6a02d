"""Questions to people, and their answers. Pure.

A node asks with `ctx.ask`; approval modes ask before or after nodes, and when one has failed. The execution waits
without holding a worker. The answer is found by what was asked: all who ask the same at one checkpoint share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

Kind = Literal["ask", "before", "after", "error", "action"]
Action = Literal["approve", "reject", "modify"]
ACTIONS: Final = ("approve", "reject", "modify")


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked, once for all cells that share the state.

    number: how many others the node run asked before it, from 0. context: typed JSON of what to look at.
    timeout: seconds until `default` counts as the answer.
    """

    kind: Kind
    node: str | None
    text: str
    number: int = 0
    options: tuple[str, ...] = ()
    context: bytes | None = None
    timeout: float | None = None
    default: str | None = None

    @property
    def key(self) -> str:
        """The same for all who ask the same at one checkpoint, whatever their variant."""
        words = [self.kind, self.node, self.text, self.number, self.options]
        return hashlib.sha256(orjson.dumps(words) + (self.context or b"")).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. choice: one of the options. by: who, or None where time was up and the default counts.

    With `modify` the state was changed too: the node starts again from a checkpoint that has it.
    """

    action: Action
    choice: str | None = None
    feedback: str | None = None
    by: str | None = None


Answers = Mapping[str, Answer]  # by the key of the question


class Asked(BaseException):
    """Ends an attempt that asks a person. No Exception, so that a node that catches those does not swallow it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


@dataclass(frozen=True, slots=True)
class Hold:
    """Why an execution does not go on just now.

    status: paused (until somebody resumes it), waiting (for answers to `questions`) or cancelled.
    event: data of the event that tells it.
    """

    status: Literal["paused", "waiting", "cancelled"]
    reason: str
    questions: Sequence[Question] = ()
    by: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
