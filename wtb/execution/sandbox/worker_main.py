"""A node process: it makes the workflow from its recipe, then serves the requests of the runner.

It does one thing at a time, unless it is shared: see wtb/execution/sandbox/shared_worker.py.

It imports neither the database nor anything else of the runner, so that it starts quickly and holds nothing that
user code could damage.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.authoring.code.fingerprint import present_code
from wtb.authoring.code.recipe import Recipe, assemble
from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.authoring.context.audit_hook import written_here
from wtb.authoring.context.surroundings import AttemptWorkspace
from wtb.authoring.evaluation.evaluators import evaluate
from wtb.authoring.graph import outline_digest
from wtb.authoring.tools import ToolCall, call_tool
from wtb.config.distribution import start_collecting
from wtb.core.errors import WTBError
from wtb.core.failures import Failure
from wtb.core.scoring.measure import Score
from wtb.core.tree.stored_code import RecordedCode, why
from wtb.execution.engine.attempt import warm_up
from wtb.execution.engine.executor import Entered, Surroundings
from wtb.execution.engine.protocol import Engine, begin, engine_of, join
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.framing import COROUTINE, FILES, NODE, Channel, Frame
from wtb.execution.sandbox.launch.hidden_database import HiddenFiles
from wtb.store.files.shared_store import OUTBOX, Outbox, store_at
from wtb.store.files.workspaces import Bounds, Workspaces

if TYPE_CHECKING:
    from wtb.authoring.code.calling import Caller
    from wtb.authoring.workflow_facts import WorkflowFacts
    from wtb.execution.engine.description import CodeDescription
    from wtb.execution.sandbox.framing import SetupHead


def main(descriptor: int) -> None:
    """Serve the runner at the other end of this socket until that closes it."""
    channel = Channel(descriptor)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # By lines, so that output from before a crash is not lost in a buffer.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    setup = channel.receive()
    if setup is None:
        return
    # Before user code is imported, which could open the files, and before a thread is started: a thread keeps the mount
    # namespace that it was started in.
    hidden = HiddenFiles(setup.head.get("hidden", ()))
    shared = setup.head["places"] > 1
    # A process that describes a draft may be shared later, and these must be in place before user code is imported.
    if shared or "draft" in setup.head:
        from wtb.authoring.code.calling import see_own_tasks_only
        from wtb.execution.sandbox.global_functions import watch_functions
        from wtb.execution.sandbox.shared_run import route_output

        route_output()
        watch_functions()
        see_own_tasks_only()
    if "names" in setup.head:
        from wtb.execution.engine.description import describe_names

        channel.send("ready", describe_names(setup.head["names"]))
        return
    if "prepare" in setup.head:
        from wtb.execution.sandbox.preparation import serve_preparation

        serve_preparation(channel, setup.head)
        return
    try:
        worker = Worker(channel, setup.head, hidden)
    except WTBError as error:
        channel.send("refused", str(error))
        return
    # Imported modules stay, so the garbage of importing is removed once, before the collector starts.
    gc.collect()
    start_collecting()
    channel.send("ready", worker.description)
    if shared:
        worker.serve_many(setup.head["places"], is_async=setup.head["async"])
    else:
        worker.serve()


class Worker:
    """The state of a node process during its life."""

    def __init__(self, channel: Channel, setup: SetupHead, hidden: HiddenFiles) -> None:
        self.description: CodeDescription | None = None
        if "draft" in setup:
            from wtb.execution.engine.description import described

            recipe, workflow, self._evaluators, self.description = described(setup["draft"])
        else:
            recipe = Recipe.read(setup["recipe"])
            workflow, self._evaluators = assemble(recipe)
            if workflow is not None:
                _compare(channel, setup, workflow.facts(), recipe)
        self._channel = channel
        self._params = recipe.params or {}
        self._engine: Engine | None = None
        factory = None
        if workflow is not None:
            self._engine, factory = engine_of(workflow), workflow.resources
        directory = Path(setup["directory"])
        files = Outbox(store_at(setup["files"]), directory / OUTBOX)
        workspaces = Workspaces(files, directory, Bounds(**setup["bounds"]))
        self._calls = Deadlines(channel)
        self._surroundings = NodeSurroundings(channel, self._calls, factory, workspaces)
        if self._engine is not None:
            warm_up(self._engine, self._surroundings)
        self._mark = bytes.fromhex(setup["mark"])
        self._growth: int = setup["growth"]
        self._hidden = hidden
        self._condition = Condition(self._growth, hidden)

    def serve(self) -> None:
        while (frame := self._channel.receive()) is not None:
            if self.description is not None:
                self.description = None
                if frame.kind == "share":
                    self.serve_many(frame.head["places"], is_async=frame.head["async"])
                    return
                self._leave_output()
            if frame.kind == "runs":
                self._make_all(frame)
                continue
            self._channel.request_count += 1
            kind, head = self._answer(frame)
            self._channel.send(kind, [self._is_spent(), head])

    def _leave_output(self) -> None:
        """Restore the streams of the process, which is not shared."""
        from wtb.execution.sandbox.shared_run import leave_output

        leave_output()
        self._condition = Condition(self._growth, self._hidden)

    def _make_all(self, frame: Frame) -> None:
        """Make several attempts in order, each with an answer of its own, and report attempts that are left."""
        assert self._engine is not None, "only nodes are run together"
        until, tasks = messages.as_tasks(frame, self._params)
        for place, task in enumerate(tasks, 1):
            self._channel.request_count += 1
            reply = messages.result(self._engine.run(task, self._surroundings))
            spent = self._is_spent()
            if not spent and place < len(tasks):
                # By os.write, because user code may have replaced sys.stdout: output after the mark belongs to the next
                # attempt.
                os.write(1, self._mark)
                os.write(2, self._mark)
            self._channel.send("result", [spent, reply])
            if spent:
                return
            if place < len(tasks) and time.monotonic() >= until:
                self._channel.request_count += 1
                self._channel.send("left", [False, None])
                return

    def _is_spent(self) -> bool:
        """Flush the output. Returns whether the process must be replaced."""
        _flush_output()
        return self._condition.is_poor() or self._calls.abandoned or self._surroundings.is_displaced()

    def serve_many(self, places: int, *, is_async: bool) -> None:
        """Serve so many attempts at a time, of nodes that are all async, or all sync."""
        from wtb.execution.sandbox.shared_worker import Shared, SharedServer

        assert self._engine is not None, "only nodes share a process"
        shared = Shared(self._engine, self._params, self._surroundings)
        loop = self._calls.caller().loop_thread()
        server = SharedServer(self._channel, shared, loop, lambda: self._condition.is_poor(), places, is_async=is_async)
        # The server has replaced functions of Python, which are no changes by user code.
        self._condition = Condition(self._growth, self._hidden)
        server.serve()

    def _scored(self, scores: list[Score]) -> None:
        self._channel.send("report", [self._channel.request_count, "scored", scores])

    def _answer(self, frame: Frame) -> tuple[str, Any]:
        """Serve a request. Returns the kind and the head of the answer."""
        if frame.kind == "score":
            evaluators = self._evaluators[frame.head["first"] :]
            try:
                scores = evaluate(messages.as_evaluation(frame), evaluators, self._surroundings, self._scored)
            except OSError as error:
                return "full", Failure.of(error)
            return "scores", scores
        assert self._engine is not None, "only evaluators were asked for"
        if frame.kind == "tool":
            return "tool", call_tool(self._engine.workflow.tools, ToolCall(**frame.head), self._calls)
        if frame.kind == "begin":
            return "joined", messages.joined(begin(self._engine, *messages.as_beginning(frame, self._params)))
        if frame.kind == "join":
            return "joined", messages.joined(join(self._engine, *messages.as_step(frame, self._params)))
        task = messages.as_task(frame, self._params)
        return "result", messages.result(self._engine.run(task, self._surroundings))


def _compare(channel: Channel, setup: SetupHead, workflow: WorkflowFacts, recipe: Recipe) -> None:
    """Check that the code in this process is the runner's. Raises WTBError.

    If only files differ, the runner decides, because it knows which of them nodes have written meanwhile.
    """
    recorded = RecordedCode(setup["fingerprints"], setup.get("code"))
    nodes = workflow.nodes
    is_known = all(node in nodes and variant in nodes[node].variants for node, variant in recorded.variants())
    if not is_known or outline_digest(workflow) != setup["outline"]:
        raise WTBError(
            "the workflow differs from the one at its import path, because it was changed after its import. Make the "
            "change in its module, or use the thread pool (run: {pool: thread})"
        )
    vary = {node: list(variants) for node, variants in recorded.fingerprints.items()}
    present = RecordedCode(*present_code(nodes.values(), vary, recipe))
    recorded = recorded.writing(written_here())
    changed = recorded.changed(present)
    if not changed:
        return
    names = ", ".join(f"{node}={variant}" for node, variant in changed)
    causes = why(recorded.code, present.code, changed)
    problem = f"the code of {names} was changed while the sweep was running {causes}"
    if (files := recorded.changed_files(present, changed)) is not None:
        channel.send("changed", [sorted(files), problem])
        if (answer := channel.receive()) is not None and answer.kind == "continue":
            return
    raise WTBError(problem)


def _flush_output() -> None:
    """Flush stdout and stderr, even if user code has replaced or closed them."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - closed by user code, or what it has put there
            continue


class Condition:
    """The condition of this process, which decides about another attempt.

    Args:
        growth: Bytes by which it may grow.
        hidden: Files that user code must not read.
    """

    def __init__(self, growth: int, hidden: HiddenFiles) -> None:
        self._growth = growth
        self._hidden = hidden
        self._first: int | None = None
        self._streams = _standard_streams()
        self._used = _what_is_used()
        self._page = os.sysconf("SC_PAGE_SIZE")
        try:
            # Opened once, because the check runs after every attempt.
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux: bounded by the number of node runs alone
            self._statm = -1

    def is_poor(self) -> bool:
        """Return whether the process is no longer fit for another attempt.

        That is, if it has grown too much since the first call, if hidden files can be read, or if user code has changed
        something that other attempts need: the output, functions that WTB uses, or an alarm that is still set.
        """
        if self._has_grown() or _standard_streams() != self._streams or _what_is_used() != self._used:
            return True
        if self._hidden.are_bare():
            return True
        return signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)

    def _has_grown(self) -> bool:
        """Return whether resident memory has grown beyond the bound since it was first measured."""
        if self._statm < 0:
            return False
        resident = int(os.pread(self._statm, 200, 0).split()[1]) * self._page
        if self._first is None:
            self._first = resident
        return resident - self._first > self._growth


def _what_is_used() -> tuple[object, ...]:
    """Return some of the functions and streams that this process needs and user code can replace."""
    return (
        *(time.time, time.perf_counter, time.monotonic, json.dumps, json.loads, open, print, len, isinstance, sorted),
        *(os.chdir, os.getcwd, os.getpid, os.open, os.read, os.write, os.close, os.listdir, os.lstat, os.scandir),
        *(sys.stdout, sys.stderr, sys.getrecursionlimit()),
    )


def _standard_streams() -> tuple[int, ...]:
    try:
        return tuple(os.fstat(descriptor).st_ino for descriptor in (1, 2))
    except OSError:
        return ()


class Deadlines:
    """Calls user code. Reports begin and end to the runner, which kills this process at the deadline."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._asynchronous: Caller | None = None

    @property
    def abandoned(self) -> bool:
        """True if something still runs that ignored its cancellation."""
        return self._asynchronous is not None and self._asynchronous.abandoned > 0

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        asynchronous = inspect.iscoroutinefunction(fn)
        if timeout is not None:
            self._channel.send("phase", COROUTINE if asynchronous else NODE)
        try:
            if asynchronous:
                return self.caller().call(fn, *args, timeout=timeout, **kwargs)
            returned = fn(*args, **kwargs)
            return self.caller().call(lambda: returned, timeout=None) if inspect.iscoroutine(returned) else returned
        finally:
            if timeout is not None:
                self._channel.send("phase", FILES)

    def caller(self) -> Caller:
        """Return the caller of async functions, which is made on first use."""
        if self._asynchronous is None:
            from wtb.authoring.code.calling import Caller

            self._asynchronous = Caller()
        return self._asynchronous


class NodeSurroundings(Surroundings):
    """A node process, as engines and evaluators see it."""

    own_process = True

    def __init__(
        self,
        channel: Channel,
        calls: Deadlines,
        factory: Callable[[], Any] | None,
        workspaces: Workspaces,
    ) -> None:
        super().__init__(calls, factory, workspaces)
        self._channel = channel
        self._home = os.getcwd()
        self._empty: Entered | None = None
        self._root = os.fspath(workspaces.root)
        self._place: tuple[int, int] | None = None

    def record(self, on_event: OnEvent | None = None) -> Record:
        """Report everything to the runner as it happens: spending counts, even if this process is killed."""
        # Bound now: a thread that outlives its attempt must not report under the number of the next one.
        request_number = self._channel.request_count
        return Record(on_event=lambda what, details: self._channel.send("report", [request_number, what, details]))

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        if not enter:
            return super().workspace(snapshot)
        entered, self._empty = (self._empty, None) if snapshot is None else (None, self._empty)
        if entered is None:
            entered = Entered(self.workspaces.open(snapshot), self._home, self._keep)
            self._place = self._place or self._present()
        return entered.enter()

    def is_displaced(self) -> bool:
        """Return whether user code has replaced the directory that contains the workspaces."""
        return self._place is not None and self._present() != self._place

    def _present(self) -> tuple[int, int] | None:
        try:
            status = os.lstat(self._root)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _keep(self, entered: Entered) -> None:
        self._empty = entered
