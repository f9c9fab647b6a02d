"""User code in node processes: a pool of warm ones, started as they are needed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from wtb.authoring.boundary import Malformed
from wtb.authoring.code.recipe import Recipe
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.context.tool_replay import ToolCall
from wtb.authoring.evaluation.evaluators import EvaluationTask, Evaluator, unscored
from wtb.config.run_options import Run
from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.failures import Failure, disk_fault
from wtb.core.scoring.measure import Score
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values
from wtb.execution.engine.protocol import Engine, Joined, Result, Root, Task, Writes, begin
from wtb.execution.engine.resource_usage import sampler
from wtb.execution.journal import Lost
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.deadlines import JOIN_S, Clock
from wtb.execution.sandbox.framing import Frame
from wtb.execution.sandbox.node_process import (
    NO_MESSAGE,
    PATIENCE_S,
    NodeProcess,
    ProcessDied,
    Request,
    Setup,
    environment,
)
from wtb.store.files.workspaces import Workspaces

T = TypeVar("T")
STARTS = 3  # in a row that may die


class Pool:
    """Node processes, each for one thread at a time; it is replaced when it is spent or has died.

    Args:
        start: Starts a process, which may not be ready yet.
        most: How many processes there may be at a time.
        runs: After how many requests a process is replaced.
    """

    def __init__(self, start: Callable[[], NodeProcess], most: int, runs: int) -> None:
        self._start = start
        self._most = most
        self._runs = runs
        self._at_once = max(1, os.cpu_count() or 1)  # that start: more would only make all of them late
        self._changed = threading.Condition()
        self._idle: list[NodeProcess] = []
        self._all: set[NodeProcess] = set()
        self._places = 0  # of processes that are there or on the way
        self._starting = 0
        self._waiting = 0
        self._error: WTBError | None = None
        self.closed = False

    @contextmanager
    def one(self) -> Iterator[NodeProcess]:
        """Lend a process for the duration of the block.

        Raises:
            WTBError: None can start.
            Stopped: The pool was closed.
        """
        process = self._take()
        while not process.lives():  # it ended while nobody used it: no attempt is to blame
            self._drop(process)
            process = self._take()
        try:
            yield process
        except BaseException:
            self._drop(process)
            raise
        if process.spent or process.asked >= self._runs:
            self._drop(process)
        else:
            self._give(process)

    def _take(self) -> NodeProcess:
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    self.check()
                    if self._idle:
                        return self._idle.pop()
                    if self._error is not None:
                        raise self._error
                    if self._places < self._most and self._starting < min(self._at_once, self._waiting):
                        self._places += 1
                        self._starting += 1
                        threading.Thread(target=self._begin, name="wtb-start", daemon=True).start()
                    self._changed.wait()
            finally:
                self._waiting -= 1

    def check(self) -> None:
        """Raises Stopped once the pool was closed."""
        if self.closed:
            raise Stopped("the node processes were ended")

    def _begin(self) -> None:
        """Start a process. One that dies on the way may be the machine's victim, and another one is tried."""
        started, error = None, None
        for _ in range(STARTS):
            started, error = self._try()
            if not isinstance(error, ProcessDied) or self.closed:
                break
        with self._changed:
            self._starting -= 1
            if started is not None and not self.closed:
                self._idle.append(started)
                started = None
            elif started is None:
                self._places -= 1
                self._error = self._error or error
            self._changed.notify_all()
        if started is not None:
            self._drop(started)

    def _try(self) -> tuple[NodeProcess | None, WTBError | None]:
        try:
            process = self._start()
        except OSError as error:
            return None, WTBError(f"a node process cannot start: {error}")
        with self._changed:
            self._all.add(process)
        try:
            process.ready()
        except WTBError as error:
            process.close()
            with self._changed:
                self._all.discard(process)
            return None, error
        return process, None

    def _give(self, process: NodeProcess) -> None:
        with self._changed:
            if not self.closed:
                self._idle.append(process)
                self._changed.notify()
                return
        self._drop(process)

    def _drop(self, process: NodeProcess) -> None:
        process.close()
        with self._changed:
            self._all.discard(process)
            self._places -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all processes, with their running attempts; the threads that use them get Stopped."""
        with self._changed:
            self.closed = True
            idle, self._idle = self._idle, []
            busy = self._all - set(idle)
            self._changed.notify_all()
        for process in busy:
            process.end()
        for process in idle:
            self._drop(process)
        with self._changed:
            self._changed.wait_for(lambda: not self._places, PATIENCE_S)


class InProcesses:
    """User code in node processes. The engine's own part of the work, which is no user code, stays here.

    recipe, code: how a node process makes the same code, and what it must find: `fingerprints` and `outline`.
    workspaces: below whose root it works. owner: the runner whose processes they are. most: so many at a time.
    """

    def __init__(
        self,
        engine: Engine | None,
        evaluators: Sequence[Evaluator],
        recipe: Recipe,
        code: Mapping[str, Any],
        run: Run,
        workspaces: Workspaces,
        owner: str,
        most: int,
    ) -> None:
        self._engine = engine
        self._nodes = None if engine is None else frozenset(engine.workflow.nodes)
        self._evaluators = list(evaluators)
        self._tries = run.set_aside_after
        head = {"recipe": recipe.text(), **code, "files": workspaces.files.place(), "growth": run.recycle.memory}
        head["bounds"] = asdict(workspaces.bounds)
        inherited = environment(run.env, owner)
        setup = Setup(head, inherited, run.rlimits.model_dump(), Path.cwd(), workspaces.root, workspaces.files)
        self.pool = Pool(lambda: NodeProcess(setup), most, run.recycle.runs)
        self._attempts = threading.Lock()
        self._running_attempts: dict[NodeProcess, tuple[str, int]] = {}
        self._taken_away: set[NodeProcess] = set()

    def prepare(self) -> None:
        with self.pool.one():
            pass

    def begin(self, state: Values, root: Root) -> Joined | Failure:
        assert self._engine is not None, "only evaluators were asked for"
        here = self._engine.begins_here
        return begin(self._engine, state, root) if here else self._joined("begin", messages.beginning(state, root))

    def run(self, task: Task) -> Result:
        """Run an attempt. The end of its process is its failure.

        Raises Stopped where that was asked for, Lost where its execution was taken away.
        """
        record = Record(on_event=task.on_event)
        with (
            self.pool.one() as process,
            self._noted(process, task),
            sampler.sampling(process.pid, task.on_event, whole=True),
        ):
            task.begun()
            begun, clock = time.time(), time.perf_counter()
            request = Request("run", messages.task(task), record.report, Clock.of_attempt(task.timeout))
            answer = self._exchange(process, request, lambda frame: self._checked(messages.as_result(frame, record)))
            if isinstance(answer, Failure):
                failure, took = replace(answer, node=task.node), time.perf_counter() - clock
                answer = Result(begun, took, record, failure=failure, workspace=task.workspace)
            answer.stdout, answer.stderr = (output.take() for output in process.output.values())
        return answer

    def _exchange(self, process: NodeProcess, request: Request, read: Callable[[Frame], T]) -> T | Failure:
        """Ask a process and read its answer. The end of the process, or an answer of another shape, is a failure."""
        try:
            frame = process.ask(request)
            try:
                return read(frame)
            except Malformed as error:
                process.end()
                raise ProcessDied(NO_MESSAGE.format(error)) from error
        except (ProcessDied, NodeTimeout) as error:
            self.pool.check()  # it was ended since the pool is closed: no attempt is to blame
            process.spent = True
            kind = "killed" if isinstance(error, ProcessDied) else "timeout"
            return Failure(kind, type(error).__name__, str(error))

    def _checked(self, result: Result) -> Result:
        if result.joined is not None:
            self._checked_next(result.joined)
        return result

    def _checked_next(self, joined: Joined | Failure) -> Joined | Failure:
        """Raises Malformed if a step leads to nodes that the workflow does not have."""
        if isinstance(joined, Joined) and self._nodes is not None:
            unknown = set(joined.position.next) - self._nodes
            if unknown:
                raise Malformed(f"a step that leads to {sorted(unknown)[0]!r:.100}, which is not a node")
        return joined

    @contextmanager
    def _noted(self, process: NodeProcess, task: Task) -> Iterator[None]:
        """Register the process of an attempt for `end_attempt`. Raises Lost if that has ended it."""
        with self._attempts:
            self._running_attempts[process] = (task.execution, task.token)
        try:
            yield
        finally:
            with self._attempts:
                del self._running_attempts[process]
                taken_away = process in self._taken_away
                self._taken_away.discard(process)
        if taken_away:
            raise Lost(f"execution {task.execution} was taken away")  # and the process is dropped for it

    def running_attempts(self) -> list[tuple[str, int]]:
        with self._attempts:
            return list(self._running_attempts.values())

    def end_attempt(self, execution: str, token: int) -> None:
        with self._attempts:
            found = [process for process, whose in self._running_attempts.items() if whose == (execution, token)]
            self._taken_away.update(found)
        for process in found:
            process.end()

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
        return self._joined("join", messages.step(state, position, writes, root))

    def _joined(self, kind: str, head: Any) -> Joined | Failure:
        def read(frame: Frame) -> Joined | Failure:
            return self._checked_next(messages.as_joined(frame))

        return self._ask(kind, head, read, tries=self._tries, limit=JOIN_S)

    def score(self, task: EvaluationTask) -> list[Score]:
        if not self._evaluators:
            return []
        found: list[Score] = []
        done = tried = 0
        while done < len(self._evaluators):
            scored, failure = self._scored(task, done)
            found += [score for scores in scored for score in scores]
            done += len(scored)
            if failure is None:
                continue
            if failure.kind == "disk":
                raise disk_fault(failure)
            tried = 1 if scored else tried + 1
            if failure.kind == "timeout" or tried >= self._tries:
                found.append(unscored(self._evaluators[done], failure))
                done, tried = done + 1, 0
        return found

    def _scored(self, task: EvaluationTask, first: int) -> tuple[list[list[Score]], Failure | None]:
        """The scores of each evaluator from `first` on, until one ends its process, or is at its deadline."""
        scored: list[list[Score]] = []
        clock = Clock({}, self._evaluators[first].timeout)

        def take(what: str, text: Any) -> None:
            scored.append(messages.reported_scores(what, text))
            number = first + len(scored)
            if number >= len(self._evaluators):
                raise Malformed("scores of more evaluators than there are")
            clock.begin(self._evaluators[number].timeout)

        def read(frame: Frame) -> Failure | None:
            if frame.kind == "full":
                return messages.as_full(frame)
            scored.append(messages.as_scores(frame))
            if first + len(scored) != len(self._evaluators):
                raise Malformed("scores of fewer evaluators than there are")
            return None

        with self.pool.one() as process:
            failure = self._exchange(process, Request("score", messages.evaluation(task, first), take, clock), read)
            _show(process.output_text())
        return scored, failure

    def call_tool(self, call: ToolCall) -> str | Failure:
        """Undo a call of a tool, or repeat it: once. Returns what it returned, as typed JSON."""
        return self._ask("tool", call, messages.as_returned, tries=1, limit=None)

    def _ask(self, kind: str, head: Any, read: Callable[[Frame], T], *, tries: int, limit: float | None) -> T | Failure:
        """Ask what belongs to no attempt: up to `tries` processes if they end over it, each for `limit` seconds."""
        answer: T | Failure
        for _ in range(tries):
            with self.pool.one() as process:
                answer = self._exchange(process, Request(kind, head, clock=Clock({}, limit)), read)
                text = process.output_text()
            if not isinstance(answer, Failure) or answer.kind != "killed":
                _show(text)
                break
            answer = replace(answer, trace=text[-2000:])
        return answer

    def close(self) -> bool:
        self.pool.close()
        return True


def _show(output: str) -> None:
    """Show what user code printed that belongs to no attempt."""
    if output:
        print(output, end="", file=sys.stderr, flush=True)
