"""A node process that many node runs share: one event loop for those of async nodes, a thread for each other one."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar

from wtb.authoring.code.event_loop import LoopThread
from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.authoring.context.surroundings import AttemptWorkspace
from wtb.core.failures import Failure
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Awaited, Engine, Result, Task, begin, join
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.deadlines import COROUTINE, FILES
from wtb.execution.sandbox.framing import Channel, Frame
from wtb.execution.sandbox.shared.global_functions import ask_for_directory
from wtb.execution.sandbox.shared.loop_watch import LoopWatch
from wtb.execution.sandbox.shared.shared_globals import SharedGlobals
from wtb.execution.sandbox.shared.shared_run import SharedRun, current_run
from wtb.execution.sandbox.shared.verdict import CLEAN, Verdict
from wtb.execution.sandbox.shared.working_directories import Directories

T = TypeVar("T")


class SharedSurroundings(Surroundings):
    """A shared node process, as an engine sees it during one attempt. process: what all of them share."""

    own_process = True

    def __init__(self, run: SharedRun, process: Surroundings, directories: Directories) -> None:
        super().__init__(run, None, process.workspaces)
        self._run = run
        self._process = process
        self._directories = directories

    def record(self, on_event: OnEvent | None = None) -> Record:
        return Record(on_event=self._run.report)

    def resources(self) -> Any:
        return self._process.resources()

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        if enter and self._directories.is_own:
            return self._directories.enter(self.workspaces, snapshot)
        return super().workspace(snapshot)


class ContextThreads(ThreadPoolExecutor):
    """Threads of `loop.run_in_executor(None, ...)`: what is printed there belongs to the node run that asked, too."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class Shared(NamedTuple):
    """What all attempts of a process share. params: of the workflow."""

    engine: Engine
    params: Any
    process: Surroundings


class SharedServer:
    """Answers the runner. places: how many attempts there may be at a time.

    is_async: whether these are of async nodes; the threads of others have working directories of their own.
    is_spent: whether the process is to be replaced.
    """

    def __init__(
        self,
        channel: Channel,
        shared: Shared,
        loop: LoopThread,
        is_spent: Callable[[], bool],
        places: int,
        *,
        is_async: bool,
    ) -> None:
        self._channel = channel
        self._engine, self._params, self._process = shared
        self._loop = loop
        self._is_spent = is_spent
        self._directories = Directories()
        ask_for_directory(lambda: self._directories.is_own)
        self._runs: dict[int, SharedRun] = {}
        self._globals = SharedGlobals(self._engine.workflow)
        detach = (lambda: None) if is_async else self._directories.detach
        self._is_async = is_async
        self._threads = ThreadPoolExecutor(places, "wtb-run", detach)
        loop.on_dead = _end_process
        executor = ContextThreads(thread_name_prefix="wtb-executor")
        loop.loop.call_soon_threadsafe(loop.loop.set_default_executor, executor)
        self._watch = LoopWatch(channel, loop.loop, lambda: not self._runs)

    def serve(self) -> None:
        """Serve the runner until that closes the channel."""
        while (frame := self._channel.receive()) is not None:
            if frame.kind == "ping":
                self._channel.send("pong", frame.head)
            elif frame.kind == "cancel":
                if (cancelled := self._runs.get(frame.head)) is not None:
                    cancelled.cancel()
            else:
                number, head = frame.head
                run = self._runs[number] = SharedRun(self._channel, number, self._loop)
                self._watch.wanted.set()
                self._take(run, Frame(frame.kind, head, frame.blobs))
        os._exit(0)  # without waiting for what still runs

    def _take(self, run: SharedRun, asked: Frame) -> None:
        """Have the event loop, or a thread, do what is asked for."""
        context = copy_context()
        context.run(current_run.set, run)
        if asked.kind == "run" and self._is_async:
            begin = partial(_guarded, self._begin_attempt, run, asked, context)
            self._loop.loop.call_soon_threadsafe(begin, context=context)
        else:
            self._threads.submit(context.run, _guarded, self._do, run, asked)

    def _do(self, run: SharedRun, asked: Frame) -> None:
        """Begin, join a step, or make an attempt, on this thread."""
        if asked.kind == "begin":
            joined = begin(self._engine, *messages.as_beginning(asked, self._params))
        elif asked.kind == "join":
            joined = join(self._engine, *messages.as_step(asked, self._params))
        else:
            self._make_attempt(run, self._task(run, asked))
            return
        self._send(run, "joined", messages.joined(joined), CLEAN)

    def _task(self, run: SharedRun, asked: Frame) -> Task:
        task = messages.as_task(asked, self._params)
        run.node, run.variant = task.node, task.variant
        self._globals.begin(run)
        return task

    def _make_attempt(self, run: SharedRun, task: Task) -> None:
        self._send_result(run, self._engine.run(task, self._surroundings(run)))

    def _surroundings(self, run: SharedRun) -> SharedSurroundings:
        return SharedSurroundings(run, self._process, self._directories)

    def _begin_attempt(self, run: SharedRun, asked: Frame, context: Context) -> None:
        """Begin an attempt whose coroutine the loop awaits, or give it to a thread. context: the present one."""
        task = self._task(run, asked)
        attempt = self._engine.awaited(task, self._surroundings(run))
        if attempt is None:
            self._threads.submit(copy_context().run, _guarded, self._make_attempt, run, task)
            return
        try:
            call = attempt.begin()
            if task.timeout is not None:
                run.enter_phase(COROUTINE)
            future = run.begin(call(), task.timeout).future
        except BaseException as error:  # noqa: BLE001 - what user code raises before its first step, such as a full disk
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._await_ended, run, task, attempt, context))

    def _await_ended(self, run: SharedRun, task: Task, attempt: Awaited, context: Context, future: Future[Any]) -> None:
        """End an attempt whose coroutine has ended, on a thread if that may take a while."""
        if task.timeout is not None:
            run.enter_phase(FILES)
        end = partial(context.run, _guarded, self._end_attempt, run, attempt, future)
        if attempt.may_end_slowly:
            self._threads.submit(end)
        else:
            _guarded(end)

    def _end_attempt(self, run: SharedRun, attempt: Awaited, future: Future[Any]) -> None:
        self._send_result(run, attempt.end(future.result))

    def _send_result(self, run: SharedRun, result: Result) -> None:
        verdict = self._judge(run, result.failure)
        self._send(run, "result", messages.result(result), self._globals.end(run, verdict, result.record.usd))

    def _send(self, run: SharedRun, kind: str, head: Any, verdict: Verdict) -> None:
        """Send what a run came to, and whether this process is spent."""
        run.flush()
        self._runs.pop(run.number)
        spent = self._is_spent() or self._directories.is_left() or self._globals.is_changed
        self._channel.send(kind, [run.number, [spent, verdict.head()], head])

    def _judge(self, run: SharedRun, failure: Failure | None) -> Verdict:
        """Find out whether an attempt came to what it came to because of a neighbour."""
        if run.is_cancelled:
            return CLEAN
        if run.has_intruded():
            return Verdict("it cancelled tasks of other node runs in its process", run.number)
        if (intruder := run.intruder()) is not None:
            return Verdict(
                f"a run of node {intruder.node!r}, with which it shared its process, cancelled it", intruder.number
            )
        if failure is None:
            return CLEAN
        if failure.type == "CancelledError":
            return Verdict("it was cancelled, perhaps by another node run in its process")
        if "timeout" in failure.type.lower() and (block := self._watch.block_during(run)) is not None:
            culprit = None if block.run is None else block.run.number
            return Verdict(f"it timed out ({failure.type}) while something else blocked the event loop", culprit)
        return CLEAN


def _end_process(error: BaseException) -> None:
    """End this process: it can answer nobody any more."""
    traceback.print_exception(error, file=sys.__stderr__)
    os._exit(70)


def _guarded(work: Callable[..., object], *arguments: Any) -> None:
    """Do a part of the work of this process. Its faults end the process: nobody would answer the runner."""
    try:
        work(*arguments)
    except BaseException as error:  # noqa: BLE001
        _end_process(error)
