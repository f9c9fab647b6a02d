"""What every engine does around one attempt: its workspace, its context, its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from wtb.authoring.context.ask import Questioner
from wtb.authoring.context.attempt_record import Record, decoded
from wtb.authoring.context.checkpoints import CheckpointTaker
from wtb.authoring.context.connections import watched
from wtb.authoring.context.node_context import Context
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


def attempted(
    engine: Engine,
    task: Task,
    surroundings: Surroundings,
    tools: Mapping[str, Tool],
    perform: Callable[[Context], Values],
    is_final: Callable[[BaseException], bool],
) -> Result:
    """What every engine does around one attempt. Never raises for what user code does.

    perform: runs the user's code on a freshly decoded copy of the state, and returns what it wrote. is_final: whether
    an error that it raised will come again; it may call the user's code, too.
    """
    result = Result(time.time(), 0.0, surroundings.record(task.on_event), workspace=task.workspace)
    workspace: AttemptWorkspace | None = None
    checkpoints: CheckpointTaker | None = None
    context: Context | None = None
    questioner = Questioner(task.key, task.answers, task.settings.nobody)
    clock = time.perf_counter()
    try:
        workspace = surroundings.workspace(task.workspace, enter=True)
        saved = {name: value.data for name, value in task.saved.items()} if task.saved else {}
        checkpoints = CheckpointTaker(workspace, result.record, task.allowed, saved, before=task.workspace)
        context = _context(task, result.record, surroundings.resources, workspace, checkpoints, tools)
        context.questioner = questioner
        if task.settings.policies is not None:
            context.tool_gate = _tool_gate(task, task.settings.policies, result.record, questioner)
        checkpoints.until = None if task.timeout is None else time.monotonic() + task.timeout
        clock = time.perf_counter()
        acts = nullcontext() if task.settings.policies is None else _acts_guarded(task, context, surroundings)
        by_time = timed_checkpoints(checkpoints, task.settings.checkpoint_every, result.record)
        with by_time, watched(context, owns_process=surroundings.own_process), acts:
            result.writes = perform(context)
        context.failed_calls.report(result.record)
    except Asked as asked:
        result.question = asked.question
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error, own_process=surroundings.own_process)
        result.failure = _failure(error, is_final, task.node)
    result.duration_s = max(0.0, time.perf_counter() - clock - (0.0 if context is None else context.unclocked_s))
    if questioner.interrupts:
        result.asked = tuple([question.key for question in questioner.interrupts])
    if questioner.asked is not None:  # whatever the node's own code made of it
        result.writes, result.failure, result.question = None, None, questioner.asked
    if workspace is not None:
        try:
            allowed, until = (task.allowed, None) if checkpoints is None else (checkpoints.allowed, checkpoints.until)
            left = workspace.close(keep=result.writes is not None, allowed=allowed, until=until)
            result.workspace, result.files = left.digest, left.new
        except (StateError, NodeTimeout, OSError) as error:
            result.writes, result.question = None, None
            late = isinstance(error, NodeTimeout)
            result.failure = Failure.of(error, final=not late, node=task.node)
    if task.join and result.writes is not None:
        result.joined = join(engine, task.state, task.position, [(task.key, result.writes)], task.root)
    return result


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
