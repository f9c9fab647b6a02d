"""A node process that many node runs share: a loop, which is watched for those that block it, and threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from wtb.authoring.code.calling import LoopThread
from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.authoring.context.surroundings import AttemptWorkspace
from wtb.core.failures import Failure
from wtb.execution.engine.executor import Entered, Surroundings, detach_directory
from wtb.execution.engine.protocol import Awaited, Engine, Result, Task, begin, join
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.framing import COROUTINE, FILES, Channel, Frame
from wtb.execution.sandbox.global_functions import ask_for_directory
from wtb.execution.sandbox.shared_globals import SharedGlobals
from wtb.execution.sandbox.shared_run import CLEAN, SharedRun, Verdict, current_run, place_of
from wtb.store.files.workspaces import Workspaces

NOTED_S = 0.25  # that the event loop may be blocked until a timeout of another run is no fault of that run
BLOCKED_S = 1.0  # that the event loop may be blocked until a warning names the run
LOOK_S = 0.25  # between two looks at the event loop
LATE_S = 0.02  # after which a look notes what the event loop is doing
LAGGED_S = 0.05  # of lag on average until a warning names the node that takes most of the time
WINDOW_S = 3.0  # that the average is over at least
_LOOKS = 20  # that it is over at most
_MAX_BLOCKS = 64  # blocks that are remembered


@dataclass
class Block:
    """A time during which the event loop did not turn. `run` blocked it, if it is known."""

    run: SharedRun | None
    ended: float | None = None


class Lag:
    """The recent lag of the event loop, and the nodes that it was running meanwhile."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_LOOKS)
        self._nodes: deque[str] = deque(maxlen=_LOOKS)
        self._warned: set[str] = set()

    def note(self, seconds: float) -> None:
        """Note the lag of the loop at a look."""
        self._seconds.append(seconds)

    def note_run(self, run: SharedRun, where: str) -> None:
        """Note the run of a late loop. Warn of its node, once, if that causes most of the lag.

        The run has not ended, so that its warning still belongs to an attempt.
        """
        self._nodes.append(run.node)
        total, looks = sum(self._seconds), len(self._seconds)
        if total + looks * LOOK_S < WINDOW_S or total < LAGGED_S * looks or run.node in self._warned:
            return
        mean = total / looks
        if self._nodes.count(run.node) * 2 >= len(self._nodes):
            self._warned.add(run.node)
            run.warn(
                f"node {run.node!r} holds up the event loop that it shares, at {where}: node runs wait "
                f"{mean * 1000:.0f} ms for it on average, which counts as their latency. Do less in async nodes, or "
                f"lower run.concurrency",
                where,
                lag_s=mean,
            )


class LoopWatch:
    """Finds the node run that blocks the event loop, and the place in its code. Its own thread looks."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop, is_idle: Callable[[], bool]) -> None:
        self._channel = channel
        self._loop = loop
        self._is_idle = is_idle
        self._blocks: deque[Block] = deque(maxlen=_MAX_BLOCKS)
        self.requested = threading.Event()
        self._thread_id = 0
        self._turned_at = 0.0
        self._lag = Lag()
        turned = threading.Event()
        loop.call_soon_threadsafe(self._turn, turned)
        turned.wait()
        threading.Thread(target=self._look, name="wtb-watch", daemon=True).start()

    def block_during(self, run: SharedRun) -> Block | None:
        """Return the last time that something else blocked the loop while a run ran, if there was one."""
        for block in reversed(list(self._blocks)):
            if block.run is not run and (block.ended is None or block.ended > run.began):
                return block
        return None

    def _look(self) -> None:
        turned = threading.Event()
        while True:
            self.requested.wait()
            turned.clear()
            asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._turn, turned)
            # Sampled while the loop is late, because afterwards nothing shows which run held it up.
            if not turned.wait(LATE_S):
                self._note_late()
                if not turned.wait(NOTED_S - LATE_S):
                    self._follow(turned)
            self._lag.note(self._turned_at - asked_at)
            if self._is_idle():
                self.requested.clear()
            turned.clear()
            turned.wait(LOOK_S)

    def _note_late(self) -> None:
        """Note the run of the loop, which is late."""
        frame = sys._current_frames().get(self._thread_id)
        if (run := _run_of(frame)) is not None:
            self._lag.note_run(run, place_of(frame))

    def _follow(self, turned: threading.Event) -> None:
        """Follow a block to its end, and report one that takes long."""
        frame = sys._current_frames().get(self._thread_id)
        block = Block(_run_of(frame))
        self._blocks.append(block)
        if not turned.wait(BLOCKED_S - NOTED_S):
            frame = sys._current_frames().get(self._thread_id)
            block.run = _run_of(frame) or block.run
            if block.run is not None:
                _warn(block.run, place_of(frame))
            # The runner then knows whom to blame if another run misses its deadline meanwhile.
            self._channel.send("blocked", None if block.run is None else block.run.number)
            turned.wait()
            self._channel.send("blocked", None)
        block.ended = time.monotonic()

    def _turn(self, turned: threading.Event) -> None:
        self._thread_id = threading.get_ident()
        self._turned_at = time.monotonic()
        turned.set()


def _warn(run: SharedRun, where: str) -> None:
    run.warn(
        f"node {run.node!r} holds up the event loop that it shares, for more than {BLOCKED_S:g} s, "
        f"at {where}: await long operations, or make it a sync node",
        where,
    )


def _run_of(frame: FrameType | None) -> SharedRun | None:
    """Return the node run in whose context a callback of the loop runs: asyncio keeps that in the calling frame."""
    while frame is not None:
        if frame.f_code.co_name == "_run" and isinstance(frame.f_locals.get("self"), asyncio.Handle):
            run: SharedRun | None = frame.f_locals["self"]._context.get(current_run)
            return run
        frame = frame.f_back
    return None


class Directories:
    """Working directories of the threads for sync nodes, which all return home between two attempts."""

    def __init__(self) -> None:
        self._home = os.getcwd()
        self._thread = threading.local()

    @property
    def is_own(self) -> bool:
        """True if this thread has a working directory of its own."""
        return getattr(self._thread, "is_own", False)

    def detach(self) -> None:
        """Give this thread a working directory of its own, if the system can."""
        self._thread.is_own, self._thread.empty = detach_directory(), None

    def enter(self, workspaces: Workspaces, snapshot: str | None) -> Entered:
        """Work in a workspace; one that was left empty is used again."""
        entered: Entered | None = self._thread.empty if snapshot is None else None
        if entered is None:
            return Entered(workspaces.open(snapshot), self._home, self._keep).enter()
        self._thread.empty = None
        return entered.enter()

    def _keep(self, entered: Entered) -> None:
        self._thread.empty = entered

    def is_left(self) -> bool:
        """Return whether user code has changed the working directory that others share."""
        return os.getcwd() != self._home


T = TypeVar("T")


class SharedSurroundings(Surroundings):
    """A shared node process, as an engine sees it during one attempt. `process` is shared by all of them."""

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
    """Threads of `loop.run_in_executor(None, ...)`, whose output belongs to the node run that called it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class Shared(NamedTuple):
    """The parts of a process that all attempts share. `params` are the workflow's."""

    engine: Engine
    params: Any
    process: Surroundings


class SharedServer:
    """Serves the runner.

    Args:
        channel: The connection to the runner.
        shared: The parts that all attempts share.
        loop: The event loop.
        is_spent: Returns whether the process must be replaced.
        places: The number of attempts at a time.
        is_async: Whether these are of async nodes. Threads of sync nodes have working directories of their own.
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
                # By this thread, not by the event loop: it shows that threads still run, even if a node blocks the
                # loop.
                self._channel.send("pong", frame.head)
            elif frame.kind == "cancel":
                if (cancelled := self._runs.get(frame.head)) is not None:
                    cancelled.cancel()
            else:
                number, head = frame.head
                run = self._runs[number] = SharedRun(self._channel, number, self._loop)
                self._watch.requested.set()
                self._take(run, Frame(frame.kind, head, frame.blobs))
        # A normal exit would wait for threads that still run, and their results have no recipient.
        os._exit(0)

    def _take(self, run: SharedRun, request: Frame) -> None:
        """Hand a request to the event loop, or to a thread."""
        context = copy_context()
        context.run(current_run.set, run)
        if request.kind == "run" and self._is_async:
            begin = partial(_guarded, self._begin_attempt, run, request, context)
            self._loop.loop.call_soon_threadsafe(begin, context=context)
        else:
            self._threads.submit(context.run, _guarded, self._do, run, request)

    def _do(self, run: SharedRun, request: Frame) -> None:
        """Begin, join a step, or make an attempt, on this thread."""
        if request.kind == "begin":
            joined = begin(self._engine, *messages.as_beginning(request, self._params))
        elif request.kind == "join":
            joined = join(self._engine, *messages.as_step(request, self._params))
        else:
            self._make_attempt(run, self._task(run, request))
            return
        self._send(run, "joined", messages.joined(joined), CLEAN)

    def _task(self, run: SharedRun, request: Frame) -> Task:
        task = messages.as_task(request, self._params)
        run.node, run.variant = task.node, task.variant
        self._globals.begin(run)
        return task

    def _make_attempt(self, run: SharedRun, task: Task) -> None:
        self._send_result(run, self._engine.run(task, self._surroundings(run)))

    def _surroundings(self, run: SharedRun) -> SharedSurroundings:
        return SharedSurroundings(run, self._process, self._directories)

    def _begin_attempt(self, run: SharedRun, request: Frame, context: Context) -> None:
        """Begin an attempt whose coroutine the loop awaits, or hand it to a thread. `context` is the present one."""
        task = self._task(run, request)
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

    def _send_result(self, run: SharedRun, outcome: Result) -> None:
        verdict = self._judge(run, outcome.failure)
        self._send(run, "result", messages.result(outcome), self._globals.end(run, verdict, outcome.record.usd))

    def _send(self, run: SharedRun, kind: str, head: Any, verdict: Verdict) -> None:
        """Send the result of a run, and whether this process is spent."""
        run.flush()
        self._runs.pop(run.number)
        spent = self._is_spent() or self._directories.is_left() or self._globals.is_changed
        self._channel.send(kind, [run.number, [spent, verdict.head()], head])

    def _judge(self, run: SharedRun, failure: Failure | None) -> Verdict:
        """Find out whether a neighbour has affected the result of an attempt."""
        # The runner has cancelled it, at a deadline or for a lost lease, so its CancelledError is no neighbour's fault.
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
    """End this process, which can no longer serve the runner."""
    traceback.print_exception(error, file=sys.__stderr__)
    os._exit(70)


def _guarded(work: Callable[..., object], *arguments: Any) -> None:
    """Do a part of the work of this process. An error ends the process, because the runner would get no answer."""
    try:
        work(*arguments)
    except BaseException as error:  # noqa: BLE001
        _end_process(error)
