"""Executors run the user's code: nodes, reducers, branch functions, evaluators and factories, in their directories.

`ThreadExecutor` runs it in this process; `sandbox.pool.InProcesses` in warm child processes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wtb.authoring.code.calling import set_up
from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.authoring.context.audit_hook import setting_up
from wtb.authoring.context.surroundings import AttemptWorkspace
from wtb.authoring.evaluation import regex_search
from wtb.authoring.evaluation.evaluators import EvaluationTask, Evaluator, evaluate
from wtb.authoring.workflow import Workflow
from wtb.core.errors import WTBError
from wtb.core.failures import Failure, check_interrupt
from wtb.core.scoring.measure import Score
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values
from wtb.execution.engine.attempt import warm_up
from wtb.execution.engine.protocol import Joined, Result, Root, Task, Writes, begin, engine_of, join
from wtb.execution.engine.resource_usage import interval, sampler
from wtb.store.files.workspaces import Snapshot, Workspace, Workspaces

Take = Callable[[int, Result | Exception | None], None]
Cover = Callable[[Collection[str]], bool]  # files among the code that differ -> whether nodes wrote all of them


@dataclass(frozen=True, slots=True)
class Measured:
    """A node process and its memory, including that of the processes that it started.

    Attributes:
        size: Bytes in memory.
        is_busy: Whether something runs in it.
        end: Ends it for a memory quota, for the given reason.
    """

    size: int
    is_busy: bool
    end: Callable[[str], None]


class CodeExecutor(Protocol):
    """Runs the user's code, in this process or in others."""

    def prepare(self, runs: int = 1) -> None:
        """Prepare for the first node run. Raises WTBError.

        Args:
            runs: The expected number of node runs at a time.
        """

    def accept_files(self, cover: Cover) -> None:
        """Set the function that decides whether node processes may start although files among the code differ."""

    def begin(self, state: Values, root: Root) -> Joined | Failure: ...

    def run(self, task: Task) -> Result:
        """Run an attempt. Calls `task.on_event` with RUNNING once it has a place to run, right before it begins."""

    def is_quick(self, node: str, variant: str) -> bool:
        """Return whether `run_together` is faster for runs of a node under a variant."""

    def run_together(self, tasks: Sequence[Task], take: Take) -> None:
        """Run quick attempts that start from one checkpoint in order, in hardly more time than one of them.

        Args:
            tasks: The attempts.
            take: Called with the number of each task, in any order, and with its result or the error that `run` would
                raise. None means that the task has not begun and must be run by itself.
        """

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure: ...

    def score(self, task: EvaluationTask) -> list[Score]: ...

    def running_attempts(self) -> list[tuple[str, int]]:
        """Return (execution, token) of the attempts that run now and can be ended."""

    def end_attempt(self, execution: str, token: int) -> None:
        """End the attempt of an execution that was taken away; its runner gets Lost."""

    def measure(self, size_of: Callable[[int], int]) -> list[Measured]:
        """Measure the node processes, which are below reapers of these ids; none if it runs code in this process."""

    def end_idle(self) -> bool:
        """End the node processes in which nothing runs. Returns whether there were any."""

    def close(self) -> bool:
        """Release all resources. Returns whether running attempts were ended. Never raises."""


class Calls(Protocol):
    """Calls a sync or async function, with a deadline in seconds."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any: ...


class LazyWorkspace:
    """A workspace that is created on first use."""

    def __init__(self, workspaces: Workspaces, snapshot: str | None) -> None:
        self._workspaces = workspaces
        self._snapshot = snapshot
        self._opened: Workspace | None = None

    @property
    def path(self) -> Path:
        if self._opened is None:
            self._opened = self._workspaces.open(self._snapshot)
        return self._opened.path

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        if self._opened is None:
            return Snapshot(self._snapshot)
        return self._opened.take(allowed=allowed, until=until)

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        if self._opened is None:
            return Snapshot(self._snapshot)
        return self._opened.close(keep=keep, allowed=allowed, until=until)


class Surroundings:
    """The process of an attempt as engines use it: a caller with deadlines, resources of the workflow, workspaces."""

    own_process = False

    def __init__(self, caller: Calls, factory: Callable[[], Any] | None, workspaces: Workspaces) -> None:
        self._caller = caller
        self._factory = factory
        self.workspaces = workspaces
        self._lock = threading.Lock()
        self._resources: list[Any] = []

    @property
    def judgements(self) -> Path | None:
        return self.workspaces.files.judgements

    @property
    def own_folders(self) -> Sequence[str]:
        files = self.workspaces.files
        return [
            os.fspath(folder) for folder in (self.workspaces.root, self.workspaces.top, files.root, files.judgements)
        ]

    def record(self, on_event: OnEvent | None = None) -> Record:
        return Record(on_event=on_event)

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        return self._caller.call(fn, *args, timeout=timeout, **kwargs)

    def resources(self) -> Any:
        """Return the result of the factory, which is called once. Raises WTBError if it fails."""
        if self._factory is None:
            return None
        with self._lock:
            # A list, because None is a valid result of the factory.
            if not self._resources:
                try:
                    with set_up(), setting_up():
                        self._resources.append(self._caller.call(self._factory, timeout=None))
                except BaseException as error:
                    check_interrupt(error, own_process=self.own_process)
                    failure = Failure.of(error)
                    raise WTBError(
                        f"the workflow's resources cannot be made: {failure}\n{failure.trace}".rstrip()
                    ) from error
            return self._resources[0]

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        return LazyWorkspace(self.workspaces, snapshot)


class ThreadExecutor:
    """Runs user code in this process, on the calling thread. Code that hangs past its deadline is left behind."""

    def __init__(self, workflow: Workflow, evaluators: Sequence[Evaluator], surroundings: Surroundings) -> None:
        self._engine = engine_of(workflow)
        self._evaluators = list(evaluators)
        self._surroundings = surroundings
        self._searchers = regex_search.Searchers()
        self._sample_s = interval()

    def prepare(self, runs: int = 1) -> None:
        warm_up(self._engine, self._surroundings)

    def accept_files(self, cover: Cover) -> None:
        """Does nothing: this process has the code already."""

    def begin(self, state: Values, root: Root) -> Joined | Failure:
        return begin(self._engine, state, root)

    def run(self, task: Task) -> Result:
        task.report_start()
        with sampler.sampling(os.getpid(), task.on_event, whole=False, every=self._sample_s):
            return self._engine.run(task, self._surroundings)

    def is_quick(self, node: str, variant: str) -> bool:
        return False

    def run_together(self, tasks: Sequence[Task], take: Take) -> None:
        for number in range(len(tasks)):
            take(number, None)

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> Joined | Failure:
        return join(self._engine, state, position, writes, root)

    def score(self, task: EvaluationTask) -> list[Score]:
        scores: list[Score] = []
        with regex_search.apart(self._searchers):
            scores += evaluate(task, self._evaluators, self._surroundings, scores.extend)
        return scores

    def running_attempts(self) -> list[tuple[str, int]]:
        return []

    def end_attempt(self, execution: str, token: int) -> None:
        """Does nothing: a thread cannot be killed. It keeps its slot until it ends; its result is refused then."""

    def measure(self, size_of: Callable[[int], int]) -> list[Measured]:
        return []

    def end_idle(self) -> bool:
        return False

    def close(self) -> bool:
        self._searchers.close()
        return False


_CLONE_FS = 0x200  # linux/sched.h


def detach_directory() -> bool:
    """Give this thread a working directory of its own, permanently. Returns whether it has one: on Linux only."""
    if sys.platform != "linux":
        return False
    try:
        return int(ctypes.CDLL(None).unshare(_CLONE_FS)) == 0
    except (OSError, AttributeError):
        return False


class Entered:
    """The workspace of an attempt as its working directory. If it is left empty, `keep` gets it for reuse.

    Making and removing a directory takes longer than a quick node, and an empty one is as good as new.
    """

    is_open = True

    def __init__(self, workspace: Workspace, home: str, keep: Callable[[Entered], None]) -> None:
        self._workspace = workspace
        self._home = home
        self._keep = keep
        self._owner = os.getpid()
        self.path = workspace.path
        self._name = str(self.path)
        self._identity = self._present()

    def enter(self) -> Entered:
        os.chdir(self._name)
        return self

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        return self._workspace.take(allowed=allowed, until=until)

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        if os.getpid() != self._owner:
            # User code forked, and the copy returned from the node: the files are not its own.
            os._exit(70)
        os.chdir(self._home)
        if self._workspace.snapshot is None and self._is_untouched():
            self._keep(self)
            return Snapshot(None)
        return self._workspace.close(keep=keep, allowed=allowed, until=until)

    def _present(self) -> tuple[int, int, int]:
        status = os.lstat(self._name)
        return status.st_dev, status.st_ino, status.st_mode

    def _is_untouched(self) -> bool:
        try:
            # Compared by identity, because user code may have put another directory in its place.
            return self._present() == self._identity and not os.listdir(self._name)
        except FileNotFoundError:
            return False
