"""How long what this process does most takes, counted in its memory: in buckets, as Prometheus has histograms."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Distribution:
    """What a histogram held at one moment.

    Attributes:
        counts: How many were within each of its bounds and beyond the one before it; the last ones were beyond all.
        total_s: Seconds of all together.
    """

    counts: Sequence[int]
    total_s: float


class Histogram:
    """Counts durations in buckets; any thread may observe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._total_s += seconds

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count how long the block takes, whether it fails or not."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.observe(time.monotonic() - began)

    def read(self) -> Distribution:
        """Return what was counted so far."""
        with self._lock:
            return Distribution(tuple(self._counts), self._total_s)


FLUSHES: Final = Histogram()  # transactions by which journals write what runners did
CLAIMS: Final = Histogram()  # by which workers take executions
