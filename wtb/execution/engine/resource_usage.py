"""Samples of long node runs: the output so far, and the resources of their processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from wtb.core.errors import WTBError

if TYPE_CHECKING:
    import psutil

OnEvent = Callable[[str, Any], None]

SAMPLE = "node.sample"  # the event that reports one
PRINTED = "printed"  # what is reported of output: its text so far, by stream
PRINTED_S = 1.0  # between two reports of what an attempt has printed
MOST_PRINTED = 1 << 20  # characters that are reported each time, of all attempts together; the rest is next


def interval() -> float:
    """Seconds between two samples: `WTB_SAMPLE_S`, else 5; 0 is never."""
    try:
        return max(0.0, float(os.environ.get("WTB_SAMPLE_S", "5")))
    except ValueError:
        return 5.0


class Stream(Protocol):
    """An output of an attempt, which another thread adds to."""

    @property
    def size(self) -> int: ...

    def text(self) -> str | None: ...


@dataclass(eq=False, slots=True)
class _Sampled:
    """An attempt. `every` is the number of seconds between its samples, 0 for none; `due` is the time of the next."""

    pid: int
    whole: bool
    mark: dict[str, bool]
    on_event: OnEvent
    every: float
    due: float
    output: Mapping[str, Stream] = field(default_factory=dict)
    printed: int = 0
    printed_at: float = 0.0

    def follow(self, output: Mapping[str, Stream]) -> None:
        """Report the output of these streams, too."""
        self.output = output

    @property
    def size(self) -> int:
        return sum(stream.size for stream in self.output.values())


class Sampler:
    """Reports resources and output of each attempt that runs for longer than an interval, once per interval.

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
    ) -> Iterator[Callable[[Mapping[str, Stream]], None]]:
        """Report samples during the block. Yields a function that takes the streams of the attempt's output.

        Args:
            pid: The process in which it runs.
            on_event: Called with each sample.
            whole: Whether it runs in all descendants of that process, else in the process itself.
            shared: Whether other attempts run there, too.
            every: Seconds between two samples, 0 for none; without it, the `interval`.
        """
        every = interval() if every is None else every
        if on_event is None:
            yield _ignore
            return
        started = time.monotonic()
        sampled = _Sampled(pid, whole, {"shared": True} if shared else {}, on_event, every, started + every)
        with self._changed:
            self._all.add(sampled)
            if self._every is None:
                threading.Thread(target=self._loop, name="wtb-sampler", daemon=True).start()
            if self._every is None or _between(sampled) < self._every:
                self._every = _between(sampled)
                self._changed.notify()
        try:
            yield sampled.follow
        finally:
            with self._changed:
                self._all.discard(sampled)

    def _loop(self) -> None:
        """Report what each attempt printed, and a sample of those that have run for their interval, until none runs."""
        # psutil measures CPU since the last call on the same object, so the objects are kept.
        handles: dict[int, psutil.Process] = {}
        while True:
            with self._changed:
                self._changed.wait(self._every)
                if not self._all:
                    self._every = None
                    return
                now = time.monotonic()
                due = [sampled for sampled in self._all if sampled.every and now >= sampled.due]
                printed = [sampled for sampled in self._all if sampled.size != sampled.printed]
                self._every = min(map(_between, self._all))
            _report_printed(printed)
            processes = {(sampled.pid, sampled.whole) for sampled in due}  # many attempts may share one
            samples = {(pid, whole): measured(pid, whole, handles) for pid, whole in processes}
            for sampled in due:
                sampled.due = now + sampled.every
                sample = samples[sampled.pid, sampled.whole]
                if sample is not None:
                    try:
                        sampled.on_event("event", [SAMPLE, time.time(), sample | sampled.mark])
                    except WTBError:  # its lease is gone, or the journal: its own thread finds that out too
                        continue
            for pid in [pid for pid, process in handles.items() if not process.is_running()]:
                del handles[pid]


def _ignore(output: Mapping[str, Stream]) -> None:
    """Ignore the streams of an attempt without a listener."""


def _between(sampled: _Sampled) -> float:
    """Seconds between two looks at an attempt."""
    return min(PRINTED_S, sampled.every or PRINTED_S)


def _report_printed(printed: list[_Sampled]) -> None:
    """Report new output up to a bound, first of the attempts that have waited longest."""
    room = MOST_PRINTED
    for sampled in sorted(printed, key=lambda sampled: sampled.printed_at):
        if room <= 0:
            return
        if time.monotonic() - sampled.printed_at < PRINTED_S / 2:  # looked at for the sake of another one's samples
            continue
        sampled.printed, sampled.printed_at = sampled.size, time.monotonic()
        texts = {name: stream.text() for name, stream in sampled.output.items()}
        room -= sum(len(text or "") for text in texts.values())
        try:
            sampled.on_event(PRINTED, texts)
        except WTBError:  # its lease is gone, or the journal: its own thread finds that out too
            continue


def measured(pid: int, whole: bool, handles: dict[int, psutil.Process]) -> dict[str, float] | None:
    """Measure rss in bytes, cpu in percent of one core since the last time, open files, processes; None if ended."""
    import psutil

    try:
        first = handles.setdefault(pid, psutil.Process(pid))
        processes = first.children(recursive=True) if whole else [first]
    except psutil.Error:
        handles.pop(pid, None)
        return None
    sums = {"rss": 0, "cpu": 0.0, "files": 0, "processes": 0}
    for process in processes:
        process = handles.setdefault(process.pid, process)
        try:
            with process.oneshot():
                rss, cpu = process.memory_info().rss, process.cpu_percent()
            files = process.num_fds()
        except psutil.Error:  # it has ended meanwhile
            handles.pop(process.pid, None)
            continue
        sums["rss"] += rss
        sums["cpu"] += cpu
        sums["files"] += files
        sums["processes"] += 1
    return sums if sums["processes"] else None


sampler = Sampler()  # one thread a process, whatever runs in it
