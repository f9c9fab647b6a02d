"""Questions to people and their answers, and the modes in which people are asked although no node asks. Pure.

A node asks with `ctx.ask`; approval modes ask before or after nodes, and when a node has failed. The execution waits
without occupying a worker. Questions are identified by their content: equal questions at one checkpoint share an
answer.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

import orjson

from wtb.core.errors import describe, did_you_mean
from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.serialization.codec import decode
from wtb.core.values import Json

Mode = str | Mapping[str, str]
Approval = Mode | Sequence[Mode]

ALONE = {  # modes that cannot be combined with others, with the reason
    "none": "'none' (nobody is there to answer)",
    "manual": "'manual' (only nodes ask)",
}
MODES = ("none", "manual", "before", "on_error")
EXPECTED = "none, manual, before, on_error or {after: NODE}"


def read_mode(mode: object) -> object:
    """Return a mode as files write it, from a text such as `on-error` or `after NODE` as commands write it."""
    if not isinstance(mode, str):
        return mode
    after = re.fullmatch(r"after[ :=]+(.+)", mode)
    return {"after": after[1]} if after else mode.replace("-", "_")


def is_mode(mode: object) -> bool:
    """Return whether a value is a mode; the node that it names may not exist."""
    if isinstance(mode, Mapping):
        return list(mode) == ["after"] and isinstance(mode["after"], str)
    return isinstance(mode, str) and mode in MODES


def modes_of(approval: Approval) -> tuple[Mode, ...]:
    """Return the modes of a single mode or a list of modes."""
    return (approval,) if isinstance(approval, str | Mapping) else tuple(approval)


def node_after(mode: Mode) -> str | None:
    """Return the node after which a mode asks; None for the other modes."""
    return None if isinstance(mode, str) else mode["after"]


def mode_text(mode: str | Mapping[str, object]) -> str:
    """Return a mode as commands write it."""
    return mode if isinstance(mode, str) else f"after {mode['after']}"


def contradiction(modes: Sequence[Mode]) -> tuple[int, str] | None:
    """Return the place and the reason of the first mode that cannot be combined with the others; None if all can.

    Example:
        >>> contradiction(["before", "before"])
        (1, "'before' twice; expected each mode once")
        >>> contradiction(["on_error", "none"])
        (1, "'none' (nobody is there to answer) beside 'on_error'; expected it alone")
    """
    for place, mode in enumerate(modes):
        if mode in modes[:place]:
            return place, f"'{mode_text(mode)}' twice; expected each mode once"
        if isinstance(mode, str) and mode in ALONE and len(modes) > 1:
            other = mode_text(modes[1 if place == 0 else 0])
            return place, f"{ALONE[mode]} beside '{other}'; expected it alone"
    return None


def approval_problems(approval: object, workflow: str, nodes: Collection[str]) -> list[str]:
    """Return the problems with the approval modes of a workflow of this name, in words."""
    several = isinstance(approval, list | tuple)
    modes: list[Any] = list(approval) if isinstance(approval, list | tuple) else [approval]
    if not modes:
        return [f"approval is an empty list; expected {EXPECTED}"]
    problems = []
    for place, mode in enumerate(modes):
        name = f"approval[{place}]" if several else "approval"
        if not is_mode(mode):
            near = did_you_mean(mode, MODES) if isinstance(mode, str) else ""
            problems.append(f"{name} is {describe(mode)}{near}; expected {EXPECTED}")
        elif (node := node_after(mode)) is not None and node not in nodes:
            problems.append(f"{name}: {no_such_node(workflow, nodes, node)}")
    if not problems and (wrong := contradiction(modes)):
        problems.append(f"approval[{wrong[0]}] has {wrong[1]}")
    return problems


def no_such_node(workflow: str, nodes: Collection[str], node: str) -> str:
    """Return the message for a mode that names a node which a workflow does not have."""
    return f"workflow {workflow!r} has no node {node!r}{did_you_mean(node, nodes)}"


Kind = Literal["ask", "before", "after", "error", "action"]
GivenAction = Literal["approve", "reject", "modify"]  # by a person
Action = Literal[GivenAction, "expired"]
ACTIONS: Final = ("approve", "reject", "modify")  # the actions of persons
_MAX_ANSWERS = 120  # characters of answers that are listed in a line


def mode_of_question(kind: str, node: str | None) -> Mode | None:
    """Return the approval mode that asks a question of this kind; None if a node asks by itself."""
    if kind == "after":
        return {"after": node or ""}
    return {"before": "before", "error": "on_error"}.get(kind)


def ways(kind: str, options: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words that may follow `wtb answer ID`, quoted for shells; naming an option approves with it."""
    if options:
        return (*map(shlex.quote, options), "reject", "modify")
    return ACTIONS[:2] if kind == "action" else ACTIONS


def how_to_answer(id: str, kind: str, options: Sequence[str] | None) -> str:
    """Return the command that answers a question, in one line."""
    answers = "|".join(ways(kind, options))
    return f"wtb answer {id} {answers if len(answers) <= _MAX_ANSWERS else 'OPTION|reject|modify'}"


@frozen(slots=True)
class Question:
    """A question to a person, asked once for all cells that share the state.

    Attributes:
        node: The node that asks, or the key of its task if it has several.
        number: How many questions the node run asked before it; for kind `error`, the number of attempts.
        context: Typed JSON for the person to look at.
        timeout: Seconds until `default` counts as the answer.
        known_as: Its key, if its text was redacted since it was asked.
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
        """The key of the question, the same for all that ask it at one checkpoint, whatever their variant."""
        if self.known_as is not None:
            return self.known_as
        # The timeout and the default are left out: changing them does not make it another question.
        words = [self.kind, self.node, self.text, self.number, self.options]
        return hashlib.sha256(orjson.dumps(words) + (self.context or b"")).hexdigest()

    @property
    def place(self) -> str:
        """Its place among the questions of its node, whatever its text."""
        return place(self.kind, self.node, self.number)


def place(kind: str, node: str | None, number: int) -> str:
    """Return the key of an answer that changed the state, and possibly the text of the question with it."""
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
        """The decoded value of the answer, a new copy each time; None if there was none."""
        return None if self.value is None else decode(self.value.encode())

    @property
    def refusal(self) -> str:
        """A rejection in words."""
        return f"rejected by {self.by or 'nobody'}" + (f": {self.feedback}" if self.feedback else "")


Answers = Mapping[str, Answer]  # by the key of the question, or by its place if the answer changed the state


class Asked(BaseException):
    """Ends an attempt that asks a person. It is no Exception, so that a node that catches those does not swallow it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


@frozen(slots=True)
class Dialogue:
    """Questions and answers at the head of an execution, at the time of its claim.

    Attributes:
        answers: The answers.
        open: Questions without an answer, by key.
        all_questions: All questions, by key.
        tries: The attempts of node runs that are not accepted, by (task, variant), in their order: number and failure.
        retries: By task, (attempts, error, feedback) of failed node runs that are tried again with a changed state.
    """

    answers: Answers = field(default_factory=dict)
    open: Mapping[str, Question] = field(default_factory=dict)
    all_questions: Mapping[str, Question] = field(default_factory=dict)
    tries: Mapping[tuple[str, str], Sequence[tuple[int, Failure]]] = field(default_factory=dict)
    retries: Mapping[str, tuple[int, str, str | None]] = field(default_factory=dict)


@frozen(slots=True)
class Hold:
    """The reason for which an execution does not continue now.

    Attributes:
        status: paused (until somebody resumes it), waiting (for answers to `questions`) or cancelled.
        data: Further fields of the event that reports it.
    """

    status: Literal["paused", "waiting", "cancelled"]
    reason: str
    questions: Sequence[Question] = ()
    by: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)
