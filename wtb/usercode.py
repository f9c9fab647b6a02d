"""Where the user's code runs: nodes, reducers, branch functions, evaluators and factories, here on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wtb.calling import Caller
from wtb.engine import Engine, Joined, Result, Task, Values, user_trace
from wtb.errors import WTBError
from wtb.evaluation import EvaluationTask, Evaluator, Score, evaluate
from wtb.history import Position
from wtb.workspace import Workspaces


class Surroundings:
    """This process, as engines see it: a caller with deadlines, the workflow's resources, workspaces."""

    def __init__(self, caller: Caller, factory: Callable[[], Any] | None, workspaces: Workspaces) -> None:
        self._caller = caller
        self._factory = factory
        self._workspaces = workspaces
        self._lock = threading.Lock()
        self._made: list[Any] = []

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        return self._caller.call(fn, *args, timeout=timeout, **kwargs)

    def resources(self) -> Any:
        """What the factory returned, called once. Raises WTBError where it fails."""
        if self._factory is None:
            return None
        with self._lock:
            if not self._made:
                try:
                    self._made.append(self._caller.call(self._factory, timeout=None))
                except Exception as error:
                    raise WTBError(
                        f"the workflow's resources cannot be made: {type(error).__name__}: {error}\n"
                        f"{user_trace(error)}".rstrip()
                    ) from error
            return self._made[0]

    def open_workspace(self, snapshot: str | None) -> Path:
        return self._workspaces.open(snapshot)

    def close_workspace(self, path: Path, snapshot: str | None, keep: bool) -> str | None:
        return self._workspaces.close(path, snapshot, keep)


class UserCode:
    """An engine and evaluators, run on the thread that asks."""

    def __init__(self, engine: Engine, evaluators: Sequence[Evaluator], surroundings: Surroundings) -> None:
        self._engine = engine
        self._evaluators = list(evaluators)
        self._surroundings = surroundings

    def prepare(self) -> None:
        """Make what the nodes share, before the first of them runs. Raises WTBError."""
        import genai_prices  # noqa: F401 - else the first node that asks for a price would take its time for it

        self._surroundings.resources()

    def begin(self) -> Position:
        return self._engine.begin()

    def run(self, task: Task) -> Result:
        return self._engine.run(task, self._surroundings)

    def join(self, state: Values, position: Position, writes: Sequence[tuple[str, Values]]) -> Joined:
        return self._engine.join(state, position, writes)

    def score(self, task: EvaluationTask) -> list[Score]:
        return evaluate(task, self._evaluators, self._surroundings)
