"""What every engine does around one attempt: its workspace, its context, its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from wtb.authoring.code.event_loop import lag_of_loop
from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import Record, decoded
from wtb.authoring.context.checkpoints import CheckpointTaker
from wtb.authoring.context.connections import watched
from wtb.authoring.context.node_context import Context, surrounding
from wtb.authoring.context.surroundings import AttemptWorkspace, Surroundings
from wtb.authoring.tools import Gate, Tool
from wtb.core.errors import FinalError, InputError, NodeTimeout, Rejected, StateError, Unanswered
from wtb.core.failures import MESSAGE, Failure, check_interrupt
from wtb.core.questions import Asked
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Values
from wtb.execution.engine.protocol import Engine, Result, Task, join
from wtb.execution.engine.timed_checkpoints import timed_checkpoints

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
        """Return whether the attempt has a directory, so that its end reads and removes files."""
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
            work: Returns what the user's code wrote, on a freshly decoded copy of the state, or raises its error.
        """
        result, surroundings = self._result, self._surroundings
        try:
            with self._stack:
                result.writes = work()
            if self._context is not None:
                self._context.failed_calls.report(result.record)
        except Asked as asked:
            result.question = asked.question
        except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
            check_interrupt(error, own_process=surroundings.own_process)
            result.failure = _failure(error, self._is_final, self._task.node)
        result.duration_s = self._duration_s()
        result.lag_s = None if self._context is None else self._context.lag_s
        if self._questioner.interrupts:
            result.asked = tuple([question.key for question in self._questioner.interrupts])
        if self._questioner.pending is not None:  # whatever the node's own code made of it
            result.writes, result.failure, result.question = None, None, self._questioner.pending
        self._close_workspace()
        task = self._task
        if task.join and result.writes is not None:
            result.joined = join(self._engine, task.state, task.position, [(task.key, result.writes)], task.root)
        return result

    def _duration_s(self) -> float:
        """Return the seconds of the call: around the await if the user's code is async."""
        context = self._context
        if context is None:
            return max(0.0, time.perf_counter() - self._clock)
        seconds = time.perf_counter() - self._clock if context.awaited_s is None else context.awaited_s
        return max(0.0, seconds - context.unclocked_s)

    def _close_workspace(self) -> None:
        """Keep the files of an attempt that wrote something, and remove its directory."""
        result, workspace, checkpoints = self._result, self._workspace, self._checkpoints
        if workspace is None:
            return
        try:
            allowed, until = (self._task.allowed, None)
            if checkpoints is not None:
                allowed, until = checkpoints.allowed, checkpoints.until
            left = workspace.close(keep=result.writes is not None, allowed=allowed, until=until)
            result.workspace, result.files = left.digest, left.new
        except (StateError, NodeTimeout, OSError) as error:
            result.writes, result.question = None, None
            late = isinstance(error, NodeTimeout)
            result.failure = Failure.of(error, final=not late, node=self._task.node)


class AwaitedAttempt:
    """An attempt in two parts: what comes before the await of the user's coroutine, and what comes after it.

    Both parts must run in the same `contextvars.Context`.

    Args:
        attempt: The attempt.
        call_of: Returns the call of the user's code.
        write: Turns what the user's code returned into what is written.
        joins_by_user_code: Whether the step is joined with the attempt, by reducers or branches of the user.
    """

    def __init__(
        self,
        attempt: OpenAttempt,
        call_of: Callable[[Context], Callable[[], Coroutine[Any, Any, Any]]],
        write: Callable[[Any, Context], Values],
        *,
        joins_by_user_code: bool,
    ) -> None:
        self._attempt = attempt
        self._call_of = call_of
        self._write = write
        self._joins_by_user_code = joins_by_user_code

    @property
    def may_end_slowly(self) -> bool:
        """Return whether the end reads files or runs sync user code, which must not hold up an event loop."""
        return self._joins_by_user_code or self._attempt.has_files

    def begin(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Return the call to await. If this raises, end the attempt with the error."""
        self._context = self._attempt.begin()
        return self._call_of(self._context)

    def end(self, returned: Callable[[], Any]) -> Result:
        """Return the result. Never raises for what user code does.

        Args:
            returned: Returns what the call returned, or raises its error.
        """
        return self._attempt.end(lambda: self._write(returned(), self._context))


async def clocked(context: Context, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Await a call of user code, and note the seconds that it takes, and how late the event loop is meanwhile."""
    lag = lag_of_loop()
    before = None if lag is None else lag.read()
    begun = time.perf_counter()
    try:
        return await call()
    finally:
        context.awaited_s = (context.awaited_s or 0.0) + time.perf_counter() - begun
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
    """The failure of an attempt that raised. It is final if the retry policy itself fails.

    Failures of providers are repeated whatever that policy is, unless the node says otherwise by a FinalError.
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
    """Hold files, hosts and programs against policies, if any is about them."""
    from wtb.authoring.policies.act_gate import ActGate, guarded
    from wtb.authoring.policies.recorded import CALL, read_policies

    known = read_policies(task.settings.policies or "")
    if known.actions <= {CALL}:
        return nullcontext()
    gate = ActGate(known, _facts(task), context.record, surroundings.own_folders)
    return guarded(gate, owns_process=surroundings.own_process)


def _facts(task: Task) -> dict[str, str]:
    """What policies can know of an attempt."""
    return {"node": task.node, "variant": task.variant, "case": task.root.case.id}


def _tool_gate(task: Task, policies: str, record: Record, questioner: Questioner) -> Gate | None:
    """What holds the calls of an attempt against policies; None if no policy is about calls."""
    from wtb.authoring.policies.recorded import CALL, read_policies  # which few sweeps need
    from wtb.authoring.policies.tool_gate import ToolGate

    known = read_policies(policies)
    if CALL not in known.actions:
        return None
    return ToolGate(known, _facts(task), record, questioner, task.earlier)


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
