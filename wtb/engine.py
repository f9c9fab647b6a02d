"""The engine port, and the native engine behind it.

An engine runs user code on encoded values and nothing else: it knows no database, no lease and no queue, so that
it works the same in the runner's process, on a thread and in a child process.
"""

from __future__ import annotations

import errno
import os
import reprlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wtb.allowances import Allowance
from wtb.approvals import Answers, Asked, Question
from wtb.asking import Asking
from wtb.codec import decode, digest, encode
from wtb.context import CaseView, Context, Hear, Previous, Record, surrounding
from wtb.errors import (
    BudgetReached,
    FinalError,
    InputError,
    NodeTimeout,
    Rejected,
    RoutingError,
    StateError,
    Unanswered,
)
from wtb.graph import Decision, entry_route, route
from wtb.history import Position
from wtb.keeping import Keeping
from wtb.nodes import Variant
from wtb.plain import storable
from wtb.schema import MISSING
from wtb.sharedfiles import OutOfReach
from wtb.tools import Tool
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


Values = Mapping[str, Value]
MESSAGE = 10_000  # characters of what an error says
_FINAL = (FinalError, InputError, Rejected, Unanswered)  # trying again cannot help


class _Short(reprlib.Repr):
    """A repr that costs no more than what is shown of it."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 2000
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 100

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value[: self.maxstring])

    repr_bytearray = repr_bytes


_short = _Short()


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - user code, too
        return f"(its text cannot be made: {type(second).__name__})"


def is_disk_fault(error: BaseException) -> bool:
    """Whether a disk is full, or the shared directory of files is gone: no code is to blame."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, OutOfReach)


def disk_words(said: BaseException | Failure) -> str:
    """What to do about such a fault, as the reason of a stop."""
    if OutOfReach.__name__ in (type(said).__name__, getattr(said, "type", None)):
        return f"files are out of reach ({said}): mend that, then resume"
    return f"a disk is full ({said}): make room, then resume"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, in words that can be stored. `trace` holds the frames of the user's own code.

    kind: error, timeout, state, routing, budget, rejected (by a person), killed (its process ended), disk (which was
    full), or waiting (for a person).
    """

    kind: str
    type: str
    message: str
    trace: str = ""
    final: bool = False
    node: str | None = None

    @classmethod
    def of(cls, error: BaseException, *, final: bool = False, node: str | None = None) -> Failure:
        kinds = {NodeTimeout: "timeout", StateError: "state", RoutingError: "routing", Rejected: "rejected"}
        kinds[BudgetReached] = "budget"
        kind = next((word for cls_, word in kinds.items() if isinstance(error, cls_)), "error")
        if is_disk_fault(error):
            kind = "disk"
        return cls(
            kind,
            type(error).__name__,
            storable(_words(error), MESSAGE),
            storable(user_trace(error), MESSAGE),
            final,
            node,
        )

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"node {self.node!r}: {text}" if self.node else text


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of a node run.

    workspace: the snapshot that it starts with. allowed: bytes of new files that it may leave; None is no limit.
    join: asks for the step to be joined too, where this is its only node run. draws: the attempt whose random numbers
    it has, where it starts again with an answer.
    answers: of people, to what was asked at this checkpoint. saved: what `ctx.checkpoint` kept of this visit before.
    done: tool calls of this node run that are not to be made again, in their order. interactive: people answer in
    place of models. mode: what the run says of that, where it does. nobody: no person is there to ask. fine: a
    checkpoint after each tool call. hear: is told what the attempt spends and says at once.
    execution, token: whose attempt it is, under which claim.
    """

    node: str
    variant: str
    state: Values
    position: Position
    case: CaseView
    repeat: int = 0
    attempt: int = 1
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


@dataclass(frozen=True, slots=True)
class Joined:
    """A step joined: the keys that changed, and where the head stands now."""

    changed: Values
    position: Position
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Result:
    """What an attempt came to. Exactly one of `writes`, `failure` and `question` is set. Times in seconds.

    question: what it waits for; the node starts again once that was answered.

    workspace: the snapshot that it left. files: (digest, bytes) of what is new in it.
    """

    started_at: float
    duration_s: float
    record: Record
    writes: Values | None = None
    failure: Failure | None = None
    question: Question | None = None
    workspace: str | None = None
    joined: Joined | Failure | None = None
    files: tuple[tuple[str, int], ...] = ()
    stdout: str | None = None
    stderr: str | None = None


class AttemptWorkspace(Protocol):
    """The private directory of one attempt."""

    @property
    def path(self) -> Path: ...

    def take(self, *, allowed: int | None = None) -> Snapshot:
        """Take a snapshot of what is there now, and leave the directory as it is."""

    def close(self, *, keep: bool, allowed: int | None = None) -> Snapshot:
        """Take a snapshot where `keep` says so and something changed; remove the directory either way."""


class Surroundings(Protocol):
    """What an engine needs of the process that it runs in."""

    def record(self, hear: Hear | None = None) -> Record:
        """Where an attempt leaves what it spent and said; `hear` is told of it as it comes about."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a sync or async function. Raises NodeTimeout after `timeout` seconds."""

    def resources(self) -> Any:
        """What the workflow's factory made for this process."""

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        """A private directory with the files of a snapshot. `enter`: work in it, where the process can."""


class Engine(Protocol):
    """Advances a workflow: `begin`, then `run` every next node, then `join` what they wrote into the next step."""

    def begin(self) -> Position: ...

    def run(self, task: Task, surroundings: Surroundings) -> Result: ...

    def join(self, state: Values, position: Position, writes: Sequence[tuple[str, Values]]) -> Joined: ...


def join(engine: Engine, state: Values, position: Position, writes: Sequence[tuple[str, Values]]) -> Joined | Failure:
    """Join a step. Reducers and branches are user code: what they raise is kept as a failure."""
    try:
        return engine.join(state, position, writes)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary between user code and the runner
        return Failure.of(error)


class NativeEngine:
    """Runs workflows that are written with `wtb.Workflow`."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._looks_at_state = {b.source for b in workflow.branches} | {
            source for edge in workflow.edges if edge.when is not None for source in edge.sources
        }

    def begin(self) -> Position:
        return Position(0, entry_route(self.workflow).next)

    def run(self, task: Task, surroundings: Surroundings) -> Result:
        """Run one attempt on a freshly decoded copy of the state. Never raises for what user code does."""
        variant = self.workflow.nodes[task.node].variants[task.variant]
        result = Result(time.time(), 0.0, surroundings.record(task.hear), workspace=task.workspace)
        workspace: AttemptWorkspace | None = None
        keeping: Keeping | None = None
        asking = Asking(task.node, task.answers, task.nobody)
        clock = time.perf_counter()
        try:
            workspace = surroundings.workspace(task.workspace, enter=True)
            keeping = _keeping(task, result.record, workspace)
            context = _context(task, result.record, surroundings.resources, workspace, keeping, self.workflow.tools)
            context.asking = asking
            clock = time.perf_counter()
            result.writes = self._write(task, variant, context, surroundings)
        except Asked as asked:
            result.question = asked.question
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary between user code and the runner
            final = isinstance(error, (*_FINAL, *self.workflow.nodes[task.node].rules.final))
            result.failure = Failure.of(error, final=final, node=task.node)
        result.duration_s = time.perf_counter() - clock
        if asking.asked is not None:  # whatever the node's own code made of it
            result.writes, result.failure, result.question = None, None, asking.asked
        if workspace is not None:
            try:
                allowed = task.allowed if keeping is None else keeping.allowed
                left = workspace.close(keep=result.writes is not None, allowed=allowed)
                result.workspace, result.files = left.digest, left.new
            except (StateError, OSError) as error:
                result.writes, result.question = None, None
                result.failure = Failure.of(error, final=True, node=task.node)
        if task.join and result.writes is not None:
            result.joined = join(self, task.state, task.position, [(task.node, result.writes)])
        return result

    def _write(self, task: Task, variant: Variant, context: Context, surroundings: Surroundings) -> Values:
        schema = self.workflow.schema
        state = schema.view({name: decode(value.data) for name, value in task.state.items()})
        arguments = (state, context) if variant.takes_context else (state,)
        with surrounding(context):
            update = surroundings.call(variant.fn, *arguments, timeout=task.timeout, **variant.params)
        if update is None:
            return {}
        who = f"node {task.node!r}"
        if not isinstance(update, Mapping):
            raise StateError(
                f"{who} returned {type(update).__name__}; expected a dict of the keys that it writes, or None"
            )
        try:
            schema.check_keys(update, who)
            writes = {}
            for name, value in update.items():
                schema.check_value(name, value, who)
                writes[name] = _stored(who, name, value)
        except StateError:
            if context.record.output is None:
                context.leave(output=storable(_short.repr(update)[:2000]))
            raise
        return writes

    def join(self, state: Values, position: Position, writes: Sequence[tuple[str, Values]]) -> Joined:
        """Join what the nodes of one step wrote, in the order of their declaration, and find what comes next.

        Raises StateError where two nodes wrote a key that has no reducer, RoutingError where nothing leads on, and
        whatever a reducer or branch function raises.
        """
        changed: dict[str, Value] = {}
        wrote: dict[str, str] = {}
        for node, update in writes:
            for name, value in update.items():
                key = self.workflow.schema.keys.get(name)
                if key is not None and key.reducer is not None:
                    current = changed.get(name) or state.get(name)
                    start = decode(current.data) if current else key.empty()
                    new = decode(value.data)
                    merged = key.reduce(start, new) if start is not MISSING else new
                    changed[name] = _stored(f"the reducer, on the write of node {node!r}, of", name, merged)
                elif name in wrote:
                    raise StateError(
                        f"nodes {wrote[name]!r} and {node!r} both wrote key {name!r} in one step: give the key a "
                        f"reducer, such as Annotated[list, operator.add], or let only one of them write it"
                    )
                else:
                    changed[name] = value
                wrote[name] = node
        changed = {n: v for n, v in changed.items() if n not in state or state[n].digest != v.digest}
        ran = [node for node, _ in writes]
        followed = route(self.workflow, ran, position.arrived, self._routing_view(ran, {**state, **changed}))
        if followed.next and position.step + 1 >= self.workflow.max_steps:
            raise RoutingError(
                f"still going after {position.step + 1} steps, next {', '.join(map(repr, followed.next))}: "
                f"a loop that does not end? Workflow(max_steps=...) raises the limit"
            )
        visits = {**position.visits, **{node: position.visits.get(node, 0) + 1 for node in ran}}
        return Joined(changed, Position(position.step + 1, followed.next, followed.arrived, visits), followed.decisions)

    def _routing_view(self, ran: Sequence[str], state: Values) -> Any:
        if self._looks_at_state.isdisjoint(ran):
            return None
        return self.workflow.schema.view({name: decode(value.data) for name, value in state.items()})


def _keeping(task: Task, record: Record, workspace: AttemptWorkspace) -> Keeping:
    return Keeping(workspace, record, task.allowed, {name: value.data for name, value in task.saved.items()})


def _context(
    task: Task,
    record: Record,
    resources_of: Callable[[], Any],
    workspace: AttemptWorkspace,
    keeping: Keeping,
    tools: Mapping[str, Tool],
) -> Context:
    return Context(
        case=task.case,
        node=task.node,
        variant=task.variant,
        repeat=task.repeat,
        visit=task.position.visits.get(task.node, 0),
        attempt=task.attempt,
        draws=task.draws,
        seed=task.seed,
        params=task.params,
        interactive=task.interactive,
        mode=task.mode,
        previous=task.previous,
        record=record,
        resources_of=resources_of,
        workspace_of=lambda: workspace.path,
        known_tools=tools,
        done=task.done,
        keeping=keeping,
        fine=task.fine,
        allowance=task.allowance,
    )


def _stored(who: str, name: str, value: object) -> Value:
    try:
        return Value.of(value)
    except StateError as error:
        raise StateError(f"{who} key {name!r} cannot be stored: {error}") from error


def user_trace(error: BaseException) -> str:
    """The traceback without the frames of WTB and of what waits for other threads: the user's own frames."""
    here = str(Path(__file__).parent) + os.sep
    loaded = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures"))
    waiting = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in loaded if module is not None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((here, *waiting))]
    return "".join(traceback.format_list(own))
