"""Memory, processor time and open files of processes in which nodes run for long, measured now and then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wtb.core.errors import WTBError

if TYPE_CHECKING:
    import psutil

OnEvent = Callable[[str, Any], None]

SAMPLE = "node.sample"  # the event that reports one


def interval() -> float:
    """Seconds between two samples: `WTB_SAMPLE_S`, else 5; 0 is never."""
    try:
        return max(0.0, float(os.environ.get("WTB_SAMPLE_S", "5")))
    except ValueError:
        return 5.0


@dataclass(eq=False, slots=True)
class _Sampled:
    pid: int
    whole: bool
    mark: dict[str, bool]
    on_event: OnEvent
    every: float
    since: float


class Sampler:
    """Tells of each attempt that runs for longer than an interval, once in each, what its processes use.

    Its thread runs while there is an attempt.
    """

    def __init__(self) -> None:
        self._all: set[_Sampled] = set()
        self._changed = threading.Condition()
        self._every: float | None = None  # of the thread; None while there is none

    @contextmanager
    def sampling(
        self,
        pid: int,
        on_event: OnEvent | None,
        *,
        whole: bool,
        shared: bool = False,
        every: float | None = None,
    ) -> Iterator[None]:
        """While an attempt runs.

        Args:
            pid: Of the process in which it runs.
            on_event: Called with each sample.
            whole: Whether it runs in the children of that process and what they started, else in it alone.
            shared: Whether other attempts run there, too.
            every: Seconds between two samples, 0 for none; without it, the `interval`.
        """
        every = interval() if every is None else every
        if on_event is None or not every:
            yield
            return
        sampled = _Sampled(pid, whole, {"shared": True} if shared else {}, on_event, every, time.monotonic())
        with self._changed:
            self._all.add(sampled)
            if self._every is None:
                threading.Thread(target=self._loop, name="wtb-sampler", daemon=True).start()
            if self._every is None or every < self._every:
                self._every = every
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._all.discard(sampled)

    def _loop(self) -> None:
        """Report a sample of each attempt that has run for its interval, until none runs."""
        known: dict[int, psutil.Process] = {}  # asked again: their processor time counts from the last time
        while True:
            with self._changed:
                self._changed.wait(self._every)
                if not self._all:
                    self._every = None
                    return
                due = [one for one in self._all if time.monotonic() - one.since >= one.every]
                self._every = min(one.every for one in self._all)
            processes = {(one.pid, one.whole) for one in due}  # many attempts may share one
            samples = {(pid, whole): measured(pid, whole, known) for pid, whole in processes}
            for one in due:
                sample = samples[one.pid, one.whole]
                if sample is not None:
                    try:
                        one.on_event("event", [SAMPLE, time.time(), sample | one.mark])
                    except WTBError:  # its lease is gone, or the journal: its own thread finds that out too
                        continue
            for pid in [pid for pid, process in known.items() if not process.is_running()]:
                del known[pid]


def measured(pid: int, whole: bool, known: dict[int, psutil.Process]) -> dict[str, float] | None:
    """rss in bytes, cpu in percent of one core since the last time, open files, processes; None where it has ended."""
    import psutil

    try:
        first = known.setdefault(pid, psutil.Process(pid))
        found = first.children(recursive=True) if whole else [first]
    except psutil.Error:
        known.pop(pid, None)
        return None
    sums = {"rss": 0, "cpu": 0.0, "files": 0, "processes": 0}
    for process in found:
        process = known.setdefault(process.pid, process)
        try:
            with process.oneshot():
                rss, cpu = process.memory_info().rss, process.cpu_percent()
            files = process.num_fds()
        except psutil.Error:  # it has ended meanwhile
            known.pop(process.pid, None)
            continue
        sums["rss"] += rss
        sums["cpu"] += cpu
        sums["files"] += files
        sums["processes"] += 1
    return sums if sums["processes"] else None


sampler = Sampler()  # one thread a process, whatever runs in it
