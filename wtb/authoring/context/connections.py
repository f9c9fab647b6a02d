"""Network connections of node runs, so that unrecorded calls do not count as free.

An audit hook reports each TCP connection before Python makes it. A client that keeps a connection open makes no new
one for later node runs: the kernel's count of sent bytes shows which of them use it (on Linux; elsewhere, every run
counts as using it). Connections that are made in C, such as those of gRPC, and those of child processes are
not seen. Files among the code that a node run writes are reported here, too: the same node runs are watched.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, NamedTuple

from wtb.authoring.context.audit_hook import listen, note_written, report_writes, written_here
from wtb.authoring.context.node_context import Context
from wtb.core.tree.stored_code import OUTSIDE

_MAX_CONNECTIONS: Final = 256  # connections that are followed, and names that are kept
_BYTES_ACKED = struct.Struct("=120xQ")  # the beginning of Linux's `struct tcp_info`
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None) if sys.platform.startswith("linux") else None
_LOOK_S: Final = 0.25  # between two looks at all connections: each costs 5 us, and an attempt may share hundreds
_UNKNOWN: Final = -1  # bytes, if the kernel does not count them


class _Followed:
    """An open connection that no recorded call explains.

    Attributes:
        where: Host and port.
        family: Of its addresses.
        near: Its address on this side, which no other open connection has.
        sent: Bytes that had been sent when that was last read.
    """

    __slots__ = ("family", "near", "sent", "where")

    def __init__(self, where: str, family: int, near: Any, sent: int) -> None:
        self.where = where
        self.family = family
        self.near = near
        self.sent = sent


class _Opened(NamedTuple):
    """A connection that is being made, with the family of its addresses."""

    descriptor: int
    family: int
    where: str


class _Run:
    """A node run while it is watched.

    Attributes:
        context: Its context.
        opened: The connections that it opened.
        sent: Bytes that had been sent on each followed connection, by descriptor, when it began.
    """

    __slots__ = ("context", "opened", "sent")

    def __init__(self, context: Context, sent: dict[int, int]) -> None:
        self.context = context
        self.opened: list[_Opened] = []
        self.sent = sent


class _Watch:
    """The connections of this process, and the node runs that are watched for them."""

    def __init__(self) -> None:
        self.runs: dict[int, _Run] = {}
        self.followed: dict[int, _Followed] = {}
        self.outside: list[_Opened] = []
        self.names: dict[str, str] = {}
        self.owns_process = False
        self.process: int | None = None  # that is watched
        self.looked_at = 0.0  # when the counts of all connections were read, on the monotonic clock
        self.lock = threading.Lock()

    def install(self, *, owns_process: bool) -> None:
        """Watch this process from now on. owns_process: nothing but user code connects in it."""
        with self.lock:
            if self.process != os.getpid():
                listen({"socket.connect": self.connect})
                report_writes(self.wrote)
                if self.process is None:
                    _learn_names()
                self.owns_process = owns_process
                self.process = os.getpid()

    def connect(self, connection: Any, address: Any) -> None:
        """Note a connection that is about to be made."""
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return
        if _is_explained.get():
            return
        where = f"{self.names.get(address[0], address[0])}:{address[1]}"
        opened = _Opened(connection.fileno(), connection.family, where)
        mine = self.present_runs()
        for run in mine:
            run.opened.append(opened)
            run.context.record.report("connected", where)
        if not mine and self.owns_process and len(self.outside) < _MAX_CONNECTIONS:
            self.outside.append(opened)

    def present_runs(self) -> list[_Run]:
        """Return the node runs that may be doing what this thread does."""
        run = self.runs.get(_present.get())
        if run is not None:
            return [run]
        # Of a thread that has no context variables, or made before the first node run.
        return list(self.runs.values()) if self.owns_process else []

    def wrote(self, parts: list[str]) -> None:
        """Report files among the code that are about to be written."""
        runs = self.present_runs()
        if not self.owns_process and not runs and threading.current_thread() is not threading.main_thread():
            runs = list(self.runs.values())  # on the main thread somebody may edit files meanwhile, as in a notebook
        for part in parts:
            if runs or self.owns_process:
                note_written(part, runs[0].context.node if runs else OUTSIDE)
            for run in runs:
                run.context.record.report("written", [part, run.context.node])

    def begin(self, context: Context) -> _Run:
        """Note that a node run begins."""
        # Connections made outside of node runs, such as at import, may be used by any later node run.
        if self.outside:
            opened, self.outside = self.outside, []
            self._follow(opened)
        sent = {descriptor: followed.sent for descriptor, followed in self.followed.copy().items()}
        for written in written_here().items():  # by what may still have the file open
            context.record.report("written", written)
        run = self.runs[id(context)] = _Run(context, sent)
        return run

    def end(self, run: _Run) -> None:
        """Report the connections that a node run used without a recorded call, and follow those that it leaves open."""
        self.runs.pop(id(run.context), None)
        record = run.context.record
        # The attempt recorded the cost of its calls, so its connections leave no cost unknown.
        if record.counts_calls:
            return
        reported = {opened.where for opened in run.opened}
        looks_at_all = self._looks_at_all()
        for descriptor, before in run.sent.items():
            followed = self.followed.get(descriptor)
            if followed is None or (followed.where in reported and not looks_at_all):
                continue
            # A descriptor may have been closed and reused, so `_sent` compares its address before it trusts the count.
            sent = _sent(descriptor, followed)
            if sent is None:
                self.followed.pop(descriptor, None)
                continue
            if (sent == _UNKNOWN or sent > before) and followed.where not in reported:
                reported.add(followed.where)
                record.report("connected", followed.where)
            followed.sent = sent
        if run.opened:
            self._follow(run.opened)

    def _looks_at_all(self) -> bool:
        """Return whether the counts of all connections are to be read, and not only until each host is reported.

        Beside other node runs, which may be the ones that use a connection, they are read now and then.
        """
        now = time.monotonic()
        if self.runs and now < self.looked_at + _LOOK_S:
            return False
        self.looked_at = now
        return True

    def _follow(self, opened: list[_Opened]) -> None:
        for descriptor, family, where in opened:
            near = _near(descriptor, family)
            if near is not None and len(self.followed) < _MAX_CONNECTIONS:
                followed = _Followed(where, family, near, 0)
                followed.sent = _sent(descriptor, followed) or 0
                self.followed[descriptor] = followed


_watch = _Watch()
_present: ContextVar[int] = ContextVar("wtb_watched_run", default=0)
_is_explained: ContextVar[bool] = ContextVar("wtb_explained_connections", default=False)


@contextmanager
def watched(context: Context, *, owns_process: bool) -> Iterator[None]:
    """Report the connections that a node run makes or uses without a recorded call, and files of the code it writes.

    Args:
        context: The context of the node run.
        owns_process: Nothing but user code connects in this process.
    """
    if _watch.process != os.getpid():
        _watch.install(owns_process=owns_process)
    run = _watch.begin(context)
    token = _present.set(id(context))
    try:
        yield
    finally:
        _present.reset(token)
        _watch.end(run)


@contextmanager
def explained() -> Iterator[None]:
    """Ignore connections that are made in this context: WTB makes them, and records what they are for."""
    token = _is_explained.set(True)
    try:
        yield
    finally:
        _is_explained.reset(token)


def is_explained() -> bool:
    """Return whether WTB itself makes the connections of this context."""
    return _is_explained.get()


def name_of(address: str) -> str:
    """Return the name by which this process looked an address up, or the address."""
    return _watch.names.get(address, address)


def _learn_names() -> None:
    """Keep the names of addresses that this process looks up: connections only have addresses."""
    look_up = socket.getaddrinfo

    @wraps(look_up)
    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        addresses = look_up(host, *args, **kwargs)
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(name, str) and len(_watch.names) < _MAX_CONNECTIONS:
            for *_, address in addresses:
                _watch.names[str(address[0])] = name
        return addresses

    socket.getaddrinfo = getaddrinfo


def _connection(descriptor: int, family: int) -> socket.socket | None:
    """Return a descriptor as a socket; None if user code closed it, and it is a file or nothing by now."""
    try:
        return socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor)
    except OSError:
        return None


def _near(descriptor: int, family: int) -> Any:
    """Return the address on this side of a connection; None if it is none, or none any more."""
    connection = _connection(descriptor, family)
    if connection is None:
        return None
    try:
        connection.getpeername()
        return connection.getsockname()
    except OSError:
        return None
    finally:
        connection.detach()


def _sent(descriptor: int, followed: _Followed) -> int | None:
    """Return the bytes that were sent on a connection and arrived; None if it is open no more."""
    connection = _connection(descriptor, followed.family)
    if connection is None:
        return None
    try:
        # User code closed the connection, and the descriptor is another connection by now.
        if connection.getsockname() != followed.near:
            return None
        if _TCP_INFO is None:
            return _UNKNOWN
        return int(_BYTES_ACKED.unpack_from(connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256))[0])
    except OSError:
        return None
    except struct.error:  # an old kernel
        return _UNKNOWN
    finally:
        connection.detach()
