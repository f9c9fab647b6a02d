"""The engine port: the interface by which workflows are run, with its input and output types.

An engine runs user code on encoded values and nothing else: it knows no database, no lease and no queue, so that
it works the same in the runner's process, on a thread and in a child process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from wtb.authoring.context.attempt_record import Allowance, CaseView, OnEvent, Previous, Record
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.graph import Decision
from wtb.authoring.tools import ToolReport
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.failures import RUNNING, Failure, check_interrupt
from wtb.core.questions import Answers, Question
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Params, Values

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Root:
    """The execution to begin, or whose step is joined. `params` are the workflow's, overridden by the sweep."""

    case: CaseView
    repeat: int = 0
    params: Params = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run that all its attempts share.

    Attributes:
        interactive: Whether people answer instead of models.
        mode: The mode that the run sets, if any.
        nobody: Whether nobody can answer questions.
        fine: Whether each tool call is followed by a checkpoint.
        policies: Policies for nodes, as `read_policies` takes them, if there are any.
        checkpoint_every: Seconds between timed checkpoints of running attempts; None for none.
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

    Attributes:
        state: The values at the head, by key.
        position: The position of the head.
        root: The execution of the step.
        attempt: The number of the attempt, from 1 over all claims.
        failed: The number of earlier attempts that count as retries.
        draws: The attempt whose random numbers it repeats, if it starts again with an answer.
        previous: The report of the attempt before it.
        timeout: Seconds that it may take; None for no limit.
        workspace: The snapshot of files that it starts with.
        allowed: Bytes of new files that it may leave; None for no limit.
        join: Whether to join the step, too, because this is its only node run.
        answers: Answers of people to questions at this checkpoint.
        saved: Values that `ctx.checkpoint` has saved during this visit.
        done: Tool calls that are not made again, in order.
        earlier: All tool calls of earlier attempts, if policies apply to them.
        allowance: The amount that it may spend; None for no limit.
        execution: The execution.
        token: The fencing token of the claim.
        on_event: Called with each report of the attempt, as it happens.
        number: The number of the task among those of its node.
        key: The key of the task; the node's name if the node has only this one.
        asked: Questions of LangGraph's `interrupt` in the attempt before it, in order.
        trace: The name of its span, for spans that the node makes itself.
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

    def report_start(self) -> None:
        """Report that the attempt begins now, and no longer waits for a place to run."""
        if self.on_event is not None:
            self.on_event(RUNNING, None)


@dataclass(frozen=True, slots=True)
class Joined:
    """A beginning, or a joined step: the keys that changed or are gone, and the new position of the head."""

    changed: Values
    position: Position
    decisions: tuple[Decision, ...] = ()
    dropped: tuple[str, ...] = ()

    def after(self, state: Mapping[str, T], changed: Mapping[str, T]) -> dict[str, T]:
        """Return a state with its changes, and without dropped keys: of values, or of their hashes."""
        state_after = {**state, **changed}
        for name in self.dropped:
            state_after.pop(name, None)
        return state_after


@dataclass(slots=True)
class Result:
    """The result of an attempt. Exactly one of `writes`, `failure` and `question` is set.

    Attributes:
        started_at: Seconds since the epoch.
        duration_s: Seconds.
        question: The question that it waits for; the node starts again with the answer.
        asked: The keys of the questions of LangGraph's `interrupt`, in order.
        workspace: The snapshot of files that it left.
        joined: The joined step, if the task requires it.
        files: (digest, bytes) of new files.
        lag_s: Mean delay of the event loop in seconds while it awaited the node; None if not measured.
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

    `begins_here` is true if a case begins without user code, so that the runner's own process can do it.
    """

    @property
    def workflow(self) -> WorkflowFacts: ...

    @property
    def begins_here(self) -> bool: ...

    def is_async(self, node: str, variant: str) -> bool:
        """Return whether a node under a variant is a coroutine function, which an event loop runs beside others."""

    def begin(self, state: Values, root: Root) -> Joined:
        """Return the first position of a case, and the changes of its state."""

    def run(self, task: Task, surroundings: Surroundings) -> Result: ...

    def awaited(self, task: Task, surroundings: Surroundings) -> Awaited | None:
        """Return an attempt that an event loop can await; None if it must run on a thread, by `run`."""

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined: ...


def engine_of(workflow: Workflow) -> Engine:
    """Make the engine that runs a workflow, which names the class by its import path."""
    module, _, name = workflow.engine.partition(":")
    engine: Engine = getattr(importlib.import_module(module), name)(workflow)
    return engine


def begin(engine: Engine, state: Values, root: Root) -> Joined | Failure:
    """Begin a case. Errors of user code are returned as a failure."""
    try:
        return engine.begin(state, root)
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error)
        return Failure.of(error)


def join(engine: Engine, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
    """Join a step. Errors of reducers and branches, which are user code, are returned as a failure."""
    try:
        return engine.join(state, position, writes, root)
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error)
        return Failure.of(error)
