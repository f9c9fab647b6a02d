"""Frames between the runner and a node process: a JSON head and the bytes of values beside it. Nothing is pickled."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from wtb.core.classes.frozen import frozen

_MAGIC = b"WTB1"  # so that what user code writes into the connection is seen as what it is
_PREFIX = struct.Struct("!4sIQ")  # magic, length of the head, length of the blobs
_AT_ONCE = 1 << 18  # bytes
_MOST = 1 << 32


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
    numbers: dict[int, int] = {}  # by identity: hashing large values would take as long as sending them

    def number(value: Any) -> int:
        if type(value) is not bytes:
            raise TypeError(f"a frame cannot hold {type(value).__name__}")
        place = numbers.setdefault(id(value), len(blobs))
        if place == len(blobs):
            blobs.append(value)
        return place

    text = orjson.dumps(head, default=number)  # before the lengths, since it finds the blobs
    text = orjson.dumps([kind, [len(blob) for blob in blobs], orjson.Fragment(text)])
    return b"".join([_PREFIX.pack(_MAGIC, len(text), sum(map(len, blobs))), text, *blobs])


class Inbox:
    """Puts frames together from the pieces that arrive."""

    def __init__(self) -> None:
        self._pieces = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that this piece completes. Raises ValueError if the bytes are no frame."""
        self._pieces += data
        while len(self._pieces) >= _PREFIX.size:
            magic, head, body = _PREFIX.unpack_from(self._pieces)
            if magic != _MAGIC:
                raise ValueError("no frame begins so")
            end = _PREFIX.size + head + body
            if end > _MOST:
                raise ValueError(f"a frame of {end:,} bytes")
            if len(self._pieces) < end:
                return
            whole = bytes(self._pieces[:end])
            del self._pieces[:end]
            yield _unpacked(whole, _PREFIX.size + head)


def _unpacked(whole: bytes, start: int) -> Frame:
    """Raises ValueError for what is no frame."""
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
    """The node process's end of the connection. A process that it forked must not speak for it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._inbox = Inbox()
        self._frames: list[Frame] = []
        self.asked = 0  # requests that were begun: a frame may hold several
        self._lock = threading.Lock()  # user code may call its context from threads of its own
        self._owner = os.getpid()

    def send(self, kind: str, head: Any) -> None:
        if os.getpid() != self._owner:
            os._exit(70)
        data = packed(kind, head)
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> Frame | None:
        """The next frame; None when the runner has gone."""
        while not self._frames:
            if os.getpid() != self._owner:
                os._exit(70)
            data = self._socket.recv(_AT_ONCE)
            if not data:
                return None
            self._frames.extend(self._inbox.feed(data))
        return self._frames.pop(0)
