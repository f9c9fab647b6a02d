"""The common part of an attempt in every engine: workspace, context, end; and the warm-up before the first one."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

from wtb.authoring.code.calling import lag_of_loop
from wtb.authoring.code.walk import names_in
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import CaseView, Record, decoded
from wtb.authoring.context.connections import watched
from wtb.authoring.context.node_context import Context, surrounding
from wtb.authoring.context.surroundings import AttemptWorkspace, CheckpointTaker, Surroundings
from wtb.authoring.context.usage import load_prices
from wtb.authoring.tools import Gate, Tool
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import FinalError, InputError, NodeTimeout, Rejected, StateError, Unanswered
from wtb.core.failures import MESSAGE, Failure, check_interrupt
from wtb.core.questions import Asked
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import storable
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Value, Values
from wtb.execution.engine.protocol import Engine, Result, Root, Task, join


@contextmanager
def timed_checkpoints(taker: CheckpointTaker, every: float | None, record: Record) -> Iterator[None]:
    """Take a checkpoint every so many seconds while the block runs, if something changed since the last one.

    Checkpoints that the node takes with `ctx.checkpoint` count as well. The thread ends with the block.

    Args:
        taker: Takes the checkpoints of the attempt.
        every: Seconds between two; None for none.
        record: Where a checkpoint that cannot be taken is logged, once for each reason.
    """
    if every is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_take, args=(taker, every, record, ended), name="wtb-checkpoints", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A checkpoint must not read the workspace while it is closed.
        thread.join()


def _take(taker: CheckpointTaker, every: float, record: Record, ended: threading.Event) -> None:
    reasons: set[str] = set()
    wait = every
    while not ended.wait(wait):
        wait = taker.due_in(every)
        if wait > 0:  # the node has taken one itself
            continue
        wait = every
        try:
            taker.take_changed()
        except (StateError, NodeTimeout, OSError) as error:
            if (reason := str(error)) not in reasons:
                reasons.add(reason)
                message = f"no checkpoint was taken by time: {reason}"
                record.report("event", ["node.log", time.time(), {"message": message, "level": "warning"}])


_FINAL = (FinalError, InputError, Rejected, Unanswered)  # trying again cannot help


class OpenAttempt:
    """An attempt from its beginning to its end: its workspace, its context and its result.

    Args:
        engine: The engine that makes it.
        task: The attempt.
        surroundings: The process that it runs in.
        tools: The tools of the workflow.
        is_final: Returns whether an error that it raised will come again. It may call the user's code, too.
    """

    def __init__(
        self,
        engine: Engine,
        task: Task,
        surroundings: Surroundings,
        tools: Mapping[str, Tool],
        is_final: Callable[[BaseException], bool],
    ) -> None:
        self._engine = engine
        self._task = task
        self._surroundings = surroundings
        self._tools = tools
        self._is_final = is_final
        self._result = Result(time.time(), 0.0, surroundings.record(task.on_event), workspace=task.workspace)
        self._questioner = Questioner(task.key, task.answers, task.settings.nobody)
        self._stack = ExitStack()
        self._workspace: AttemptWorkspace | None = None
        self._checkpoints: CheckpointTaker | None = None
        self._context: Context | None = None
        self._clock = time.perf_counter()

    @property
    def has_files(self) -> bool:
        """True if the attempt has a directory, so that its end reads and removes files."""
        return self._workspace is not None and self._workspace.is_open

    def begin(self) -> Context:
        """Open the workspace, and return the context that the user's code is called with. Call it in `end` only."""
        task, surroundings, record = self._task, self._surroundings, self._result.record
        self._workspace = workspace = surroundings.workspace(task.workspace, enter=True)
        saved = {name: value.data for name, value in task.saved.items()} if task.saved else {}
        self._checkpoints = checkpoints = CheckpointTaker(workspace, record, task.allowed, saved, before=task.workspace)
        self._context = context = _context(task, record, surroundings.resources, workspace, checkpoints, self._tools)
        context.questioner = self._questioner
        if task.settings.policies is not None:
            context.tool_gate = _tool_gate(task, task.settings.policies, record, self._questioner)
        # Files of checkpoints are hashed within the node's deadline, like its own work.
        checkpoints.until = None if task.timeout is None else time.monotonic() + task.timeout
        self._clock = time.perf_counter()
        enter = self._stack.enter_context
        enter(timed_checkpoints(checkpoints, task.settings.checkpoint_every, record))
        enter(watched(context, owns_process=surroundings.own_process))
        if task.settings.policies is not None:
            enter(_acts_guarded(task, context, surroundings))
        enter(surrounding(context))
        return context

    def end(self, work: Callable[[], Values]) -> Result:
        """Return the result of the attempt. Never raises for what user code does.

        Args:
            work: Runs the user's code on a freshly decoded copy of the state. Returns the writes, or raises its error.
        """
        outcome, surroundings = self._result, self._surroundings
        try:
            with self._stack:
                outcome.writes = work()
            if self._context is not None:
                self._context.failed_calls.report(outcome.record)
        except Asked as request:
            outcome.question = request.question
        except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
            check_interrupt(error, own_process=surroundings.own_process)
            outcome.failure = _failure(error, self._is_final, self._task.node)
        outcome.duration_s = self._duration_s()
        outcome.lag_s = None if self._context is None else self._context.lag_s
        if self._questioner.interrupts:
            outcome.asked = tuple([question.key for question in self._questioner.interrupts])
        # The attempt waits even if the node's own code caught the exception and went on.
        if self._questioner.pending is not None:
            outcome.writes, outcome.failure, outcome.question = None, None, self._questioner.pending
        self._close_workspace()
        task = self._task
        if task.join and outcome.writes is not None:
            outcome.joined = join(self._engine, task.state, task.position, [(task.key, outcome.writes)], task.root)
        return outcome

    def _duration_s(self) -> float:
        """Return the seconds of the call: around the await if the user's code is async."""
        context = self._context
        if context is None:
            return max(0.0, time.perf_counter() - self._clock)
        seconds = time.perf_counter() - self._clock if context.awaited_s is None else context.awaited_s
        return max(0.0, seconds - context.unclocked_s)

    def _close_workspace(self) -> None:
        """Keep the files of an attempt that wrote something, and remove its directory."""
        outcome, workspace, checkpoints = self._result, self._workspace, self._checkpoints
        if workspace is None:
            return
        try:
            allowed, until = (self._task.allowed, None)
            if checkpoints is not None:
                allowed, until = checkpoints.allowed, checkpoints.until
            snapshot = workspace.close(keep=outcome.writes is not None, allowed=allowed, until=until)
            outcome.workspace, outcome.files = snapshot.digest, snapshot.new
        except (StateError, NodeTimeout, OSError) as error:
            outcome.writes, outcome.question = None, None
            late = isinstance(error, NodeTimeout)
            outcome.failure = Failure.of(error, final=not late, node=self._task.node)


@dataclass(eq=False)
class AwaitedAttempt:
    """An attempt in two parts, before and after the await of the user's coroutine.

    Both parts must run in the same `contextvars.Context`.

    Attributes:
        attempt: The attempt.
        call_of: Returns the call of the user's code.
        write: Turns the return value of the user's code into writes.
        joins_by_user_code: Whether the step is joined with the attempt, by reducers or branches of the user.
    """

    attempt: OpenAttempt
    call_of: Callable[[Context], Callable[[], Coroutine[Any, Any, Any]]]
    write: Callable[[Any, Context], Values]
    joins_by_user_code: bool = field(kw_only=True)
    _context: Context = field(init=False, repr=False)

    @property
    def may_end_slowly(self) -> bool:
        """True if the end reads files or runs sync user code, which must not hold up an event loop."""
        return self.joins_by_user_code or self.attempt.has_files

    def begin(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Return the call to await. If this raises, end the attempt with the error."""
        self._context = self.attempt.begin()
        return self.call_of(self._context)

    def end(self, returned: Callable[[], Any]) -> Result:
        """Return the result. Never raises for what user code does.

        Args:
            returned: Returns the result of the call, or raises its error.
        """
        return self.attempt.end(lambda: self.write(returned(), self._context))


async def clocked(context: Context, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Await a call of user code, and note the seconds that it takes, and how late the event loop is meanwhile."""
    lag = lag_of_loop()
    before = None if lag is None else lag.read()
    started = time.perf_counter()
    try:
        return await call()
    finally:
        context.awaited_s = (context.awaited_s or 0.0) + time.perf_counter() - started
        if lag is not None and before is not None:
            context.lag_s = lag.mean_since(before)


def attempted(
    engine: Engine,
    task: Task,
    surroundings: Surroundings,
    tools: Mapping[str, Tool],
    perform: Callable[[Context], Values],
    is_final: Callable[[BaseException], bool],
) -> Result:
    """Make an attempt on this thread. Never raises for what user code does.

    Args:
        engine: The engine that makes it.
        task: The attempt.
        surroundings: The process that it runs in.
        tools: The tools of the workflow.
        perform: Runs the user's code on a freshly decoded copy of the state, and returns what it wrote.
        is_final: Returns whether an error that it raised will come again. It may call the user's code, too.

    Returns:
        The result of the attempt.
    """
    attempt = OpenAttempt(engine, task, surroundings, tools, is_final)
    return attempt.end(lambda: perform(attempt.begin()))


def _failure(error: BaseException, is_final: Callable[[BaseException], bool], node: str) -> Failure:
    """Make the failure of an attempt that raised. It is final if the retry policy itself fails.

    Failures of providers are repeated whatever that policy is, unless the node raises a FinalError.
    """
    try:
        failure = Failure.of(error, final=isinstance(error, _FINAL), node=node)
        if failure.final or failure.kind == "provider":
            return failure
        return replace(failure, final=is_final(error))
    except BaseException as broken:  # noqa: BLE001 - a retry policy's `retry_on` is user code
        check_interrupt(broken)
        failure = Failure.of(error, final=True, node=node)
        why = f"the retry policy failed: {Failure.of(broken)}"
        return replace(failure, message=storable(f"{failure.message} ({why})", MESSAGE))


def _acts_guarded(task: Task, context: Context, surroundings: Surroundings) -> AbstractContextManager[None]:
    """Check files, hosts and programs against policies during the block, if any policy is about them."""
    from wtb.authoring.cedar_policies import CALL, read_policies
    from wtb.authoring.context.policy_gates import ActGate, guarded

    policies = read_policies(task.settings.policies or "")
    if policies.actions <= {CALL}:
        return nullcontext()
    gate = ActGate(policies, _facts(task), context.record, surroundings.own_folders)
    return guarded(gate, owns_process=surroundings.own_process)


def _facts(task: Task) -> dict[str, str]:
    """Return the facts of an attempt that policies can refer to."""
    return {"node": task.node, "variant": task.variant, "case": task.root.case.id}


def _tool_gate(task: Task, policies: str, record: Record, questioner: Questioner) -> Gate | None:
    """Make the gate that checks calls of an attempt against policies; None if no policy is about calls."""
    from wtb.authoring.cedar_policies import CALL, read_policies  # which few sweeps need
    from wtb.authoring.context.policy_gates import ToolGate

    parsed_policies = read_policies(policies)
    if CALL not in parsed_policies.actions:
        return None
    return ToolGate(parsed_policies, _facts(task), record, questioner, task.earlier)


def _context(
    task: Task,
    record: Record,
    resources_of: Callable[[], Any],
    workspace: AttemptWorkspace,
    checkpoints: CheckpointTaker,
    tools: Mapping[str, Tool],
) -> Context:
    root, settings = task.root, task.settings
    return Context(
        case=root.case,
        node=task.node,
        variant=task.variant,
        task=task.key,
        repeat=root.repeat,
        visit=task.position.visits.get(task.node, 0),
        attempt=task.attempt,
        draws=task.draws,
        seed=root.seed,
        params=root.params,
        interactive=settings.interactive,
        mode=settings.mode,
        previous=decoded(task.previous),
        record=record,
        resources_of=resources_of,
        workspace_of=lambda: workspace.path,
        known_tools=tools,
        done=task.done,
        checkpoint_taker=checkpoints,
        fine=settings.fine,
        allowance=task.allowance,
        trace=task.trace,
    )


_PRICED = frozenset({"call", "cost", "record_calls", "complete"})  # what asks for prices


def warm_up(engine: Engine, surroundings: Surroundings) -> None:
    """Make resources, load modules that nodes will need, and make one attempt without a node.

    Raises WTBError if the resources cannot be made.
    """
    surroundings.resources()
    functions = list(_functions(engine.workflow))
    if any(not _PRICED.isdisjoint(names_in(function.__code__)) for function in functions):
        load_prices()
    if any(inspect.iscoroutinefunction(function) for function in functions):
        surroundings.call(_nothing, timeout=None)  # starts the event loop
    _rehearse(engine, surroundings)


def _functions(workflow: WorkflowFacts) -> Iterator[FunctionType]:
    """Yield the functions of its nodes, and all functions in the same modules."""
    modules: dict[str, ModuleType] = {}
    for node in workflow.nodes.values():
        for variant in node.variants.values():
            function = inspect.unwrap(getattr(variant.fn, "func", variant.fn))
            if isinstance(function, FunctionType):
                yield function
            if (module := sys.modules.get(getattr(function, "__module__", ""))) is not None:
                modules[module.__name__] = module
    for module in modules.values():
        yield from (member for member in vars(module).values() if isinstance(member, FunctionType))


async def _nothing() -> None:
    pass


def _rehearse(engine: Engine, surroundings: Surroundings) -> None:
    """Make an attempt without a node. Errors in it, such as a full disk, are reported when the first node fails."""

    def perform(context: Context) -> Values:
        quiet = replace(context, record=Record())
        quiet.log("rehearsal", number=1)
        quiet.metric("rehearsal", 1.0)
        quiet.call(tool="rehearsal", prompt={"text": ["a", 1.5, None]}, response=b"bytes", usd=0.0)
        quiet.rng.random()
        stored = Value.of({"tuple": (1, 2), "set": {1}, "large": 1 << 70, "none": None})
        return {"rehearsal": Value.of(decode(stored.data))}

    task = Task("rehearsal", "default", {}, Position(0, ()), Root(CaseView("rehearsal")))
    attempted(engine, task, surroundings, {}, perform, lambda error: True)
