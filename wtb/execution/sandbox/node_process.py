"""The runner's side of one node process: it is started, asked, timed, and ended with everything that it started."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wtb.authoring.boundary import Malformed
from wtb.core.errors import NodeTimeout, WTBError
from wtb.core.serialization.plain_json import storable
from wtb.execution.sandbox.deadlines import Clock
from wtb.execution.sandbox.framing import Frame, Inbox, packed
from wtb.execution.sandbox.heads import SetupHead
from wtb.execution.sandbox.launch import reaper
from wtb.execution.sandbox.launch.launching import launch_of, start
from wtb.execution.sandbox.launch.process_tags import kill_process
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.store import FileStore

CAP = 32 * 1024  # bytes kept of the beginning and of the end of an output
NO_MESSAGE = "ended, since what it sent is not a message ({})"  # as user code that writes into its connection does
LEFT_READS = 1000  # of what an ended process has left, at most
CLOSED_S = 1.0  # for a process that closed its channel to end
PATIENCE_S = 10.0  # for a reaper to end its descendants
_AT_ONCE = 1 << 18
UNTIMED = Clock({}, None)
_OUR_FRAMES = re.compile(rf'^  File "{re.escape(str(Path(reaper.__file__).parents[3]))}/[^"]*", line \d+ in .*\n', re.M)


class ProcessDied(WTBError):
    """A node process ended before it answered."""


def _end_reason(code: int | None, processes: int | None) -> str:
    """How a process ended. code: its exit code, or less than 0 for a signal. processes: how many were too many."""
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


@dataclass(frozen=True)
class Setup:
    """What every node process of a run starts with.

    head: what its first frame says. environment: all it inherits. limits: as in `run.rlimits`.
    directory: where it works; its workspaces lie below. files: the store that it adds to.
    """

    head: SetupHead
    environment: Mapping[str, str]
    limits: Mapping[str, int | None]
    folder: Path
    directory: Path
    files: FileStore


def _ignore(what: str, data: Any) -> None:
    """Take a report that nobody listens to."""


@dataclass(frozen=True)
class Request:
    """What a node process is asked for.

    head: JSON, dataclasses and bytes.
    on_report: called with each report that comes before the answer: what it is, and its data.
    clock: until when the process may take.
    """

    kind: str
    head: Any
    on_report: Callable[[str, Any], None] = _ignore
    clock: Clock = UNTIMED


def show(output: str) -> None:
    """Show what user code printed that belongs to no attempt."""
    if output:
        print(output, end="", file=sys.stderr, flush=True)


@dataclass
class Output:
    """A stream, of which the beginning and the end are kept."""

    start: bytearray = field(default_factory=bytearray)
    end: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        room = CAP - len(self.start)
        self.start += data[:room]
        self.end += data[room:]
        if len(self.end) > 2 * CAP:
            self.left_out += len(self.end) - CAP
            del self.end[:-CAP]

    @property
    def size(self) -> int:
        """How many bytes there were so far."""
        return len(self.start) + self.left_out + len(self.end)

    def take(self) -> str | None:
        """Return, and forget, all of it as text; None if there is nothing."""
        text = self.text()
        self.start, self.end, self.left_out = bytearray(), bytearray(), 0
        return text

    def text(self) -> str | None:
        """Return what is kept as text; None if there is nothing. Any thread may ask while it grows."""
        if not self.start:
            return None
        left_out = self.left_out + max(0, len(self.end) - CAP)
        text = bytes(self.start).decode("utf-8", "replace")
        if left_out:
            text += f"\n... {left_out:,} bytes left out ...\n"
        text += bytes(self.end[-CAP:]).decode("utf-8", "replace")
        # PostgreSQL cannot store NUL; of a crash's stack, the user's own frames matter.
        return _OUR_FRAMES.sub("", text.replace("\0", "\ufffd"))


class NodeProcess:
    """One warm process. Used by one thread at a time; `end` may be called from any."""

    def __init__(self, setup: Setup) -> None:
        self.asked = 0
        self.spent = False
        self.output = {"stdout": Output(), "stderr": Output()}
        launched = self._launched = start(launch_of(setup.environment, setup.limits, setup.folder))
        self._id, self._process = launched.id, launched.process
        self._leash, self._channel = launched.leash, launched.channel
        self.directory = setup.directory / self._id
        self._files, self._owner = setup.files, f"{setup.files.owner}{self._id}."
        self._inbox = Inbox()
        self._frames: deque[Frame] = deque()
        self._end_report = b""
        self._ended: str | None = None
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
        self._setup = packed("setup", {**setup.head, "directory": str(self.directory), "owner": self._owner})

    @property
    def pid(self) -> int:
        """The id of its reaper, whose only child it is."""
        return self._process.pid

    def lives(self) -> bool:
        """Return whether the process is still alive."""
        leash = self._leash.fileno()
        return leash in self._names and leash not in dict(self._poll.poll(0))

    def ready(self) -> None:
        """Wait until the process has made the workflow.

        Raises:
            WTBError: It could not make the workflow.
            ProcessDied: It ended before.
        """
        try:
            frame = self._ask(self._setup, _ignore, UNTIMED)
        except ProcessDied as error:
            data = (self.output["stderr"].take() or "").strip()
            raise ProcessDied(f"a node process could not start: {error}\n{data[-2000:]}".rstrip()) from error
        if frame.kind == "refused":
            raise WTBError(storable(str(frame.head)))
        for output in self.output.values():
            output.take()  # what importing printed belongs to no attempt

    def ask(self, request: Request) -> Frame:
        """Send a request and wait for its answer.

        Raises:
            ProcessDied: The process ended, or sent something of another shape.
            NodeTimeout: It was ended at its deadline.
        """
        self.asked += 1
        frame = self._ask(packed(request.kind, request.head), request.on_report, request.clock)
        try:
            spent, head = frame.head
        except (TypeError, ValueError) as error:
            self._refuse(error)
            raise ProcessDied(self._ended or "") from error
        self.spent = spent is not False
        return Frame(frame.kind, head, frame.blobs)

    def output_text(self) -> str:
        """Return, and forget, what the process printed."""
        return "".join(output.take() or "" for output in self.output.values())

    def _ask(self, data: bytes, on_report: Callable[[str, Any], None], clock: Clock) -> Frame:
        """Send a request, handle reports and phases, and return the frame that answers it."""
        unsent = self._send(memoryview(data))
        while True:
            left = clock.left
            if left is not None and left <= 0:
                self.end()
                self._read_rest()
                raise NodeTimeout(f"still running at its deadline of {clock.limit:g} s; its process was ended")
            if self._closed_at is not None:  # it is about to end, or user code has closed the channel
                left = min(self._closed_at + CLOSED_S - time.monotonic(), math.inf if left is None else left)
                if left <= 0:
                    self._end_for("ended, since it closed its connection")
            # What was printed before an answer is ready to be read whenever the answer is.
            self._receive(self._poll.poll(None if left is None else max(0.0, left) * 1000.0 + 1.0))
            if unsent:
                unsent = self._send(unsent)
            while self._frames:
                frame = self._frames.popleft()
                if frame.kind == "report":
                    self._take(frame.head, on_report)
                elif frame.kind == "phase":
                    self._enter(frame.head, clock)
                else:
                    return frame
            if self._ended is not None:
                raise ProcessDied(self._ended)

    def _enter(self, phase: Any, clock: Clock) -> None:
        try:
            clock.enter(phase)
        except ValueError as error:
            self._refuse(error)

    def _take(self, head: Any, on_report: Callable[[str, Any], None]) -> None:
        """Pass on a report that comes before the answer. A process that sends one of another shape is ended."""
        try:
            asked, what, data = head
        except (TypeError, ValueError) as error:
            self._refuse(error)
            return
        if asked == self.asked:  # not by a thread that outlived an earlier attempt
            try:
                on_report(what, data)
            except Malformed as error:
                self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """End the process for what it sent."""
        self._end_for(NO_MESSAGE.format(error))

    def _end_for(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
            self.end()

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
        """Read from the descriptors that are ready. That of the end comes last, since output may be left."""
        ended = False
        for descriptor, events in ready:
            name = self._names[descriptor]
            if name == "leash":
                ended = True
            elif events & ~select.POLLOUT:
                self._read(descriptor, name)
        if ended:
            self._read_rest()
            self._ended = self._ended or _end_reason(
                **json.loads(self._end_report or '{"code": null, "processes": null}')
            )

    def _read_rest(self) -> None:
        """Read what an ended process left, up to a bound: a descendant that is still to be killed may go on writing."""
        for descriptor, name in list(self._names.items()):
            for _ in range(LEFT_READS):
                if not self._read(descriptor, name):
                    break

    def _read(self, descriptor: int, name: str) -> bool:
        """Read once from a pipe; one that reached its end is not read again. Returns whether there was anything."""
        try:
            data = os.read(descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._poll.unregister(descriptor)
            del self._names[descriptor]
            if name == "channel":
                self._closed_at = time.monotonic()
        elif name == "channel":
            try:
                self._frames.extend(self._inbox.feed(data))
            except ValueError as error:
                self._refuse(error)
                return False
        elif name == "leash":
            self._end_report += data
        else:
            self.output[name].add(data)
        return bool(data)

    def end(self) -> None:
        """Release the leash, and wait until the reaper has ended everything."""
        with contextlib.suppress(OSError):  # the reaper was quicker
            self._leash.shutdown(socket.SHUT_WR)
        self._process.send_signal(signal.SIGCONT)  # user code may have stopped it
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # stopped, or it cannot cope
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:  # the reaper did not come to its end by itself, so others may be left
            kill_process(self._id)

    def close(self) -> None:
        """End it, and remove its directory. By the thread that uses it, once."""
        self.end()
        self._launched.close()
        self._files.remove_unfinished(self._owner)
        remove_tree(self.directory)
