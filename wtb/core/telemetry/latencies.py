"""How long what this process does most takes, counted in its memory: in buckets, as Prometheus has histograms."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from wtb.core.classes.frozen import frozen

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@frozen
class Exemplar:
    """One of the durations that a bucket counted.

    Attributes:
        execution: The id of one that it was about.
        seconds: The duration.
        at: When it ended, in seconds since the epoch.
    """

    execution: str
    seconds: float
    at: float


@frozen
class Distribution:
    """What a histogram held at one moment.

    Attributes:
        counts: How many were within each of its bounds and beyond the one before it; the last ones were beyond all.
        total_s: Seconds of all together.
        exemplars: The last one of each bucket of which it is known what it was about.
    """

    counts: Sequence[int]
    total_s: float
    exemplars: Mapping[int, Exemplar] = field(default_factory=dict)


@dataclass
class Timed:
    """A block whose time is counted.

    Attributes:
        execution: The id of one that it is about, where it is known by its end.
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
        """Count one duration. execution: the id of one that it was about."""
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._total_s += seconds
            if execution is not None:
                self._exemplars[bucket] = Exemplar(execution, seconds, time.time())

    @contextmanager
    def timed(self, execution: str | None = None) -> Iterator[Timed]:
        """Count how long the block takes, whether it fails or not. execution: as of `observe`."""
        timed, began = Timed(execution), time.monotonic()
        try:
            yield timed
        finally:
            self.observe(time.monotonic() - began, timed.execution)

    def read(self) -> Distribution:
        """Return what was counted so far."""
        with self._lock:
            return Distribution(tuple(self._counts), self._total_s, dict(self._exemplars))


FLUSHES: Final = Histogram()  # transactions by which journals write what runners did
CLAIMS: Final = Histogram()  # by which workers take executions
