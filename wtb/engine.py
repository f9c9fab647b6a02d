"""The engine port: what runs workflows, and what it is given and gives back.

An engine runs user code on encoded values and nothing else: it knows no database, no lease and no queue, so that
it works the same in the runner's process, on a thread and in a child process.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wtb.allowances import Allowance
from wtb.approvals import Answers, Question
from wtb.codec import digest, encode
from wtb.context import CaseView, Hear, Previous, Record
from wtb.errors import (
    BudgetReached,
    NodeTimeout,
    Rejected,
    RoutingError,
    StateError,
)
from wtb.graph import Decision
from wtb.history import Position
from wtb.plain import storable
from wtb.sharedfiles import OutOfReach
from wtb.workflow import Workflow
from wtb.workspaces import Snapshot


@dataclass(frozen=True, slots=True)
class Value:
    """A stored value: its typed JSON and the SHA-256 of it."""

    digest: str
    data: bytes

    @classmethod
    def of(cls, value: object) -> Value:
        """Raises StateError for what cannot be stored."""
        data = encode(value)
        return cls(digest(data), data)


def stored(who: str, name: str, value: object) -> Value:
    """A value that is to be stored. Raises StateError, which names the node and the key."""
    try:
        return Value.of(value)
    except StateError as error:
        raise StateError(f"{who} {name!r} cannot be stored: {error}") from error


Values = Mapping[str, Value]
BEGUN = "running"  # what is heard of an attempt that begins, and the kind of failure of one that has not ended
MESSAGE = 10_000  # characters of what an error says


_KINDS: Mapping[type[BaseException], str] = {
    NodeTimeout: "timeout",
    StateError: "state",
    RoutingError: "routing",
    Rejected: "rejected",
    BudgetReached: "budget",
}


def _kind(error: BaseException) -> str:
    try:
        if is_disk_fault(error):
            return "disk"
    except Exception:  # noqa: BLE001 - an error whose attributes are user code, too
        return "error"
    return next((word for kind, word in _KINDS.items() if issubclass(type(error), kind)), "error")


def _words(error: BaseException) -> str:
    try:
        return storable(str(error), MESSAGE)
    except BaseException as second:  # noqa: BLE001 - user code, too
        check_interrupt(second)
        return f"(its text cannot be made: {_name(second)})"


def _trace(error: BaseException) -> str:
    try:
        return storable(user_trace(error), MESSAGE)
    except Exception as second:  # noqa: BLE001 - what it reads is what user code may have replaced
        return f"(its frames cannot be shown: {_name(second)})"


def _name(error: BaseException) -> str:
    """The name of an error's type, past whatever its metaclass makes of that."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return storable(name, 200)


def check_interrupt(error: BaseException, *, own_process: bool = False) -> None:
    """Raise an error that user code seems to have raised and has not: Ctrl-C, which reaches the main thread.

    own_process: user code has a process of its own, whose terminal is nobody's.
    """
    main = threading.current_thread() is threading.main_thread()
    if isinstance(error, KeyboardInterrupt) and main and not own_process:
        raise error


def differing(values: Values, state: Values) -> dict[str, Value]:
    """Those of some values that a state does not have already."""
    return {name: value for name, value in values.items() if name not in state or state[name].digest != value.digest}


def is_disk_fault(error: BaseException) -> bool:
    """Whether a disk is full, or the shared directory of files is gone: no code is to blame."""
    full = issubclass(type(error), OSError) and getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, OutOfReach)


def disk_words(said: BaseException | Failure) -> str:
    """What to do about such a fault, as the reason why a sweep waits."""
    if OutOfReach.__name__ in (type(said).__name__, getattr(said, "type", None)):
        return f"files are out of reach ({said}): it goes on by itself when they are there again"
    return f"a disk is full ({said}): make room, and it goes on by itself"


def disk_fault(failure: Failure) -> OSError:
    """The error that such a failure was in another process."""
    if failure.type == OutOfReach.__name__:
        return OutOfReach(failure.message)
    return OSError(errno.ENOSPC, failure.message)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, in words that can be stored. `trace` holds the frames of the user's own code.

    asked: of one that waits, the keys of all questions of the attempt, in their order.

    kind: error, timeout, state, routing, budget, rejected (by a person), killed (its process ended), disk (which was
    full), or waiting (for a person).
    """

    kind: str
    type: str
    message: str
    trace: str = ""
    final: bool = False
    node: str | None = None
    asked: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException, *, final: bool = False, node: str | None = None) -> Failure:
        return cls(_kind(error), _name(error), _words(error), _trace(error), final, node)

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"node {self.node!r}: {text}" if self.node else text


@dataclass(frozen=True, slots=True)
class Root:
    """Whose beginning, or whose step, it is. params: of the workflow, overridden by the sweep."""

    case: CaseView
    repeat: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of a node run.

    number, key: which task of its node it is, and the key of that; the node's name where it has only this one.
    workspace: the snapshot that it starts with. allowed: bytes of new files that it may leave; None is no limit.
    join: asks for the step to be joined too, where this is its only node run. draws: the attempt whose random numbers
    it has, where it starts again with an answer.
    answers: of people, to what was asked at this checkpoint. asked: what the attempt before this one asked, in its
    order. saved: what `ctx.checkpoint` kept of this visit before. done: tool calls of this node run that are not to be
    made again, in their order. interactive: people answer in place of models. mode: what the run says of that, where it
    does. nobody: no person is there to ask. fine: a checkpoint after each tool call. hear: is told what the attempt
    spends and says at once. failed: attempts before this one, of those that the node's rules allow.
    execution, token: whose attempt it is, under which claim.
    """

    node: str
    variant: str
    state: Values
    position: Position
    case: CaseView
    repeat: int = 0
    attempt: int = 1
    failed: int = 0
    draws: int | None = None
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    previous: Previous | None = None
    timeout: float | None = None
    workspace: str | None = None
    allowed: int | None = None
    join: bool = False
    answers: Answers = field(default_factory=dict)
    saved: Values = field(default_factory=dict)
    done: Sequence[Mapping[str, Any]] = ()
    interactive: bool = False
    mode: str | None = None
    nobody: bool = False
    fine: bool = False
    allowance: Allowance | None = None
    execution: str = ""
    token: int = 0
    hear: Hear | None = field(default=None, compare=False)
    number: int = 0
    key: str = ""
    asked: tuple[Question, ...] = ()

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self.node)

    def begun(self) -> None:
        """Tell whoever hears that the attempt begins now, and no longer waits for a place to run."""
        if self.hear is not None:
            self.hear(BEGUN, None)

    @property
    def root(self) -> Root:
        return Root(self.case, self.repeat, self.params, self.seed)


@dataclass(frozen=True, slots=True)
class Joined:
    """A beginning, or a step joined: the keys that changed or are gone, and where the head stands now."""

    changed: Values
    position: Position
    decisions: tuple[Decision, ...] = ()
    dropped: tuple[str, ...] = ()

    def after(self, state: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
        """A state with what changed of it, and without what was dropped: values, or the hashes of them."""
        found = {**state, **changed}
        for name in self.dropped:
            found.pop(name, None)
        return found


@dataclass(slots=True)
class Result:
    """What an attempt came to. Exactly one of `writes`, `failure` and `question` is set. Times in seconds.

    question: what it waits for; the node starts again once that was answered. asked: the keys of all its questions.

    workspace: the snapshot that it left. files: (digest, bytes) of what is new in it.
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


class AttemptWorkspace(Protocol):
    """The private directory of one attempt."""

    @property
    def path(self) -> Path: ...

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot of what is there now, and leave the directory as it is."""

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot where `keep` says so and something changed; remove the directory either way."""


class Surroundings(Protocol):
    """What an engine needs of the process that it runs in. own_process: it is user code's alone."""

    @property
    def own_process(self) -> bool: ...

    def record(self, hear: Hear | None = None) -> Record:
        """Where an attempt leaves what it spent and said; `hear` is told of it as it comes about."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a sync or async function. Raises NodeTimeout after `timeout` seconds."""

    def resources(self) -> Any:
        """What the workflow's factory made for this process."""

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        """A private directory with the files of a snapshot. `enter`: work in it, where the process can."""


Writes = Sequence[tuple[str, Values]]  # by the key of the task


class Engine(Protocol):
    """Advances a workflow: `begin`, then `run` every task of a step, then `join` what they wrote into the next one.

    begins_here: whether to begin runs no user code, so that the runner's own process does.
    """

    @property
    def workflow(self) -> Workflow: ...

    @property
    def begins_here(self) -> bool: ...

    def begin(self, state: Values, root: Root) -> Joined:
        """From the case's input to the first position, and what that does to the state."""

    def run(self, task: Task, surroundings: Surroundings) -> Result: ...

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined: ...


def engine_of(workflow: Workflow) -> Engine:
    """The engine that runs a workflow: it names the class by its import path."""
    module, _, name = workflow.engine.partition(":")
    made: Engine = getattr(importlib.import_module(module), name)(workflow)
    return made


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


def user_trace(error: BaseException) -> str:
    """The traceback without the frames of WTB, of LangGraph and of what waits for other threads: the user's own."""
    here = str(Path(__file__).parent) + os.sep
    loaded = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures", "langgraph", "langchain_core"))
    others = tuple(folder + os.sep for module in loaded if module is not None for folder in module.__path__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((here, *others))]
    return "".join(traceback.format_list(own))
