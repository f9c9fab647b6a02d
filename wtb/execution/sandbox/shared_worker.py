"""A node process that many node runs share: a thread for each of them, and one event loop for all that is async."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from wtb.authoring.code.calling import Exit, bounded
from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.authoring.context.surroundings import AttemptWorkspace
from wtb.core.serialization.plain_json import storable
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Engine, begin, join
from wtb.execution.engine.working_directory import Entered, detach_directory
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.deadlines import COROUTINE, FILES, NODE
from wtb.execution.sandbox.framing import Channel, Frame
from wtb.store.files.workspaces import Workspaces

T = TypeVar("T")
BLOCKED_S = 1.0  # that the event loop may be held up until somebody is told
LOOK_S = 0.25  # between two looks at the event loop
_run: ContextVar[SharedRun | None] = ContextVar("shared_run", default=None)
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class SharedRun:
    """One attempt in this process: what it prints, what it reports, and its task on the event loop."""

    def __init__(self, channel: Channel, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.node = ""
        self._channel = channel
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._lines = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        self._lock = threading.Lock()

    def report(self, what: str, data: Any) -> None:
        self._channel.send("report", [self.number, what, data])

    def warn(self, message: str, place: str) -> None:
        """Warn of what it does, as an event and in its output."""
        data = {"level": "warning", "message": storable(message), "place": storable(place)}
        self.report("event", ["node.log", time.time(), data])
        self.write("stderr", f"warning: {message}\n")

    def write(self, stream: str, text: str) -> None:
        """Keep what is printed until its line ends."""
        with self._lock:
            lines = self._lines[stream]
            lines.write(text)
            if "\n" in text or lines.tell() > 1 << 16:
                self._send_lines(stream)

    def flush(self) -> None:
        with self._lock:
            for stream in self._lines:
                self._send_lines(stream)

    def _send_lines(self, stream: str) -> None:
        text = self._lines[stream].getvalue()
        if text:
            self._lines[stream] = io.StringIO()
            self._channel.send("output", [self.number, stream, text.encode("utf-8", "backslashreplace").decode()])

    def cancel(self) -> None:
        """Cancel its task, or the one that it is about to begin. Sync code goes on."""
        self._cancelled = True
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a function, on the event loop if it is async. A coroutine is cancelled at its deadline."""
        if timeout is not None:
            self._channel.send("phase", [self.number, COROUTINE if inspect.iscoroutinefunction(fn) else NODE])
        try:
            returned = fn(*args, **kwargs)
            return self._await(returned, timeout) if inspect.iscoroutine(returned) else returned
        finally:
            if timeout is not None:
                self._channel.send("phase", [self.number, FILES])

    def _await(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        returned = asyncio.run_coroutine_threadsafe(self._held(coroutine, timeout), self._loop).result()
        if isinstance(returned, Exit):
            raise returned.error
        return returned

    async def _held(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        self._task = asyncio.current_task()
        if self._cancelled and self._task is not None:
            self._task.cancel()
        try:
            return await bounded(coroutine, timeout)
        finally:
            self._task = None


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


class Directories:
    """Working directories of the threads that sync nodes run on. home: where all of them are between two attempts."""

    def __init__(self) -> None:
        self._home = os.getcwd()
        self._thread = threading.local()
        self._change = os.chdir
        self._noted: set[str] = set()

    @property
    def is_own(self) -> bool:
        """Whether this thread has a working directory of its own."""
        return getattr(self._thread, "is_own", False)

    def detach(self) -> None:
        """Give this thread a working directory of its own, where the system can."""
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

    def watch(self) -> None:
        """Say so when a node run changes the working directory of others, once for each node."""
        os.chdir = self._chdir

    def _chdir(self, path: Any) -> None:
        """Change the current working directory to the specified path."""
        run = _run.get()
        if run is not None and not self.is_own and run.node not in self._noted:
            self._noted.add(run.node)
            where = _place(sys._getframe())
            run.warn(
                f"node {run.node!r} changes the working directory of all that share its process, at {where}: "
                "use ctx.workspace",
                where,
            )
        self._change(path)


class RoutedStream(io.TextIOBase):
    """stdout or stderr: what a node run prints goes to that node run, all else to the process's own stream."""

    def __init__(self, name: str, stream: Any) -> None:
        self._name = name
        self._stream = self.own = stream

    def write(self, text: str) -> int:
        run = _run.get()
        if run is None or not isinstance(text, str):
            return int(self._stream.write(text))
        run.write(self._name, text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._stream.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]  # which is writable in typeshed
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> _RoutedBytes:
        return _RoutedBytes(self)


class _RoutedBytes(io.RawIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream: RoutedStream) -> None:
        self._text = stream

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)

    def writable(self) -> bool:
        return True


def route_output() -> None:
    """Capture by node run what is printed, before modules of users keep the streams for themselves."""
    sys.stdout = RoutedStream("stdout", sys.stdout)
    sys.stderr = RoutedStream("stderr", sys.stderr)


def leave_output() -> None:
    """Give a process that is not shared its own streams back. What user code has put there stays."""
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), RoutedStream):
            setattr(sys, name, stream.own)


class ContextThreads(ThreadPoolExecutor):
    """Threads of `loop.run_in_executor(None, ...)`: what is printed there belongs to the node run that asked, too."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class LoopWatch:
    """Tells of the node run that holds up the event loop, and where in its code. Its own thread looks."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop, is_idle: Callable[[], bool]) -> None:
        self._channel = channel
        self._loop = loop
        self._is_idle = is_idle
        self.wanted = threading.Event()
        self._thread_id = 0
        turned = threading.Event()
        loop.call_soon_threadsafe(self._turn, turned)
        turned.wait()
        threading.Thread(target=self._look, name="wtb-watch", daemon=True).start()

    def _look(self) -> None:
        turned = threading.Event()
        while True:
            self.wanted.wait()
            turned.clear()
            self._loop.call_soon_threadsafe(self._turn, turned)
            if not turned.wait(BLOCKED_S):
                run = self._blocker()
                self._channel.send("blocked", None if run is None else run.number)
                turned.wait()
                self._channel.send("blocked", None)
            if self._is_idle():
                self.wanted.clear()
            turned.clear()
            turned.wait(LOOK_S)

    def _turn(self, turned: threading.Event) -> None:
        self._thread_id = threading.get_ident()
        turned.set()

    def _blocker(self) -> SharedRun | None:
        """Report the node run that holds up the loop, and return it."""
        frame = sys._current_frames().get(self._thread_id)
        run, where = _whose(frame), _place(frame)
        if run is not None:
            run.warn(
                f"node {run.node!r} holds up the event loop that it shares, for more than {BLOCKED_S:g} s, "
                f"at {where}: await what takes long, or make it a sync node",
                where,
            )
        return run


def _whose(frame: FrameType | None) -> SharedRun | None:
    """The node run in whose context a callback of the loop runs: asyncio keeps that in the frame that calls it."""
    while frame is not None:
        if frame.f_code.co_name == "_run" and isinstance(frame.f_locals.get("self"), asyncio.Handle):
            found: SharedRun | None = frame.f_locals["self"]._context.get(_run)
            return found
        frame = frame.f_back
    return None


def _place(frame: FrameType | None) -> str:
    """File and line of the innermost frame that is the user's own, else of the innermost one."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, _LIBRARY)):
        frame = frame.f_back
    shown = frame or innermost
    return "an unknown place" if shown is None else f"{shown.f_code.co_filename}:{shown.f_lineno}"


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
        loop: asyncio.AbstractEventLoop,
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
        self._directories.watch()
        self._runs: dict[int, SharedRun] = {}
        detach = (lambda: None) if is_async else self._directories.detach
        self._threads = ThreadPoolExecutor(places, "wtb-run", detach)
        loop.call_soon_threadsafe(loop.set_default_executor, ContextThreads(thread_name_prefix="wtb-executor"))
        self._watch = LoopWatch(channel, loop, lambda: not self._runs)

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
                asked = Frame(frame.kind, head, frame.blobs)
                self._threads.submit(copy_context().run, self._answer, run, asked)
        os._exit(0)  # without waiting for what still runs

    def _answer(self, run: SharedRun, asked: Frame) -> None:
        """Do what is asked for, and send what it came to."""
        _run.set(run)
        try:
            kind, head = self._done(run, asked)
            run.flush()
            self._runs.pop(run.number)
            spent = self._is_spent() or self._directories.is_left()
            self._channel.send(kind, [run.number, spent, head])
        except BaseException:  # noqa: BLE001 - a fault of this process, which ends: nobody would answer
            traceback.print_exc(file=sys.__stderr__)
            os._exit(70)

    def _done(self, run: SharedRun, asked: Frame) -> tuple[str, Any]:
        """Begin, join a step, or make an attempt. Returns the kind and the head of the answer."""
        if asked.kind == "begin":
            return "joined", messages.joined(begin(self._engine, *messages.as_beginning(asked, self._params)))
        if asked.kind == "join":
            return "joined", messages.joined(join(self._engine, *messages.as_step(asked, self._params)))
        task = messages.as_task(asked, self._params)
        run.node = task.node
        surroundings = SharedSurroundings(run, self._process, self._directories)
        return "result", messages.result(self._engine.run(task, surroundings))
