"""The runner's side of a node process that many node runs share: a thread reads for all of them.

If one of them must be ended and does not stop, the process ends, and with it the attempts of the others, which are lost
and repeated. After a crash the guilty one is unknown, so all of them are suspects.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.frozen import frozen
from wtb.execution.engine.protocol import Task
from wtb.execution.sandbox.attempt_output import Output
from wtb.execution.sandbox.framing import CANCELLED_S, Frame, packed
from wtb.execution.sandbox.node_process import CLOSED_S, NodeProcess, Request, Setup, show
from wtb.execution.sandbox.shared_run import Verdict

GUILTY_RUNS = 3  # of one variant, after which all of its node runs run alone


@frozen(slots=True)
class RunKey:
    """A node run, over all of its attempts."""

    execution: str
    step: int
    task: str
    node: str
    variant: str

    @classmethod
    def of(cls, task: Task) -> RunKey:
        return cls(task.execution, task.position.step, task.key, task.node, task.variant)


class Isolation:
    """Suspects run alone until the guilty one among them is known; the guilty one runs alone from then on.

    A variant shares no process any more if several node runs of it were guilty, or if it changes globals.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[RunKey, set[RunKey]] = {}  # of each suspect, those that it was with
        self._guilty: set[RunKey] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._apart: set[tuple[str, str]] = set()

    def is_alone(self, key: RunKey) -> bool:
        """Return whether a node run must not share a process."""
        with self._lock:
            often = self._counts[key.node, key.variant] >= GUILTY_RUNS
            return often or (key.node, key.variant) in self._apart or key in self._groups or key in self._guilty

    def is_apart(self, key: RunKey) -> bool:
        """Return whether a variant changes globals, so that no other run may use its process."""
        with self._lock:
            return (key.node, key.variant) in self._apart

    def is_suspect(self, key: RunKey) -> bool:
        """Return whether a node run may have ended a process, which is still unknown."""
        with self._lock:
            return key in self._groups and key not in self._guilty

    def keep_apart(self, key: RunKey) -> None:
        """Let no run of this variant share a process: it changes what runs share."""
        with self._lock:
            self._apart.add((key.node, key.variant))

    def suspect(self, keys: Iterable[RunKey]) -> None:
        """Suspect these node runs, one of which has ended the process that they shared."""
        with self._lock:
            group = set(keys)
            self._groups.update(dict.fromkeys(group, group))

    def convict(self, key: RunKey) -> None:
        """Record that a node run ended its process: those that were suspected with it may share again."""
        with self._lock:
            for other in self._groups.pop(key, set()) - {key}:
                self._groups.pop(other, None)
            if key not in self._guilty:
                self._guilty.add(key)
                self._counts[key.node, key.variant] += 1

    def acquit(self, key: RunKey) -> None:
        """Record that a node run has ended well while it ran alone."""
        with self._lock:
            self._groups.pop(key, set()).discard(key)


PROBE_S = 1.0  # for a process to show that it still answers
_LOST = "ended together with its process, which it shared: {}"
_UNSTOPPED = "another node run in it did not stop at its deadline"
_BLOCKED = "another node run in it blocked the event loop beyond the deadline of a third"


class AttemptLost(WTBError):
    """The process of an attempt ended, as far as is known because of another one."""


class SharedRun:
    """One attempt in a shared process. Its messages wait in `inbox` for the thread that follows it."""

    def __init__(
        self, process: SharedProcess, number: int, key: RunKey, request: Request, timeout: float | None
    ) -> None:
        self.number = number
        self.key = key
        self.request = request
        self.timeout = timeout
        self.clock = request.clock
        self.ping: int | None = None  # that was sent when it was late
        self.inbox: SimpleQueue[Frame | WTBError] = SimpleQueue()
        self.output = {"stdout": Output(), "stderr": Output()}
        self._process = process

    def end(self) -> None:
        """Cancel it. If it continues, its process is ended."""
        self._process.cancel(self)

    def answer(self) -> Frame:
        """Handle its reports, and return the frame that answers it.

        Raises:
            AttemptLost: The process ended, perhaps because of another node run.
            ProcessDied: The process ended because of this one.
            NodeTimeout: It did not stop at its deadline.
            Malformed: Its answer has another shape than it must have.
        """
        try:
            while True:
                message = self.inbox.get()
                if isinstance(message, WTBError):
                    raise message
                if message.kind != "report":
                    return self._process.answered(self, message)
                self._process.report(self, message.head)
        except BaseException:
            self.end()  # nobody waits for it any more
            raise


class SharedProcess(NodeProcess):
    """A process that serves several attempts at a time. Any thread may use it."""

    def __init__(self, setup: Setup, isolation: Isolation, process: NodeProcess | None = None) -> None:
        """Start a process, or share one that is ready and has served no request yet."""
        if process is None:
            super().__init__(setup)
        else:
            vars(self).update(vars(process))
        self._isolation = isolation
        self._runs: dict[int, SharedRun] = {}
        self._keys: dict[int, RunKey] = {}  # of all runs, since what one did may be found out after its end
        self._timed: set[SharedRun] = set()
        self._numbers, self._pings = count(1), count(1)
        self._ponged = 0
        self._blocker: int | None = None
        self._blamed: SharedRun | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._wakes, self._waker = socket.socketpair()
        for end in (self._wakes, self._waker):
            end.setblocking(False)
        self._names[self._wakes.fileno()] = "wake"
        self._poll.register(self._wakes, select.POLLIN)
        self._reader = threading.Thread(target=self._read_for_all, name="wtb-reader", daemon=True)

    def ready(self) -> None:
        super().ready()
        self._reader.start()

    def share(self, places: int, *, is_async: bool) -> None:
        """Let a process that is ready serve so many attempts at a time."""
        self._reader.start()
        self._post(packed("share", {"places": places, "async": is_async}))

    def lives(self) -> bool:
        return self._ended is None

    def begin(self, key: RunKey, kind: str, head: Any, request: Request, timeout: float | None) -> SharedRun:
        """Send an attempt to the process. Raises AttemptLost if that has ended."""
        with self._lock:
            if self._is_over:
                raise AttemptLost(_LOST.format(self._ended))
            run = SharedRun(self, next(self._numbers), key, request, timeout)
            self._runs[run.number] = run
            self._keys[run.number] = key
            if timeout is not None:
                self._timed.add(run)
            self.request_count += 1
        self._post(packed(kind, [run.number, head]))
        return run

    def cancel(self, run: SharedRun) -> None:
        """Request the cancellation of an attempt, and give it a moment to stop."""
        with self._lock:
            if run.number not in self._runs:
                return
            run.clock.begin(CANCELLED_S)
            self._timed.add(run)
        self._post(packed("cancel", run.number))
        self._wake()

    def report(self, run: SharedRun, head: Any) -> None:
        """Pass on a report of an attempt. A process that sends one of another shape is ended."""
        try:
            what, details = head
            run.request.on_report(what, details)
        except (Malformed, TypeError, ValueError) as error:
            self.refuse(error)

    def answered(self, run: SharedRun, frame: Frame) -> Frame:
        """Return the answer of an attempt, without the part about the process.

        Raises:
            AttemptLost: Another node run has affected the result.
            Malformed: The answer has another shape than it must have.
        """
        spent, verdict, head = boundary.shaped(lambda: _read_answer(frame.head))
        self.spent = self.spent or spent
        if verdict.is_apart:
            self._isolation.keep_apart(run.key)
        if verdict.lost is not None:
            culprit = None if verdict.culprit is None else self._keys.get(verdict.culprit)
            if culprit is not None:
                self._isolation.convict(culprit)
            if culprit != run.key and not verdict.is_apart:
                self._isolation.suspect([run.key])
            raise AttemptLost(verdict.lost)
        return Frame(frame.kind, head, frame.blobs)

    def close(self) -> None:
        self.end()
        if self._reader.ident is not None:
            self._reader.join()
        show(self.output_text())  # of its children and of C code, which belongs to no attempt
        super().close()
        for end in (self._wakes, self._waker):
            end.close()

    def _post(self, frame: bytes) -> None:
        with self._lock:
            # Appended behind the rest of an earlier message: sending directly would put this one into the middle of it.
            if self._unsent:
                self._unsent = memoryview(bytes(self._unsent) + frame)
            else:
                with suppress(OSError):  # the reader has seen the end of the channel meanwhile
                    self._unsent = self._send(memoryview(frame))
            rest = bool(self._unsent)
        if rest:
            self._wake()

    def _wake(self) -> None:
        """Wake the reader, so that it looks again."""
        with suppress(OSError):  # it will, or is at its end
            self._waker.send(b"x")

    def _read(self, descriptor: int, name: str) -> bool:
        if name != "wake":
            return super()._read(descriptor, name)
        with suppress(BlockingIOError):
            os.read(descriptor, 4096)
        return False

    def _read_for_all(self) -> None:
        """Read until the process has ended, then answer all runs that still wait."""
        while self._ended is None:
            self._receive(self._poll.poll(self._pause_ms()))
            if self._unsent:
                with self._lock:
                    self._unsent = self._send(self._unsent)
            self._deliver_all()
            self._end_late_runs()
            if self._closed_at is not None and self._ended is None and not self._leash_within(CLOSED_S):
                self._end_for("ended, since it closed its connection")
        self._read_rest()
        self._deliver_all()
        self._end_runs()

    def _leash_within(self, seconds: float) -> bool:
        """Wait for the process to end by itself. Returns whether it has."""
        ready = select.poll()
        ready.register(self._leash, select.POLLIN)
        return bool(ready.poll(seconds * 1000))

    def _pause_ms(self) -> float | None:
        with self._lock:
            clocks = [run.clock.seconds_left for run in self._timed]
        pauses = [seconds for seconds in clocks if seconds is not None]
        return max(0.0, min(pauses)) * 1000.0 + 1.0 if pauses else None

    def _deliver_all(self) -> None:
        while self._frames:
            frame = self._frames.popleft()
            try:
                self._deliver(frame)
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                self.refuse(error)

    def _deliver(self, frame: Frame) -> None:
        """Pass a frame on to the attempt that it is about. Raises what another shape raises."""
        if frame.kind == "pong":
            self._ponged = int(frame.head)
            return
        if frame.kind == "blocked":
            self._blocker = None if frame.head is None else int(frame.head)
            return
        number, *rest = frame.head
        run = self._runs.get(number)
        if run is None:  # it has ended, and a thread or task of it goes on
            return
        if frame.kind == "phase":
            run.clock.enter(rest[0])
        elif frame.kind == "output":
            stream, text = rest
            run.output[stream].add(text.encode("utf-8", "replace"))
        else:
            _, _ = rest  # what is reported, or whether the process is spent, and its data
            if frame.kind != "report":
                self._remove(run)
            run.inbox.put(Frame(frame.kind, rest, frame.blobs))

    def _remove(self, run: SharedRun) -> None:
        with self._lock:
            del self._runs[run.number]
            self._timed.discard(run)

    def _end_late_runs(self) -> None:
        """End the process for an attempt that goes on after its deadline, once it is clear who keeps it going."""
        with self._lock:
            timed = list(self._timed)
        for run in timed:
            seconds_left = run.clock.seconds_left
            late = seconds_left is not None and seconds_left <= 0
            if self._ended is not None or not (late or run.ping is not None):
                continue
            blocker = None if self._blocker is None else self._runs.get(self._blocker)
            # The order decides whom to blame: a run that blocks the loop; else the late run itself, once a ping has
            # shown that the process still responds; without a response to the ping, nobody in particular.
            if late and blocker is not None and blocker is not run:
                self._blame(blocker, _BLOCKED)
            elif run.ping is not None and self._ponged >= run.ping:
                self._blame(run, _UNSTOPPED)
            elif run.ping is not None and late:
                self._end_for("a node run in it let nothing else run beyond a deadline")
            elif late:
                self._probe(run)

    def _probe(self, run: SharedRun) -> None:
        """Check whether the process responds at all: if it does, only this attempt runs for too long."""
        run.ping = next(self._pings)
        run.clock.begin(PROBE_S)
        self._post(packed("ping", run.ping))

    def _blame(self, run: SharedRun, why: str) -> None:
        self._blamed = run
        self._end_for(why)

    def _end_runs(self) -> None:
        """Answer all runs that still wait, because their process has ended."""
        with self._lock:
            self._is_over = True
            runs, self._runs = list(self._runs.values()), {}
            self._timed.clear()
        if self._blamed is not None:
            self._isolation.convict(self._blamed.key)
        elif len(runs) == 1:
            self._isolation.convict(runs[0].key)
        else:
            self._isolation.suspect(run.key for run in runs)
        log = self.output_text().encode() if runs and self._blamed is None else b""
        for run in runs:
            run.output["stderr"].add(log)  # such as the stack of a crash
            run.inbox.put(self._verdict(run, len(runs)))

    def _verdict(self, run: SharedRun, count: int) -> WTBError:
        if self._blamed is run and run.ping is not None and run.timeout is not None:
            return NodeTimeout(f"still running after its deadline of {run.timeout:g} s; its process was ended")
        if self._blamed is None and count == 1:
            return self._death()
        return AttemptLost(_LOST.format(self._ended))


def _read_answer(sent: Any) -> tuple[bool, Verdict, Any]:
    """Read whether the process is spent, the verdict on an attempt, and its result."""
    (spent, verdict), head = sent
    return spent is not False, Verdict.read(verdict), head
