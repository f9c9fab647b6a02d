"""User code in node processes: each request goes to one of a pool of warm ones, apart or shared."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wtb.authoring.boundary import Malformed
from wtb.authoring.code.recipe import Recipe
from wtb.authoring.context.attempt_record import Record
from wtb.authoring.evaluation.evaluators import EvaluationTask, Evaluator, unscored
from wtb.authoring.tools import ToolCall
from wtb.config.run_options import Run
from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.failures import Failure, disk_fault
from wtb.core.scoring.measure import Score
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values
from wtb.execution.engine.executor import Cover, Measured, Take
from wtb.execution.engine.protocol import Engine, Joined, Result, Root, Task, Writes, begin
from wtb.execution.engine.resource_usage import sampler
from wtb.execution.journal import Lost
from wtb.execution.sandbox import messages
from wtb.execution.sandbox.attempt_output import AttemptFiles, ProvidedFiles
from wtb.execution.sandbox.framing import JOIN_S, Clock, CodeHead, Frame, SetupHead
from wtb.execution.sandbox.launch.launching import environment, make_folders
from wtb.execution.sandbox.node_process import (
    NodeProcess,
    ProcessDied,
    Request,
    Setup,
    cover_none,
    messages_only,
    show,
)
from wtb.execution.sandbox.process_pool import Pool
from wtb.execution.sandbox.shared_process import AttemptLost, Isolation, RunKey, SharedProcess, SharedRun
from wtb.store.files.workspaces import Workspaces

QUICK_S = 0.002  # that a run takes at most; a message costs about a tenth of it
RUNS_UNTIL_QUICK = 3  # runs in a row that were quick, after which the next ones are taken to be
TOGETHER_S = 0.01  # after which no other of those that travelled together begins: they go on elsewhere


class QuickNodes:
    """Counts for each node and variant how many of its runs in a row were quick. Threads share it."""

    def __init__(self) -> None:
        self._in_a_row: dict[tuple[str, str], int] = {}

    def note(self, task: Task, outcome: Result) -> None:
        """Count a run that has ended. A slow one makes its node unknown again."""
        key = task.node, task.variant
        quick = outcome.failure is None and outcome.duration_s <= QUICK_S
        self._in_a_row[key] = self._in_a_row.get(key, 0) + 1 if quick else 0

    def knows(self, node: str, variant: str) -> bool:
        """Return whether a node under a variant is known to be quick."""
        return self._in_a_row.get((node, variant), 0) >= RUNS_UNTIL_QUICK


T = TypeVar("T")
LEAST_ASYNC = 16  # async node runs that share a process before it is worth another one
MOST_ASYNC = 128  # async node runs that may end with one process
SUSPECTS = 8  # that run alone at a time: the guilty one is soon known, and a process for each would take much memory


@dataclass(frozen=True, slots=True)
class Shape:
    """The sharing of a process: by at most so many runs at a time, of async nodes or of sync ones on threads.

    Attributes:
        places: The maximum number of runs at a time.
        crowd: The number of runs at a time from which another process is started.
        is_async: Whether these are runs of async nodes.
    """

    places: int
    crowd: int
    is_async: bool


class Endable(Protocol):
    """A node process, or an attempt in one."""

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class UserCode:
    """User code as this process knows it, and the recipe by which node processes make the same.

    Attributes:
        engine: The engine of the workflow; None if only evaluators are needed.
        evaluators: The evaluators.
        recipe: The recipe by which a node process makes the code.
        head: The code that a node process must find: `fingerprints` and `outline`.
    """

    engine: Engine | None
    evaluators: Sequence[Evaluator]
    recipe: Recipe
    head: CodeHead


class InProcesses:
    """User code in node processes. The engine's own part of the work, which is no user code, stays here.

    Args:
        code: The code.
        run: The options of the run.
        workspaces: The directories that node processes work in.
        owner: The runner of the processes.
        max_processes: The maximum number of processes.
        first: A process that is ready, if any.
        unshared: The maximum number of processes that serve one node run at a time; `max_processes` without it.
    """

    def __init__(
        self,
        code: UserCode,
        run: Run,
        workspaces: Workspaces,
        owner: str,
        max_processes: int,
        first: NodeProcess | None = None,
        *,
        unshared: int | None = None,
    ) -> None:
        engine = self._engine = code.engine
        self._nodes = None if engine is None else frozenset(engine.workflow.nodes)
        self._evaluators = list(code.evaluators)
        self._tries = run.set_aside_after
        self._runs = run.recycle.runs
        self._quick = QuickNodes()
        self._cover: Cover = cover_none
        setup = setup_of(code.recipe.text(), code.head, run, workspaces, owner)
        # Looked up at each start, because `accept_files` sets it after this object was made.
        setup = replace(setup, cover=lambda files: self._cover(files))
        self._provided = ProvidedFiles(workspaces.files)
        self._isolation = Isolation()
        self._suspects = threading.Semaphore(SUSPECTS)
        self.pool = Pool(lambda: NodeProcess(setup), min(max_processes, unshared or max_processes), run.recycle.runs)
        self._sharing = _sharing(engine, run, max_processes)
        self._shared = {
            shape: Pool(
                partial(self._start_shared, setup, shape), max_processes, run.recycle.runs, shape.places, shape.crowd
            )
            for shape in set(self._sharing.values())
        }
        if first is not None:
            self._add_first(first, setup)
        self._attempts = threading.Lock()
        self._running_attempts: dict[Endable, tuple[str, int]] = {}
        self._lost_attempts: set[Endable] = set()

    def _add_first(self, process: NodeProcess, setup: Setup) -> None:
        """Add a process that is ready; it is shared if nodes of the workflow share theirs."""
        if not self._shared:
            self.pool.add_ready(process)
            return
        shape, pool = next(iter(self._shared.items()))
        shared = SharedProcess(setup, self._isolation, process)
        shared.share(shape.places, is_async=shape.is_async)
        pool.add_ready(shared)

    def prepare(self, runs: int = 1) -> None:
        """Start a process, which checks the code, and others beside it. Raises WTBError."""
        shared = next(iter(self._shared.values()), None)
        if shared is not None:
            shared.start_for(runs)
        with self.pool.lend() if shared is None else shared.lend():
            pass

    def accept_files(self, cover: Cover) -> None:
        self._cover = cover

    def _start_shared(self, setup: Setup, shape: Shape) -> SharedProcess:
        head: SetupHead = {**setup.head, "places": shape.places, "async": shape.is_async}
        return SharedProcess(replace(setup, head=head), self._isolation)

    def begin(self, state: Values, root: Root) -> Joined | Failure:
        assert self._engine is not None, "only evaluators were asked for"
        begins_here = self._engine.begins_here
        return (
            begin(self._engine, state, root)
            if begins_here
            else self._ask_for_step("begin", messages.beginning(state, root))
        )

    def run(self, task: Task) -> Result:
        """Run an attempt. The end of its process is its failure.

        Raises Stopped if the pool was closed, and Lost if the lease of the execution is gone.
        """
        if not self.shares(task.node, task.variant):
            return self._run_alone(task)
        key = RunKey.of(task)
        if self._isolation.is_alone(key):
            with self._suspects if self._isolation.is_suspect(key) else nullcontext():
                # Another suspect may have been convicted during the wait, which acquits this one.
                if self._isolation.is_alone(key):
                    return self._run_isolated(task, key)
        return self._run_shared(task, key)

    def is_quick(self, node: str, variant: str) -> bool:
        return self._quick.knows(node, variant) and not self.shares(node, variant)

    def run_together(self, tasks: Sequence[Task], take: Take) -> None:
        """Run attempts in one process, which takes all of them in one message and makes them in order.

        None begins long after the message was sent: those that one holds up run elsewhere meanwhile.
        """
        pending = set(range(len(tasks)))

        def return_unstarted() -> None:
            """Return attempts behind the next one: they have not begun, and will not."""
            for number in sorted(pending)[1:]:
                pending.discard(number)
                take(number, None)

        self._provided.provide(tasks[0].workspace)  # all of them start from one checkpoint
        with self.pool.lend() as process:
            # A process is replaced after so many requests, so it takes no more than it has left.
            together = tasks[: max(1, self._runs - process.request_count)]
            until = time.monotonic() + TOGETHER_S
            process.post("runs", messages.tasks(together, until))
            for number, task in enumerate(together, 1):
                ask = partial(_next_answer, process, until, return_unstarted, is_last=number == len(together))
                try:
                    outcome: Result | Exception = self._run_in(process, task, ask)
                except _NotBegunError:
                    break
                except Exception as error:  # noqa: BLE001 - raised where the result is asked for
                    outcome, process.spent = error, True
                pending.discard(number - 1)
                take(number - 1, outcome)
                if process.spent:
                    break
        for number in sorted(pending):
            take(number, None)

    def _run_isolated(self, task: Task, key: RunKey) -> Result:
        """Run an attempt alone, and note whether it ends its process. Raises as `run` does."""
        outcome = self._run_alone(task, key)
        failure = outcome.failure
        if failure is not None and (failure.kind == "killed" or failure.type == "CancelledError"):
            self._isolation.convict(key)  # what ended it among others, it does by itself
        else:
            self._isolation.acquit(key)
        return outcome

    def shares(self, node: str, variant: str) -> bool:
        """Return whether runs of a node under a variant may share a process."""
        return (node, variant) in self._sharing

    def _run_shared(self, task: Task, key: RunKey) -> Result:
        """Run an attempt in a process that others use, too. Raises as `run` does."""
        record = Record(on_event=task.on_event)
        self._provided.provide(task.workspace)
        with (
            self._shared[self._sharing[task.node, task.variant]].lend() as process,
            sampler.sampling(process.pid, task.on_event, whole=True, shared=True) as printing,
        ):
            task.report_start()
            started, clock = time.time(), time.perf_counter()
            files = AttemptFiles(task, record, process.handover(task.workspace))
            request = Request(files.report, Clock.of_attempt(task.timeout))
            try:
                run = process.begin(key, "run", messages.task(task), request, task.timeout)
            except AttemptLost as error:
                self.pool.check()
                return _failed(task, record, started, clock, _lost(error))
            printing(run.output)
            with self._noted(run, task):
                answer = self._answered(process, run, files)
            if isinstance(answer, Failure):
                answer = _failed(task, record, started, clock, replace(answer, node=task.node))
            answer.stdout, answer.stderr = (output.take() for output in run.output.values())
        return answer

    def _answered(self, process: SharedProcess, run: SharedRun, files: AttemptFiles) -> Result | Failure:
        """Wait for the answer of an attempt in a shared process. The end of the process is a failure."""
        try:
            with messages_only(process.refuse):
                outcome = self._received(run.answer(), files)
        except AttemptLost as error:
            self.pool.check()
            process.spent = process.spent or not process.lives()
            return _lost(error)
        except (ProcessDied, NodeTimeout) as error:
            # Closing the pool ends processes, too. Then this raises Stopped, and the attempt has not failed.
            self.pool.check()
            process.spent = True
            return _ended(error)
        # The allocation that failed need not be that of the node which took the memory, so this one is only a suspect.
        if outcome.failure is not None and outcome.failure.type == "MemoryError":
            self._isolation.suspect([run.key])
            process.spent = True
            return _lost(AttemptLost("there was no memory left in the process, which it shared"))
        return outcome

    def _run_alone(self, task: Task, key: RunKey | None = None) -> Result:
        """Run an attempt in a process of its own. Raises as `run` does.

        Args:
            task: The attempt.
            key: Its node run, if it could share a process. If it changes globals, the process is used for nothing else.
        """
        self._provided.provide(task.workspace)
        with self.pool.lend() as process:
            try:
                return self._run_in(process, task, lambda request: process.ask("run", messages.task(task), request))
            finally:
                process.spent = process.spent or (key is not None and self._isolation.is_apart(key))

    def _run_in(self, process: NodeProcess, task: Task, ask: Callable[[Request], Frame]) -> Result:
        """Run an attempt in a process that no other one uses now. `ask` waits for its answer. Raises as `run` does."""
        record = Record(on_event=task.on_event)
        with self._noted(process, task), sampler.sampling(process.pid, task.on_event, whole=True) as printing:
            printing(process.output)
            task.report_start()
            started, clock = time.time(), time.perf_counter()
            files = AttemptFiles(task, record, process.handover(task.workspace))
            request = Request(files.report, Clock.of_attempt(task.timeout))
            answer = self._exchange(process, partial(ask, request), lambda frame: self._received(frame, files))
            if isinstance(answer, Failure):
                answer = _failed(task, record, started, clock, replace(answer, node=task.node))
            answer.stdout, answer.stderr = (output.take() for output in process.output.values())
        self._quick.note(task, answer)
        return answer

    def _exchange(self, process: NodeProcess, ask: Callable[[], Frame], read: Callable[[Frame], T]) -> T | Failure:
        """Ask a process and read its answer. The end of the process, or an answer of another shape, is a failure."""
        try:
            frame = ask()
            with messages_only(lambda error: process.end()):
                return read(frame)
        except (ProcessDied, NodeTimeout) as error:
            self.pool.check()
            process.spent = True
            return _ended(error)

    def _received(self, frame: Frame, files: AttemptFiles) -> Result:
        """Read the result of an attempt, and take over its files. Raises Malformed."""
        outcome = messages.as_result(frame, files.record)
        if outcome.joined is not None:
            self._checked_next(outcome.joined)
        return files.received(outcome)

    def _checked_next(self, joined: Joined | Failure) -> Joined | Failure:
        """Raises Malformed if a step leads to nodes that the workflow does not have."""
        if isinstance(joined, Joined) and self._nodes is not None:
            unknown = set(joined.position.next) - self._nodes
            if unknown:
                raise Malformed(f"a step that leads to {sorted(unknown)[0]!r:.100}, which is not a node")
        return joined

    @contextmanager
    def _noted(self, process: Endable, task: Task) -> Iterator[None]:
        """Register what `end_attempt` has to end for an attempt. Raises Lost if that has ended it."""
        with self._attempts:
            self._running_attempts[process] = (task.execution, task.token)
        try:
            yield
        finally:
            with self._attempts:
                del self._running_attempts[process]
                is_lost = process in self._lost_attempts
                self._lost_attempts.discard(process)
        if is_lost:
            raise Lost(f"execution {task.execution} was reclaimed")

    def running_attempts(self) -> list[tuple[str, int]]:
        with self._attempts:
            return list(self._running_attempts.values())

    def end_attempt(self, execution: str, token: int) -> None:
        with self._attempts:
            processes = [process for process, whose in self._running_attempts.items() if whose == (execution, token)]
            self._lost_attempts.update(processes)
        for process in processes:
            process.end()

    def measure(self, size_of: Callable[[int], int]) -> list[Measured]:
        return [
            Measured(size_of(process.pid), users > 0, process.end_over_quota)
            for pool in self._pools()
            for process, users in pool.processes().items()
        ]

    def end_idle(self) -> bool:
        ended = [pool.end_idle() for pool in self._pools()]
        return any(ended)

    def _pools(self) -> Sequence[Pool[NodeProcess] | Pool[SharedProcess]]:
        return self.pool, *self._shared.values()

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
        return self._ask_for_step("join", messages.step(state, position, writes, root))

    def _ask_for_step(self, kind: str, head: Any) -> Joined | Failure:
        """Begin, or join a step: beside node runs if they share a process, else in a process of its own."""
        key = RunKey("", 0, kind, kind, "")
        if self._shared and not self._isolation.is_alone(key):
            # A neighbour, or this step, ended the process. In a process of its own it shows which of them.
            with suppress(AttemptLost, ProcessDied):
                return self._step_beside(key, kind, head)
        joined = self._ask(kind, head, self._read_step, tries=self._tries, limit=JOIN_S)
        if isinstance(joined, Failure) and joined.kind == "killed":
            self._isolation.convict(key)
        else:
            self._isolation.acquit(key)
        return joined

    def _read_step(self, frame: Frame) -> Joined | Failure:
        return self._checked_next(messages.as_joined(frame))

    def _step_beside(self, key: RunKey, kind: str, head: Any) -> Joined | Failure:
        """Begin or join in a process that node runs share. Raises AttemptLost and ProcessDied."""
        with next(iter(self._shared.values())).lend() as process:
            run = process.begin(key, kind, head, Request(clock=Clock({}, JOIN_S)), JOIN_S)
            try:
                with messages_only(process.refuse):
                    return self._read_step(run.answer())
            except NodeTimeout as error:
                self.pool.check()
                return _ended(error)
            finally:
                show("".join(output.take() or "" for output in run.output.values()))

    def score(self, task: EvaluationTask) -> list[Score]:
        if not self._evaluators:
            return []
        scores_read: list[Score] = []
        done = tries = 0
        while done < len(self._evaluators):
            scored, failure = self._scored(task, done)
            scores_read += [score for scores in scored for score in scores]
            done += len(scored)
            if failure is None:
                continue
            if failure.kind == "disk":
                raise disk_fault(failure)
            # If earlier evaluators of this round succeeded, the failure is the first one of the next evaluator.
            tries = 1 if scored else tries + 1
            if failure.kind == "timeout" or tries >= self._tries:
                scores_read.append(unscored(self._evaluators[done], failure))
                done, tries = done + 1, 0
        return scores_read

    def _scored(self, task: EvaluationTask, first: int) -> tuple[list[list[Score]], Failure | None]:
        """Return the scores of each evaluator from `first` on, until one ends its process, or reaches its deadline."""
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

        self._provided.provide(task.workspace)
        with self.pool.lend() as process:
            ask = partial(process.ask, "score", messages.evaluation(task, first), Request(take, clock))
            failure = self._exchange(process, ask, read)
            show(process.output_text())
        return scored, failure

    def call_tool(self, call: ToolCall) -> str | Failure:
        """Undo or repeat a call of a tool, without retries. Returns its result, as typed JSON."""
        return self._ask("tool", call, messages.as_returned, tries=1, limit=None)

    def _ask(self, kind: str, head: Any, read: Callable[[Frame], T], *, tries: int, limit: float | None) -> T | Failure:
        """Make a request outside of attempts, of up to `tries` processes if they end, each for `limit` seconds."""
        answer: T | Failure
        for _ in range(tries):
            with self.pool.lend() as process:
                ask = partial(process.ask, kind, head, Request(clock=Clock({}, limit)))
                answer = self._exchange(process, ask, read)
                text = process.output_text()
            if not isinstance(answer, Failure) or answer.kind != "killed":
                show(text)
                break
            answer = replace(answer, trace=text[-2000:])
        return answer

    def close(self) -> bool:
        # First, so that attempts whose shared process ends below see that the pool was closed, and do not fail.
        self.pool.close()
        for shared in self._shared.values():
            shared.close()
        return True


def setup_of(recipe: str, code: CodeHead, run: Run, workspaces: Workspaces, owner: str) -> Setup:
    """Make the settings with which node processes of a run start."""
    head: SetupHead = {
        "recipe": recipe,
        "fingerprints": code["fingerprints"],
        "code": code.get("code"),
        "outline": code["outline"],
        "files": workspaces.files.place(),
        "growth": run.recycle.memory,
        "bounds": asdict(workspaces.bounds),
        "places": 1,
    }
    make_folders(workspaces)
    return Setup(head, environment(run.env, owner), run.rlimits.model_dump(), Path.cwd(), workspaces)


def _sharing(engine: Engine | None, run: Run, slots: int) -> dict[tuple[str, str], Shape]:
    """Return the sharing of each (node, variant) that may share processes: those that lose nothing by a repeat."""
    # An attempt that is lost with its process is repeated, which must not repeat an irreversible tool call.
    if engine is None or any(tool.reverse is None for tool in engine.workflow.tools.values()):
        return {}
    shapes = {}
    for name, node in engine.workflow.nodes.items():
        for variant in node.variants:
            is_async = engine.is_async(name, variant)
            places, crowd = _places(run, slots) if is_async else (node.rules.threads,) * 2
            places = min(places, run.recycle.runs)
            if places > 1 and not node.rules.durable:
                shapes[name, variant] = Shape(places, min(crowd, places), is_async)
    return shapes


def _places(run: Run, slots: int) -> tuple[int, int]:
    """Return the maximum number of async node runs in a process, and the number that starts another process.

    Each processor runs one event loop, because clients use milliseconds of CPU for a call.
    """
    if run.per_process is not None:
        return run.per_process, run.per_process
    return MOST_ASYNC, min(MOST_ASYNC, max(LEAST_ASYNC, math.ceil(slots / (os.cpu_count() or 1))))


class _NotBegunError(Exception):
    """A node process did not begin the rest of the attempts in a message."""


def _next_answer(
    process: NodeProcess, until: float, on_late: Callable[[], None], request: Request, *, is_last: bool
) -> Frame:
    """Wait for the next of several answers, with its output. Raises _NotBegunError, and as `ask` does."""
    frame = process.answer(replace(request, until=until, on_late=on_late))
    if frame.kind == "left":
        raise _NotBegunError
    if not is_last and not process.spent:
        process.end_part()
    return frame


def _failed(task: Task, record: Record, started: float, clock: float, failure: Failure) -> Result:
    """Make the result of an attempt that has none of its own."""
    return Result(started, time.perf_counter() - clock, record, failure=failure, workspace=task.workspace)


def _ended(error: WTBError) -> Failure:
    kind = "killed" if isinstance(error, ProcessDied) else "timeout"
    return Failure(kind, type(error).__name__, str(error))


def _lost(error: AttemptLost) -> Failure:
    return Failure("lost", type(error).__name__, str(error))
