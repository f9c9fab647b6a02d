"""Records of what this process does: the outcomes of a task, and the durations of its most frequent work."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypedDict

from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.texts import plural

MOST_NAMED = 10  # failures in the error of a task
_MOST_CHARS = 300  # characters of each failure


class TaskCounts(TypedDict, total=False):
    """Counts of a task.

    Attributes:
        cells: Cells with an outcome.
        provider_failed: Failed cells that a provider of models failed.
        waiting: Executions that wait for a person.
        node_runs: Node runs that succeeded.
    """

    cells: int
    succeeded: int
    failed: int
    provider_failed: int
    cancelled: int
    waiting: int
    node_runs: int


class TaskRecord:
    """The outcomes of a task. Threads share it.

    Attributes:
        id: The id of the task; None without workers.
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
        """Count cells that have got an outcome.

        Args:
            status: The status of the cells.
            cells: How many; 0 for a manual fork, which stands for none.
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
        """The counts without zeros, and always those of cells."""
        with self._lock:
            # First, so that monitors show them first and always.
            first = {"cells": 0, "succeeded": 0, "failed": 0}
            return {**first, **self._counts}  # type: ignore[typeddict-item]

    def error(self) -> str | None:
        """Return a summary of the failed cells, for people; None if none failed."""
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


BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@frozen
class Exemplar:
    """One of the durations that a bucket counted.

    Attributes:
        execution: The id of an execution that it concerned.
        seconds: The duration.
        at: When it ended, in seconds since the epoch.
    """

    execution: str
    seconds: float
    at: float


@frozen
class Distribution:
    """The contents of a histogram at one moment.

    Attributes:
        counts: The numbers of durations between each bound and the one before; the last number is beyond all bounds.
        total_s: The sum of all durations, in seconds.
        exemplars: The last duration of each bucket whose execution is known.
    """

    counts: Sequence[int]
    total_s: float
    exemplars: Mapping[int, Exemplar] = field(default_factory=dict)


@dataclass
class Timed:
    """A block whose time is counted.

    Attributes:
        execution: The id of an execution that it concerns, if it is known by its end.
    """

    execution: str | None = None


class Histogram:
    """Counts durations in buckets; any thread may observe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, seconds: float, execution: str | None = None) -> None:
        """Count one duration, with the id of an execution that it concerned."""
        # Bounds are inclusive, as `le` is in Prometheus.
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._total_s += seconds
            if execution is not None:
                self._exemplars[bucket] = Exemplar(execution, seconds, time.time())

    @contextmanager
    def timed(self, execution: str | None = None) -> Iterator[Timed]:
        """Count how long the block takes, whether it fails or not; `execution` is as for `observe`."""
        timed, began = Timed(execution), time.monotonic()
        try:
            yield timed
        finally:
            self.observe(time.monotonic() - began, timed.execution)

    def read(self) -> Distribution:
        """Return the counts so far."""
        with self._lock:
            return Distribution(tuple(self._counts), self._total_s, dict(self._exemplars))


FLUSHES: Final = Histogram()  # transactions in which journals flush
CLAIMS: Final = Histogram()  # transactions in which workers claim executions
