"""The runner's side of one node process: its start, its requests, its deadlines, and its end with all descendants."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wtb.authoring.boundary import Malformed
from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.execution.sandbox.attempt_output import Output
from wtb.execution.sandbox.framing import Clock, Frame, Inbox, SetupHead, packed
from wtb.execution.sandbox.launch.launching import files_to_hide, launch_of, start
from wtb.execution.sandbox.launch.process_tags import kill_process
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.shared_store import OUTBOX, Handover
from wtb.store.files.workspaces import Workspaces

NO_MESSAGE = "ended, since what it sent is not a message ({})"  # as user code that writes into its connection does
LEFT_READS = 1000  # of what an ended process has left, at most
CLOSED_S = 1.0  # for a process that closed its channel to end
PATIENCE_S = 10.0  # for a reaper to end its descendants
_AT_ONCE = 1 << 18
UNTIMED = Clock({}, None)
_NOTHING = memoryview(b"")


class ProcessDied(WTBError):
    """A node process ended before it responded."""


class MemoryQuotaReached(ProcessDied):
    """A node process was ended because the node processes of its session used too much memory."""


def _end_reason(code: int | None, processes: int | None) -> str:
    """Describe how a process ended. A negative `code` is a signal; `processes` is set if they were too many."""
    if processes is not None:
        return f"ended, since it had {processes} processes, more than run.rlimits.processes allows"
    if code is None:
        return "ended together with its reaper"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name} (signal {-code})"
    except ValueError:
        return f"killed by signal {-code}"


def cover_none(files: Collection[str]) -> bool:
    """Return False: no node is known to have written the files."""
    return False


@contextmanager
def messages_only(refuse: Callable[[Malformed], object]) -> Iterator[None]:
    """Call `refuse` if what a process sent, as the block reads it, is not a message. Raises ProcessDied then."""
    try:
        yield
    except Malformed as error:
        refuse(error)
        raise ProcessDied(NO_MESSAGE.format(error)) from error


@frozen
class Setup:
    """The settings with which every node process of a run starts.

    Attributes:
        head: The head of its first frame.
        environment: All variables that it inherits.
        limits: Limits, as in `run.rlimits`.
        folder: Its working directory.
        workspaces: The directories that it works in, and the store that it reads.
        cover: Decides whether nodes wrote all files that differ.
    """

    head: SetupHead
    environment: Mapping[str, str]
    limits: Mapping[str, int | None]
    folder: Path
    workspaces: Workspaces
    cover: Callable[[Collection[str]], bool] = cover_none


def _ignore(what: str, details: Any) -> None:
    """Ignore a report without a listener."""


def _nobody_waits() -> None:
    """Ignore that an answer is late, because nothing waits behind it."""


@frozen
class Request:
    """The handling of a request until its answer arrives.

    Attributes:
        on_report: Called with the kind and the data of each report before the answer.
        clock: The deadline of the process.
        until: The time of the monotonic clock at which `on_late` is called, once, if there is no answer by then.
    """

    on_report: Callable[[str, Any], None] = _ignore
    clock: Clock = UNTIMED
    until: float | None = None
    on_late: Callable[[], None] = _nobody_waits


def show(output: str) -> None:
    """Print output of user code that belongs to no attempt."""
    if output:
        print(output, end="", file=sys.stderr, flush=True)


class NodeProcess:
    """One warm process. Used by one thread at a time; `end` may be called from any."""

    def __init__(self, setup: Setup) -> None:
        self.request_count = 0
        self.spent = False
        self._mark = secrets.token_bytes(16)
        self.output = {name: Output(mark=self._mark) for name in ("stdout", "stderr")}
        launched = self._launched = start(launch_of(setup.environment, setup.limits, setup.folder, setup.workspaces))
        self._id, self._process = launched.id, launched.process
        self._leash, self._channel = launched.leash, launched.channel
        self.directory = setup.workspaces.root / self._id
        self._workspaces = setup.workspaces
        self._cover = setup.cover
        self._inbox = Inbox()
        self._frames: deque[Frame] = deque()
        self._end_report = b""
        self._ended: str | None = None
        self._is_over_quota = False
        self._closed_at: float | None = None  # when it closed its end of the channel
        assert self._process.stdout is not None, "it is a pipe"
        assert self._process.stderr is not None, "it is a pipe"
        self._names = {
            self._process.stdout.fileno(): "stdout",
            self._process.stderr.fileno(): "stderr",
            self._channel.fileno(): "channel",
            self._leash.fileno(): "leash",
        }
        self._poll = select.poll()
        for descriptor in self._names:
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)
        own = {"directory": str(self.directory), "mark": self._mark.hex(), "hidden": files_to_hide()}
        self._setup = packed("setup", {**setup.head, **own})
        self._unsent = _NOTHING

    @property
    def pid(self) -> int:
        """The id of its reaper, whose only child the process is."""
        return self._process.pid

    def handover(self, begun_with: str | None) -> Handover:
        """Return the handover of files for an attempt that begins with a snapshot."""
        return Handover(self._workspaces, self.directory / OUTBOX, begun_with)

    def lives(self) -> bool:
        """Return whether the process is still alive."""
        leash = self._leash.fileno()
        return self._ended is None and leash in self._names and leash not in dict(self._poll.poll(0))

    def ready(self) -> Any:
        """Wait until the process has made the workflow.

        Returns:
            Its description, if the process was given a draft; user code may have written anything there.

        Raises:
            WTBError: It could not make the workflow.
            ProcessDied: It ended before.
        """
        try:
            self._unsent = self._send(memoryview(self._setup))
            frame = self._next(Request())
            if frame.kind == "changed":
                frame = self._continue_with(*self._read_changes(frame.head))
        except ProcessDied as error:
            stderr_text = (self.output["stderr"].take() or "").strip()
            raise ProcessDied(f"a node process could not start: {error}\n{stderr_text[-2000:]}".rstrip()) from error
        if frame.kind == "refused":
            raise WTBError(storable(str(frame.head)))
        for output in self.output.values():
            output.take()  # what importing printed belongs to no attempt
        return frame.head

    def _read_changes(self, head: Any) -> tuple[Sequence[str], str]:
        """Read the files among the code that differ, and the error to raise if nodes did not write them."""
        try:
            files, problem = head
            return [str(file) for file in files], str(problem)
        except (TypeError, ValueError) as error:
            self.refuse(error)
            raise ProcessDied(self._ended or "") from error

    def _continue_with(self, files: Sequence[str], problem: str) -> Frame:
        """Let a process continue with files that nodes wrote. Raises WTBError if these are not all that differ."""
        if not self._cover(files):
            raise WTBError(storable(problem))
        self._unsent = self._send(memoryview(packed("continue", None)))
        return self._next(Request())

    def ask(self, kind: str, head: Any, request: Request) -> Frame:
        """Send a request and wait for its answer.

        Args:
            kind: The kind of the request.
            head: JSON, dataclasses and bytes.
            request: The handling of reports and deadlines.

        Raises:
            ProcessDied: The process ended, or sent something of another shape.
            NodeTimeout: It was ended at its deadline.
        """
        self.post(kind, head)
        return self.answer(request)

    def post(self, kind: str, head: Any) -> None:
        """Send one request, or several whose answers come in order."""
        self._unsent = self._send(memoryview(packed(kind, head)))

    def answer(self, request: Request) -> Frame:
        """Wait for the next answer. Raises as `ask` does."""
        # The process counts in step, so that a report of a thread that outlived an earlier attempt is recognized by its
        # number.
        self.request_count += 1
        frame = self._next(request)
        try:
            spent, head = frame.head
        except (TypeError, ValueError) as error:
            self.refuse(error)
            raise ProcessDied(self._ended or "") from error
        self.spent = spent is not False
        return Frame(frame.kind, head, frame.blobs)

    def end_part(self) -> None:
        """Read up to the mark between the outputs of two attempts, which came before the answer of the first."""
        for name, output in self.output.items():
            while not output.parts:
                if not self._read_from(name):
                    self.refuse(ValueError("an output is truncated"))
                    return

    def _read_from(self, name: str) -> bool:
        """Read once from a stream. Returns whether there was anything."""
        stream = next((descriptor for descriptor, stream_name in self._names.items() if stream_name == name), None)
        return stream is not None and self._read(stream, name)

    def output_text(self) -> str:
        """Return the output of the process, and forget it."""
        return "".join(output.take() or "" for output in self.output.values())

    def _next(self, request: Request) -> Frame:
        """Send what is left of a request, handle reports and phases, and return the frame that answers it."""
        clock, until, late = request.clock, request.until, False
        while True:
            if (answer := self._answer_of(request)) is not None:
                return answer
            if self._ended is not None:
                raise self._death()
            if late:
                request.on_late()
                until = None
            seconds_left = clock.seconds_left
            if seconds_left is not None and seconds_left <= 0:
                self.end()
                self._read_rest()
                raise NodeTimeout(f"still running at its deadline of {clock.limit:g} s; its process was ended")
            # Either the process is about to end, and the leash will report how, or user code has closed the channel.
            if self._closed_at is not None:
                seconds_left = min(
                    self._closed_at + CLOSED_S - time.monotonic(), math.inf if seconds_left is None else seconds_left
                )
                if seconds_left <= 0:
                    self._end_for("ended, since it closed its connection")
            if until is not None:
                # Decided now and acted on in the next round, after everything that was sent before has been read.
                late = time.monotonic() >= until
                seconds_left = min(until - time.monotonic(), math.inf if seconds_left is None else seconds_left)
            # One millisecond more, because poll() takes whole milliseconds and must not return before the deadline.
            self._receive(self._poll.poll(None if seconds_left is None else max(0.0, seconds_left) * 1000.0 + 1.0))
            if self._unsent:
                self._unsent = self._send(self._unsent)

    def _answer_of(self, request: Request) -> Frame | None:
        """Handle frames up to an answer, and return that."""
        while self._frames:
            frame = self._frames.popleft()
            if frame.kind == "report":
                self._take(frame.head, request.on_report)
            elif frame.kind == "phase":
                self._enter(frame.head, request.clock)
            else:
                return frame
        return None

    def _enter(self, phase: Any, clock: Clock) -> None:
        try:
            clock.enter(phase)
        except ValueError as error:
            self.refuse(error)

    def _take(self, head: Any, on_report: Callable[[str, Any], None]) -> None:
        """Pass on a report that comes before the answer. A process that sends one of another shape is ended."""
        try:
            request_number, what, details = head
        except (TypeError, ValueError) as error:
            self.refuse(error)
            return
        if request_number == self.request_count:  # not by a thread that outlived an earlier attempt
            try:
                on_report(what, details)
            except Malformed as error:
                self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """End the process because it sent something else than a message."""
        self._end_for(NO_MESSAGE.format(error))

    def _end_for(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
            self.end()

    def end_over_quota(self, why: str) -> None:
        """End the process because of the memory quota of its session. From any thread."""
        self._is_over_quota = self._ended is None
        self._end_for(why)

    def _death(self) -> ProcessDied:
        """Return the error that describes how the process ended."""
        return (MemoryQuotaReached if self._is_over_quota else ProcessDied)(self._ended or "")

    def _send(self, unsent: memoryview) -> memoryview:
        """Send what the channel takes now. Returns the rest, to be sent once the channel is ready."""
        try:
            rest = unsent[self._channel.send(unsent) :]
        except BlockingIOError:
            rest = unsent
        except OSError:  # it has died: the reaper says how
            return unsent[:0]
        if self._channel.fileno() in self._names:
            self._poll.modify(self._channel, select.POLLIN | (select.POLLOUT if rest else 0))
        return rest

    def _receive(self, ready: Sequence[tuple[int, int]]) -> None:
        """Read from the descriptors that are ready. The leash comes last, because output may be left."""
        ended = has_message = False
        for descriptor, events in ready:
            name = self._names[descriptor]
            if name == "leash":
                ended = True
            elif events & ~select.POLLOUT:
                self._read(descriptor, name)
                has_message |= name == "channel"
        # Output from before an answer may arrive after poll() has looked at its pipe, so both pipes are read once more.
        if has_message:
            for name in self.output:
                self._read_from(name)
        if ended:
            self._read_rest()
            self._ended = self._ended or _end_reason(
                **json.loads(self._end_report or '{"code": null, "processes": null}')
            )

    def _read_rest(self) -> None:
        """Read the rest of an ended process, up to a bound: a descendant that is not killed yet may still write."""
        for descriptor, name in list(self._names.items()):
            for _ in range(LEFT_READS):
                if not self._read(descriptor, name):
                    break

    def _read(self, descriptor: int, name: str) -> bool:
        """Read once from a pipe; one that reached its end is not read again. Returns whether there was anything."""
        try:
            chunk = os.read(descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self._poll.unregister(descriptor)
            del self._names[descriptor]
            if name == "channel":
                self._closed_at = time.monotonic()
        elif name == "channel":
            try:
                self._frames.extend(self._inbox.feed(chunk))
            except ValueError as error:
                self.refuse(error)
                return False
        elif name == "leash":
            self._end_report += chunk
        else:
            self.output[name].add(chunk)
        return bool(chunk)

    def end(self) -> None:
        """Release the leash, and wait until the reaper has ended everything."""
        with contextlib.suppress(OSError):  # the reaper was quicker
            self._leash.shutdown(socket.SHUT_WR)
        # User code may have stopped the reaper, which could then neither see the leash nor kill.
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # stopped, or it cannot cope
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            # The reaper was killed before it had ended everything, so the rest is found by its marks.
            kill_process(self._id)

    def close(self) -> None:
        """End it, and remove its directory. By the thread that uses it, once."""
        self.end()
        self._launched.close()
        remove_tree(self.directory)
