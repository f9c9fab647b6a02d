"""Frames between the runner and a node process: their heads, bytes and deadlines. Nothing is pickled."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NotRequired, TypedDict

import orjson

from wtb.core.frozen import frozen
from wtb.core.provider_faults import ProviderFault
from wtb.core.questions import Kind
from wtb.core.tree.checkpoints import StoredPosition
from wtb.core.tree.stored_code import StoredCode
from wtb.core.tree.stored_spec import DataFinding
from wtb.store.files.store import Place

# User code can find the connection and write into it; without this, its bytes could pass for a frame.
_MAGIC = b"WTB1"
_PREFIX = struct.Struct("!4sIQ")  # magic, length of the head, length of the blobs
_AT_ONCE = 1 << 18  # bytes
_MAX_FRAME_BYTES = 1 << 32


@frozen(slots=True)
class Frame:
    """One message: its kind, its head, and the blobs that the head refers to by number."""

    kind: str
    head: Any
    blobs: Sequence[bytes]


def packed(kind: str, head: Any) -> bytes:
    """Return a frame as bytes.

    Args:
        kind: What the frame is about.
        head: JSON, dataclasses of it, and bytes: each object becomes a blob once, and its number takes its place.
    """
    blobs: list[bytes] = []
    # By identity, because hashing large values takes as long as sending them.
    numbers: dict[int, int] = {}

    def number(blob: Any) -> int:
        if type(blob) is not bytes:
            raise TypeError(f"a frame cannot hold {type(blob).__name__}")
        place = numbers.setdefault(id(blob), len(blobs))
        if place == len(blobs):
            blobs.append(blob)
        return place

    # Before the lengths are known, because it finds the blobs.
    text = orjson.dumps(head, default=number)
    text = orjson.dumps([kind, [len(blob) for blob in blobs], orjson.Fragment(text)])
    return b"".join([_PREFIX.pack(_MAGIC, len(text), sum(map(len, blobs))), text, *blobs])


class Inbox:
    """Assembles frames from the pieces that arrive."""

    def __init__(self) -> None:
        self._pieces = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Return the frames that this piece completes. Raises ValueError if the bytes are no frame."""
        self._pieces += chunk
        while len(self._pieces) >= _PREFIX.size:
            magic, head, body = _PREFIX.unpack_from(self._pieces)
            if magic != _MAGIC:
                raise ValueError("no frame begins so")
            end = _PREFIX.size + head + body
            # The runner would have to hold the frame in memory, whatever its process has written there.
            if end > _MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {end:,} bytes")
            if len(self._pieces) < end:
                return
            whole = bytes(self._pieces[:end])
            del self._pieces[:end]
            yield _unpacked(whole, _PREFIX.size + head)


def _unpacked(whole: bytes, start: int) -> Frame:
    """Parse a complete frame. Raises ValueError if it is none."""
    try:
        kind, lengths, head = orjson.loads(memoryview(whole)[_PREFIX.size : start])
        blobs = []
        for length in lengths:
            if type(length) is not int or not 0 <= length <= len(whole) - start:
                raise ValueError("a blob that is longer than its frame")
            blobs.append(whole[start : start + length])
            start += length
    except TypeError as error:
        raise ValueError(str(error)) from error
    if type(kind) is not str or start != len(whole):
        raise ValueError("its parts do not make a frame")
    return Frame(kind, head, blobs)


class Channel:
    """The node process's end of the connection. Processes that it forked must not use it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._inbox = Inbox()
        self._frames: list[Frame] = []
        self.request_count = 0  # requests that were begun: a frame may hold several
        self._lock = threading.Lock()  # user code may call its context from threads of its own
        self._owner = os.getpid()

    def send(self, kind: str, head: Any) -> None:
        if os.getpid() != self._owner:
            # A fork by user code came back here. Two processes in one connection would mix their frames.
            os._exit(70)
        frame = packed(kind, head)
        with self._lock:
            self._socket.sendall(frame)

    def receive(self) -> Frame | None:
        """The next frame; None when the runner has gone."""
        while not self._frames:
            if os.getpid() != self._owner:
                os._exit(70)
            chunk = self._socket.recv(_AT_ONCE)
            if not chunk:
                return None
            self._frames.extend(self._inbox.feed(chunk))
        return self._frames.pop(0)


# The content of frames that carry values: a value's digest, with its bytes as they are sent and their number as they
# are read. A node process sends no digests.
SentValues = Mapping[str, tuple[str, bytes]]
ReadValues = Mapping[str, tuple[str, int]]
SentCase = tuple[str, Sequence[str], Mapping[str, bytes]]
ReadCase = tuple[str, Sequence[str], Mapping[str, int]]


class ReadPrevious(TypedDict):
    """A `Previous` as it is read."""

    attempt: int
    limit: int
    error: str
    output: int
    suggestions: Sequence[str]
    feedback: str | None


class ReadQuestion(TypedDict):
    """A `Question` as it is read; a node process may claim anything of it."""

    kind: Kind
    node: str
    text: str
    number: int
    options: Sequence[str]
    context: int | None
    timeout: float | None
    default: str | None


class ReadFailure(TypedDict):
    """A `Failure` as a node process claims it."""

    kind: str
    type: str
    message: str
    trace: str
    final: bool
    node: str | None
    asked: Sequence[str]
    provider: ProviderFault | None


class ReadResult(TypedDict):
    """A `Result` as a node process claims it, without fields that have their default."""

    started_at: float
    duration_s: float
    lag_s: NotRequired[float]
    writes: NotRequired[Mapping[str, int]]
    failure: NotRequired[ReadFailure]
    question: NotRequired[ReadQuestion]
    asked: NotRequired[Sequence[str]]
    workspace: NotRequired[str]
    joined: NotRequired[object]
    files: NotRequired[Sequence[tuple[str, int]]]


class Beginning(TypedDict):
    """A case to begin with."""

    state: SentValues
    root: Sequence[object]


class StepToJoin(TypedDict):
    """A step to be joined. writes: by the key of the task."""

    state: SentValues
    position: StoredPosition
    writes: Sequence[tuple[str, SentValues]]
    root: Sequence[object]


class Scoring(TypedDict):
    """A cell to be scored by the evaluators from number `first` on."""

    first: int
    task: Mapping[str, object]


# A case of a sweep as it is to be stored: id, input, expected value, tags, files (its snapshot, and the digest and the
# bytes of each), cluster.
SentNewCase = tuple[
    str, Mapping[str, bytes], bytes | None, Sequence[str], str | None, Sequence[tuple[str, int]], str | None
]
ReadNewCase = tuple[
    str, Mapping[str, int], int | None, Sequence[str], str | None, Sequence[tuple[str, int]], str | None
]


class PreparedHead(TypedDict):
    """The parts of a prepared sweep besides its file and its code.

    Attributes:
        choices: The variant of each varied node, of each combination.
        baseline: That of the combination that the others are compared with.
        cases: The number of cases.
        clusters: The cluster of each case, if any case has one.
        findings: What the check of the cases found.
        tools: The version of each tool, by server.
    """

    choices: list[dict[str, str]]
    baseline: dict[str, str] | None
    cases: int
    clusters: list[str | None]
    findings: list[DataFinding]
    tools: dict[str, dict[str, str]]


class CodeHead(TypedDict):
    """The code that a node process must find: the fingerprints of its variants, and the outline of the workflow.

    `code` holds the parts from which the fingerprints were computed.
    """

    fingerprints: Mapping[str, Mapping[str, str]]
    code: NotRequired[StoredCode]
    outline: str | None


NO_CODE: CodeHead = {"fingerprints": {}, "outline": None}  # of one that is asked for evaluators only

# The content of the first frame of a node process: the code, or a draft or names whose code it is to describe, or a
# sweep file that it is to prepare; where it works, how many attempts it takes at a time, and what it prints between the
# outputs of two attempts, as hexadecimal digits.
SetupHead = TypedDict(
    "SetupHead",
    {
        "recipe": str,
        "draft": NotRequired[str],
        "names": NotRequired[Sequence[Mapping[str, str]]],
        "prepare": NotRequired[str],
        "fingerprints": Mapping[str, Mapping[str, str]],
        "code": NotRequired[StoredCode | None],
        "outline": str | None,
        "files": Place,
        "growth": int,
        "bounds": Mapping[str, int],
        "places": int,
        "async": NotRequired[bool],
        "directory": NotRequired[str],
        "mark": NotRequired[str],
        "hidden": NotRequired[Sequence[str]],
    },
)


NODE: Final = "node"  # the node's function is called
COROUTINE: Final = "coroutine"  # the same, and it is cancelled at its deadline
FILES: Final = "files"  # it has returned: its files are kept, and its step is joined
CANCELLED_S: Final = 2.0  # for what ends by itself at its deadline, such as a cancelled coroutine
BEGIN_S: Final = 900.0  # to get the files of an attempt that has a deadline, before its node is called
JOIN_S: Final = 300.0  # for reducers, branches and conditions


class Clock:
    """The deadline of one request: of its beginning first, then of each phase that the process enters, once each.

    Args:
        limits: Seconds by phase.
        first: Seconds until the first phase; None for no limit.
        extending: Phases whose seconds come after the deadline of the phase before. They are no deadline of a user.
    """

    def __init__(self, limits: Mapping[str, float], first: float | None, extending: tuple[str, ...] = ()) -> None:
        self.limit = first
        self._limits = limits
        self._extending = extending
        self._entered: set[str] = set()
        self._ends = None if first is None else time.monotonic() + first

    @classmethod
    def of_attempt(cls, timeout: float | None) -> Clock:
        """Make the clock of an attempt whose node, with its snapshot, may take so many seconds."""
        if timeout is None:
            return cls({}, None)
        # A coroutine is cancelled at the deadline by its own process, which then has a moment to stop.
        limits = {NODE: timeout, COROUTINE: timeout + CANCELLED_S, FILES: CANCELLED_S}
        return cls(limits, max(BEGIN_S, timeout), (FILES,))

    def enter(self, phase: object) -> None:
        """Start a phase that the process reports. Raises ValueError for an unknown one."""
        if not isinstance(phase, str) or phase not in self._limits:
            raise ValueError(f"a phase {phase!r:.50}")
        if phase in self._entered:  # such as the second of two calls: the clock keeps running
            return
        self._entered.add(phase)
        if phase in self._extending:
            self._ends = max(time.monotonic(), self._ends or 0.0) + self._limits[phase]
        else:
            self.begin(self._limits[phase])

    def begin(self, limit: float) -> None:
        """Give the next phase so many seconds."""
        self.limit = limit
        self._ends = time.monotonic() + limit

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the process is ended; None is never."""
        return None if self._ends is None else self._ends - time.monotonic()
