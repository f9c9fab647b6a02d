"""The engine port: how workflows are run, with the shapes that go in and come out.

An engine runs user code on encoded values and nothing else: it knows no database, no lease and no queue, so that
it works the same in the runner's process, on a thread and in a child process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from wtb.authoring.context.allowance import Allowance
from wtb.authoring.context.attempt_record import CaseView, OnEvent, Previous, Record
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.graph import Decision
from wtb.authoring.tools import ToolReport
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.failures import BEGUN, Failure, check_interrupt
from wtb.core.mappings import Params
from wtb.core.questions import Answers, Question
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Root:
    """The execution to begin, or whose step is to be joined. params: of the workflow, overridden by the sweep."""

    case: CaseView
    repeat: int = 0
    params: Params = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the run of a sweep sets for all attempts.

    interactive: whether people answer in place of models. mode: the mode that the run names, if it names one.
    nobody: whether no person is there to ask.
    fine: whether there is a checkpoint after each tool call.
    checkpoint_every: seconds between checkpoints that are taken of running attempts; None for none.
    policies: those that nodes are held against, as `read_policies` takes them; None without any.
    """

    interactive: bool = False
    mode: str | None = None
    nobody: bool = False
    fine: bool = False
    policies: str | None = None
    checkpoint_every: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of a node run.

    number, key: which task of its node it is, and the key of that task; the node's name if it has only this one.
    state: the values at the head, by key. position: where the head stands.
    attempt: from 1, over all claims. failed: the attempts before it that count as retries.
    draws: the attempt whose random numbers it has, if it starts again with an answer.
    root: the execution whose step it is in.
    previous: what the attempt before it left.
    timeout: seconds that it may take; None is no limit.
    workspace: the snapshot of files that it starts with. allowed: bytes of new files that it may leave, None is no
    limit.
    join: whether the step is to be joined too, since this is its only node run.
    asked: what LangGraph's `interrupt` asked in the attempt before it, in that order.
    answers: of people, to what was asked at this checkpoint.
    saved: what `ctx.checkpoint` kept of this visit before. done: tool calls that are not to be made again, in order.
    earlier: all tool calls of the attempts before it, if policies hold for them.
    allowance: what it may spend; None is no limit.
    execution, token: whose attempt it is, under which claim.
    on_event: called with each thing that the attempt reports, as it happens.
    trace: what its span is known by, for spans that the node makes itself.
    """

    node: str
    variant: str
    state: Values
    position: Position
    root: Root
    attempt: int = 1
    failed: int = 0
    draws: int | None = None
    previous: Previous | None = None
    timeout: float | None = None
    workspace: str | None = None
    allowed: int | None = None
    join: bool = False
    answers: Answers = field(default_factory=dict)
    saved: Values = field(default_factory=dict)
    done: Sequence[ToolReport] = ()
    earlier: Sequence[ToolReport] = ()
    settings: Settings = Settings()
    allowance: Allowance | None = None
    execution: str = ""
    token: int = 0
    on_event: OnEvent | None = field(default=None, compare=False)
    number: int = 0
    key: str = ""
    asked: tuple[Question, ...] = ()
    trace: str = ""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self.node)

    def begun(self) -> None:
        """Report that the attempt begins now, and no longer waits for a place to run."""
        if self.on_event is not None:
            self.on_event(BEGUN, None)


@dataclass(frozen=True, slots=True)
class Joined:
    """A beginning, or a step joined: the keys that changed or are gone, and where the head stands now."""

    changed: Values
    position: Position
    decisions: tuple[Decision, ...] = ()
    dropped: tuple[str, ...] = ()

    def after(self, state: Mapping[str, T], changed: Mapping[str, T]) -> dict[str, T]:
        """A state with what changed of it, and without what was dropped: values, or the hashes of them."""
        found = {**state, **changed}
        for name in self.dropped:
            found.pop(name, None)
        return found


@dataclass(slots=True)
class Result:
    """The result of an attempt. Exactly one of `writes`, `failure` and `question` is set.

    started_at: seconds since the epoch. duration_s: seconds.
    lag_s: seconds by which the event loop was late on average while it awaited the node; None if that is not measured.
    question: what it waits for; the node starts again once that is answered.
    asked: the keys of what LangGraph's `interrupt` asked, in that order.
    workspace: the snapshot of files that it left. files: (digest, bytes) of those that are new.
    joined: the step, if the task asked for it to be joined.
    """

    started_at: float
    duration_s: float
    record: Record
    writes: Values | None = None
    failure: Failure | None = None
    question: Question | None = None
    asked: tuple[str, ...] = ()
    workspace: str | None = None
    joined: Joined | Failure | None = None
    files: tuple[tuple[str, int], ...] = ()
    stdout: str | None = None
    stderr: str | None = None
    lag_s: float | None = None


Writes = Sequence[tuple[str, Values]]  # by the key of the task


class Awaited(Protocol):
    """An attempt of an async node, which an event loop awaits between its `begin` and its `end`."""

    @property
    def may_end_slowly(self) -> bool: ...

    def begin(self) -> Callable[[], Coroutine[Any, Any, Any]]: ...

    def end(self, returned: Callable[[], Any]) -> Result: ...


class Engine(Protocol):
    """Advances a workflow: `begin`, then `run` every task of a step, then `join` what they wrote into the next one.

    begins_here: whether to begin runs no user code, so that the runner's own process does.
    """

    @property
    def workflow(self) -> WorkflowFacts: ...

    @property
    def begins_here(self) -> bool: ...

    def is_async(self, node: str, variant: str) -> bool:
        """Return whether a node under a variant is a coroutine function, which an event loop runs beside others."""

    def begin(self, state: Values, root: Root) -> Joined:
        """From the case's input to the first position, and what that does to the state."""

    def run(self, task: Task, surroundings: Surroundings) -> Result: ...

    def awaited(self, task: Task, surroundings: Surroundings) -> Awaited | None:
        """Return an attempt that an event loop can await; None if it must run on a thread, by `run`."""

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined: ...


def engine_of(workflow: Workflow) -> Engine:
    """The engine that runs a workflow: it names the class by its import path."""
    module, _, name = workflow.engine.partition(":")
    engine: Engine = getattr(importlib.import_module(module), name)(workflow)
    return engine


def begin(engine: Engine, state: Values, root: Root) -> Joined | Failure:
    """Begin. What may run of the user's code there: what it raises is kept as a failure."""
    try:
        return engine.begin(state, root)
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error)
        return Failure.of(error)


def join(engine: Engine, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
    """Join a step. Reducers and branches are user code: what they raise is kept as a failure."""
    try:
        return engine.join(state, position, writes, root)
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error)
        return Failure.of(error)
