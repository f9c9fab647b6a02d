"""The record of a task: what came of the executions that it runs, as its monitor shows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypedDict

from wtb.core.failures import Failure
from wtb.core.texts import plural

MOST_NAMED = 10  # failures that the error of a task names
_MOST_CHARS = 300  # of one of them


class TaskCounts(TypedDict, total=False):
    """Counts of a task.

    Attributes:
        cells: That came to an outcome.
        provider_failed: Of the failed ones, those that a provider of models failed.
        waiting: Executions that wait for a person.
        node_runs: That succeeded.
    """

    cells: int
    succeeded: int
    failed: int
    provider_failed: int
    cancelled: int
    waiting: int
    node_runs: int


class TaskRecord:
    """What came of a task. Threads share it.

    Attributes:
        id: The id of the task; None for what runs without workers.
        failures: In words, one for each failed execution; at most MOST_NAMED are kept.
    """

    def __init__(self, id: str | None = None) -> None:
        self.id = id
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def count_node_run(self) -> None:
        """Count a node run that succeeded."""
        self._add(node_runs=1)

    def count_waiting(self) -> None:
        """Count an execution that waits for a person."""
        self._add(waiting=1)

    def count_outcome(self, status: str, cells: int, failure: Failure | None, name: str) -> None:
        """Count cells that came to an outcome.

        Args:
            status: Of the cells.
            cells: How many; 0 for an execution that a person forked, which stands for none.
            failure: Why they failed.
            name: The case and the choices of the execution, for people.
        """
        if status in ("succeeded", "cancelled"):
            self._add(cells=cells, **{status: cells})
            return
        is_provider = failure is not None and failure.kind == "provider"
        self._add(cells=cells, failed=cells, **({"provider_failed": cells} if is_provider else {}))
        with self._lock:
            if len(self.failures) < MOST_NAMED:
                self.failures.append(f"{name}: {failure}"[:_MOST_CHARS])

    def _add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] = self._counts.get(name, 0) + count

    @property
    def counts(self) -> TaskCounts:
        """The counts that are not 0, and always those of cells."""
        with self._lock:
            first = {"cells": 0, "succeeded": 0, "failed": 0}
            return {**first, **self._counts}  # type: ignore[typeddict-item]

    def error(self) -> str | None:
        """Return which cells failed, for people; None if none did."""
        if not self.failures:
            return None
        counts = self.counts
        head = f"{counts['failed']:,} of {plural(counts['cells'], 'cell')} failed"
        if provider := counts.get("provider_failed"):
            head += f" ({provider:,} by a provider)"
        return f"{head}; {'; '.join(self.failures)}"


def named(case: str, choices: Mapping[str, str]) -> str:
    """Return the case and the choices of an execution, for people."""
    return " ".join([case, *(f"{node}={variant}" for node, variant in choices.items())])
